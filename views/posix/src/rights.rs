//! Access checks: POSIX permissions, the sticky bit, set-id bits.

use crate::records::Node;
use crate::{Caller, FsResult, Kind, fail};

/// Right to read.
pub const READ: u32 = 4;
/// Right to write.
pub const WRITE: u32 = 2;
/// Right to execute, or to search a directory.
pub const SEARCH: u32 = 1;

/// Set-group-id; on a directory, new files take the directory's group.
pub const SETGID: u32 = 0o2000;
/// Set-user-id: the file runs as its owner.
pub const SETUID: u32 = 0o4000;
/// Sticky: only owners remove names from the directory.
pub const STICKY: u32 = 0o1000;

impl Caller {
    fn is_root(&self) -> bool {
        self.uid == 0
    }
    /// Returns true for a member of the group.
    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// Returns true for the owner, for root, and if rights were checked elsewhere.
    pub(crate) fn owns(&self, node: &Node) -> bool {
        self.is_checked || self.is_root() || self.uid == node.uid
    }
    /// Returns true if nothing is refused.
    pub(crate) fn is_above(&self) -> bool {
        self.is_checked || self.is_root()
    }
}

/// Returns `EACCES` unless `caller` has all rights in `mask`.
pub fn need(caller: &Caller, node: &Node, mask: u32) -> FsResult<()> {
    if caller.is_checked { Ok(()) } else { check(caller, node, mask) }
}

/// Returns `EACCES` unless `caller` has all rights in `mask`, even if rights were checked elsewhere.
pub fn check(caller: &Caller, node: &Node, mask: u32) -> FsResult<()> {
    let is_dir = node.kind == Kind::Directory;
    if caller.is_root() {
        // Root may do everything except execute what nobody may execute.
        let refused = mask & SEARCH != 0 && !is_dir && node.mode & 0o111 == 0;
        return if refused { fail(libc::EACCES) } else { Ok(()) };
    }
    let granted = if caller.uid == node.uid {
        node.mode >> 6
    } else if caller.is_in(node.gid) {
        node.mode >> 3
    } else {
        node.mode
    };
    let missing = mask & !granted & 0o7;
    if missing == 0 { Ok(()) } else { fail(libc::EACCES) }
}

/// Returns `EPERM` if the sticky bit of `dir` keeps `caller` from removing the name of `node`.
pub fn need_unstuck(caller: &Caller, dir: &Node, node: &Node) -> FsResult<()> {
    if node.image.is_some() {
        return fail(libc::EROFS); // an image is removed with its HDF5 file
    }
    let may = dir.mode & STICKY == 0 || caller.owns(dir) || caller.owns(node);
    if may { Ok(()) } else { fail(libc::EPERM) }
}

/// Returns mode and group of what `caller` creates in `dir`.
pub fn of_new(caller: &Caller, dir: &Node, kind: Kind, mode: u32) -> (u32, u32) {
    let mut mode = mode & 0o7777;
    if kind == Kind::Symlink {
        mode = 0o777;
    }
    if dir.mode & SETGID == 0 {
        return (mode, caller.gid);
    }
    if kind == Kind::Directory {
        mode |= SETGID;
    } else if mode & (SETGID | 0o10) == (SETGID | 0o10) && !caller.is_above() && !caller.is_in(dir.gid) {
        mode &= !SETGID;
    }
    (mode, dir.gid)
}

/// Set-id bits that a file keeps when its bytes change (Linux, `setattr_should_drop_suidgid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Root: keeps all.
    All,
    /// Member of the group: keeps set-group-id without execute permission of the group, which meant mandatory locks
    /// and grants nothing.
    Locks,
    /// Others: keeps none.
    Nothing,
}

