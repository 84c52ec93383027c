//! Weights of users: their parts of tiers whose room is scarce.

use crate::CONTAINER_WEIGHT_MAX;

/// Largest weight of a user.
pub const USER_WEIGHT_MAX: u16 = CONTAINER_WEIGHT_MAX;
/// Most users with a weight other than 1.
pub const USERS_WEIGHED_MAX: usize = 4096;

/// The weight of a user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserWeight {
    /// The user's numeric id.
    pub uid: u32,
    /// 1 to [`USER_WEIGHT_MAX`].
    pub weight: u16,
}

/// The weights of all users. The homes of a cluster have the same ones: of two versions the later counts, as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UserWeights {
    /// Rises with each change: milliseconds since 1970, or more. 0: nobody was ever given a weight.
    pub version: u64,
    /// Users with another weight than 1, by rising ids.
    pub users: Vec<UserWeight>,
}

impl UserWeights {
    /// The weight of a user; 1 if none was set.
    pub fn of(&self, uid: u32) -> u16 {
        self.users.binary_search_by_key(&uid, |user| user.uid).map_or(1, |at| self.users[at].weight)
    }
    /// These weights with that of one user set at a time, in milliseconds since 1970.
    #[must_use]
    pub fn with(&self, user: UserWeight, unix_ms: u64) -> Self {
        let mut users = self.users.clone();
        users.retain(|known| known.uid != user.uid);
        if user.weight != 1 {
            let at = users.partition_point(|known| known.uid < user.uid);
            users.insert(at, user);
        }
        Self { version: unix_ms.max(self.version.saturating_add(1)), users }
    }
    /// Returns true if no user is in it twice, the ids rise, all weights are within bounds, and there are not too many.
    pub fn is_valid(&self) -> bool {
        self.users.len() <= USERS_WEIGHED_MAX
            && self.users.windows(2).all(|pair| pair[0].uid < pair[1].uid)
            && self.users.iter().all(|user| (1..=USER_WEIGHT_MAX).contains(&user.weight))
    }
}

/// What [`crate::Request::Weights`] does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WeightsAsk {
    /// Nothing: it only shows them.
    Show,
    /// Sets the weight of a user.
    Set(UserWeight),
    /// Takes over what another home has, if it is later.
    Follow(UserWeights),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_later_than_what_it_changes() {
        let user = |uid, weight| UserWeight { uid, weight };
        let first = UserWeights::default().with(user(1001, 4), 50);
        let second = first.with(user(7, 2), 20);
        assert_eq!((first.version, second.version), (50, 51), "whatever the clock says");
        assert_eq!(second.users, [user(7, 2), user(1001, 4)]);
        assert_eq!([7, 1001, 9].map(|uid| second.of(uid)), [2, 4, 1]);
        let third = second.with(user(1001, 1), 90);
        assert_eq!((third.users.as_slice(), third.version), (&[user(7, 2)][..], 90));
        assert!([first, second, third].iter().all(UserWeights::is_valid));
    }

    #[test]
    fn what_nobody_would_have_written_is_not_valid() {
        let weights = |users: &[(u32, u16)]| UserWeights {
            version: 1,
            users: users.iter().map(|(uid, weight)| UserWeight { uid: *uid, weight: *weight }).collect(),
        };
        assert!(weights(&[(1, 1000), (2, 3)]).is_valid());
        for users in [&[(1, 0)][..], &[(1, 1001)], &[(2, 3), (1, 3)], &[(1, 3), (1, 4)]] {
            assert!(!weights(users).is_valid(), "{users:?}");
        }
    }
}
