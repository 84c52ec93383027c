//! The weights of users: read at opening, set by the store's owner, taken over from other homes of the cluster.

use cenote_model::{
    Error, ErrorKind, Response, Result, USER_WEIGHT_MAX, USERS_WEIGHED_MAX, UserWeight, UserWeights, WeightsAsk,
};

use super::Core;
use crate::Outcome;
use crate::engine::Engine;
use crate::weights::{WEIGHTS, decode, encode};

impl Engine {
    /// Returns the weights of users that count now.
    pub fn weights(&self) -> &UserWeights {
        &self.core.weights
    }

    /// Does what [`cenote_model::Request::Weights`] asks, for callers that have the engine and no session.
    pub fn weigh(&mut self, ask: WeightsAsk) -> Outcome {
        Outcome::Ready(self.core.weigh(ask).unwrap_or_else(Response::Failed))
    }
}

impl Core {
    /// Puts the weights of the store directory into force.
    pub fn read_weights(&mut self) {
        match self.seams.meta.read_file(WEIGHTS) {
            Ok(bytes) => {
                if let Some(weights) = decode(self.store.id, &bytes) {
                    self.weights = weights;
                } else {
                    tracing::warn!("the file `{WEIGHTS}` is damaged or of another store: all users have weight 1");
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "the weights of users cannot be read: all have weight 1"),
        }
    }

    /// Shows the weights of users, sets one, or takes over what another home has. Answers with those that count now.
    pub fn weigh(&mut self, ask: WeightsAsk) -> Result<Response> {
        match ask {
            WeightsAsk::Show => {}
            WeightsAsk::Set(user) => self.weigh_user(user)?,
            WeightsAsk::Follow(weights) => self.follow_weights(weights)?,
        }
        Ok(Response::Weights(self.weights.clone()))
    }

    fn weigh_user(&mut self, user: UserWeight) -> Result<()> {
        let subject = || format!("the weight of user {}", user.uid);
        if !(1..=USER_WEIGHT_MAX).contains(&user.weight) {
            return Err(Error::new(ErrorKind::InvalidInput, subject())
                .because(format!("it is {}, and weights are 1 to {USER_WEIGHT_MAX}", user.weight))
                .try_next("give it one of these"));
        }
        let weights = self.weights.with(user, self.seams.clock.unix_ms());
        if weights.users.len() > USERS_WEIGHED_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, subject())
                .because(format!("{USERS_WEIGHED_MAX} users have another weight than 1 already"))
                .try_next("give some of them weight 1"));
        }
        self.keep_weights(weights)
    }

    /// Takes over later weights as a whole: all homes are to have the same ones.
    fn follow_weights(&mut self, weights: UserWeights) -> Result<()> {
        if weights.version <= self.weights.version {
            return Ok(());
        }
        if !weights.is_valid() {
            return Err(Error::new(ErrorKind::InvalidInput, "the weights of users")
                .because("they are out of order or out of bounds")
                .try_next("run the same version of Cenote on all nodes"));
        }
        self.keep_weights(weights)
    }

    fn keep_weights(&mut self, weights: UserWeights) -> Result<()> {
        self.seams.meta.write_file(WEIGHTS, &encode(&weights, self.store.id))?;
        self.weights = weights;
        Ok(())
    }
}
