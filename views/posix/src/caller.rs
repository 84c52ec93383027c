//! The user on whose behalf a call runs.

use std::sync::Arc;

/// A user's credentials as the kernel knows them.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Rights were already checked elsewhere (by the kernel with `default_permissions`, or by a bucket's policy): this crate
    /// checks none.
    pub is_checked: bool,
}
