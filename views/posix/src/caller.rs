//! For whom something is done.

use std::sync::Arc;

/// A user as the kernel knows one.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Somebody else has checked rights already (the kernel, by `default_permissions`; a bucket's policy): none are checked here.
    pub is_checked: bool,
}
