//! The weights of users: their parts of tiers whose room is scarce.

use cenote_model::{Error, HomeId, Request, Response, Result, UserWeight, UserWeights, WeightsAsk};

use crate::answer::surprise;
use crate::answered::{Answered, each_home};
use crate::link::Link;
use crate::store::Store;

/// The weights of users, and where they count.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The latest ones.
    pub weights: UserWeights,
    /// The homes of a cluster that have earlier ones: they take these over by themselves, soon.
    pub behind: Vec<HomeId>,
    /// The homes that do not answer, each with the reason: they take these over once they can be reached.
    pub silent: Vec<(HomeId, Error)>,
}

impl Store {
    /// Returns the weights of users. `Disconnected` if no home answers.
    pub fn user_weights(&self) -> Result<Weights> {
        let told = self.weights_of_homes()?;
        let silent = told.silent.clone();
        let all = told.of_any()?;
        let latest = all.iter().map(|(_, weights)| weights).max_by_key(|weights| weights.version);
        let weights = latest.cloned().unwrap_or_default();
        let is_behind = |(_, its): &&(HomeId, UserWeights)| its.version < weights.version;
        let behind = all.iter().filter(is_behind).map(|(home, _)| *home).collect();
        Ok(Weights { weights, behind, silent })
    }
    /// Gives a user a part of scarce tiers, beside other users: `weight` is 1, which all have at first, to
    /// [`cenote_model::USER_WEIGHT_MAX`]. Returns the weights of all, and the homes of a cluster where they do not count yet.
    /// Only the owner of the store and root may do this. `Disconnected` if the first home of the cluster cannot be reached.
    ///
    /// ```
    /// # fn main() -> cenote::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("cenote-weights-{}", std::process::id()));
    /// let store = cenote::Store::open(&dir)?;
    /// store.set_user_weight(1001, 4)?; // four times the room of a user with weight 1
    /// assert_eq!(store.user_weights()?.weights.of(1001), 4);
    /// # drop(store);
    /// # cenote::Store::destroy(&dir, true)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_user_weight(&self, uid: u32, weight: u16) -> Result<Weights> {
        let session = self.session()?;
        session.root().channel.check_writable()?;
        let Some(first) = session.links.first() else {
            let weights = ask(session.root(), WeightsAsk::Set(UserWeight { uid, weight }))?;
            return Ok(Weights { weights, behind: Vec::new(), silent: Vec::new() });
        };
        // All changes go through the first home, so that none is lost that somebody else makes now.
        let link = session.links.to(first);
        let told = self.weights_of_homes()?;
        let known = told.found.iter().map(|(_, weights)| weights).max_by_key(|weights| weights.version);
        if let Some(known) = known {
            ask(link, WeightsAsk::Follow(known.clone()))?;
        }
        let weights = ask(link, WeightsAsk::Set(UserWeight { uid, weight }))?;
        let answers = |home: HomeId| home != first && told.found.iter().any(|(found, _)| *found == home);
        let follow = |_, link: &Link| ask(link, WeightsAsk::Follow(weights.clone())).map(|_| Vec::<()>::new());
        let mut silent = each_home(&session, answers, follow).silent;
        silent.extend(told.silent);
        Ok(Weights { weights, behind: Vec::new(), silent })
    }
    fn weights_of_homes(&self) -> Result<Answered<(HomeId, UserWeights)>> {
        let show = |home, link: &Link| Ok(vec![(home, ask(link, WeightsAsk::Show)?)]);
        Ok(each_home(&*self.session()?, |_| true, show))
    }
}

fn ask(link: &Link, ask: WeightsAsk) -> Result<UserWeights> {
    match link.request(Request::Weights { ask })? {
        Response::Weights(weights) => Ok(weights),
        other => Err(surprise("the weights of users", &other)),
    }
}