impl Keeps {
    /// Rule for a write by `caller` to a file of that group.
    pub fn of(caller: &Caller, gid: u32) -> Self {
        if caller.is_above() { Self::All } else { Self::of_owner_change(caller, gid) }
    }
    /// Rule for a change of owner or group: root's changes leave no privilege either.
    pub fn of_owner_change(caller: &Caller, gid: u32) -> Self {
        if caller.is_above() || caller.is_in(gid) { Self::Locks } else { Self::Nothing }
    }
    /// Returns the mode of a file after the change.
    pub fn behind(self, kind: Kind, mode: u32) -> u32 {
        let gone = match self {
            _ if kind == Kind::Directory => 0,
            Self::All => 0,
            Self::Locks if mode & 0o10 == 0 => SETUID,
            Self::Locks | Self::Nothing => SETUID | SETGID,
        };
        mode & !gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.into(), is_checked: false }
    }

    /// Checks every mode of nine bits against every mask, for each class, by the text of POSIX rather than by shifts.
    #[test]
    fn permissions_are_those_of_the_first_class_that_fits() {
        let classes = [
            (caller(5, 9, &[]), [0o400, 0o200, 0o100]),
            (caller(5, 7, &[7]), [0o400, 0o200, 0o100]), // the owner, even if the group matches too
            (caller(6, 7, &[]), [0o40, 0o20, 0o10]),
            (caller(6, 9, &[1, 7]), [0o40, 0o20, 0o10]),
            (caller(6, 9, &[1, 2]), [4, 2, 1]),
        ];
        for kind in [Kind::File, Kind::Directory] {
            for mode in 0..0o1000 {
                let node = Node::new(kind, mode, (5, 7), Time::default());
                for mask in 0..8 {
                    for (caller, [read, write, search]) in &classes {
                        let may = (mask & READ == 0 || mode & read != 0)
                            && (mask & WRITE == 0 || mode & write != 0)
                            && (mask & SEARCH == 0 || mode & search != 0);
                        assert_eq!(check(caller, &node, mask).is_ok(), may, "{kind:?} {mode:o} {mask} {caller:?}");
                    }
                    let may = mask & SEARCH == 0 || kind == Kind::Directory || mode & 0o111 != 0;
                    assert_eq!(check(&caller(0, 0, &[]), &node, mask).is_ok(), may, "root {kind:?} {mode:o} {mask}");
                    let checked = Caller { is_checked: true, ..caller(6, 9, &[]) };
                    assert!(need(&checked, &node, mask).is_ok());
                }
            }
        }
    }
    #[test]
    fn a_sticky_directory_gives_names_to_owners_only() {
        let dir = |mode| Node::new(Kind::Directory, mode, (5, 7), Time::default());
        let node = Node::new(Kind::File, 0o666, (6, 7), Time::default());
        for (uid, may) in [(0, true), (5, true), (6, true), (8, false)] {
            assert_eq!(need_unstuck(&caller(uid, 7, &[]), &dir(0o1777), &node).is_ok(), may, "{uid}");
            assert!(need_unstuck(&caller(uid, 7, &[]), &dir(0o777), &node).is_ok());
        }
    }
    #[test]
    fn set_group_id_is_inherited_and_given_to_members_only() {
        let dir = Node::new(Kind::Directory, 0o2775, (5, 7), Time::default());
        let (member, other) = (caller(6, 1, &[7]), caller(6, 1, &[]));
        assert_eq!(of_new(&other, &dir, Kind::Directory, 0o755), (0o2755, 7));
        assert_eq!(of_new(&other, &dir, Kind::File, 0o644), (0o644, 7));
        assert_eq!(of_new(&other, &dir, Kind::File, 0o2755), (0o755, 7));
        assert_eq!(of_new(&member, &dir, Kind::File, 0o2755), (0o2755, 7));
        let plain = Node { mode: 0o775, ..dir };
        assert_eq!(of_new(&other, &plain, Kind::Directory, 0o755), (0o755, 1));
    }
    #[test]
    fn set_ids_go_with_the_owner() {
        assert_eq!(Keeps::Locks.behind(Kind::File, 0o6755), 0o755);
        assert_eq!(Keeps::Locks.behind(Kind::File, 0o6745), 0o2745);
        assert_eq!(Keeps::Nothing.behind(Kind::File, 0o6745), 0o745);
        assert_eq!(Keeps::All.behind(Kind::File, 0o6755), 0o6755);
        assert_eq!(Keeps::Nothing.behind(Kind::Directory, 0o6755), 0o6755);
    }
}
