//! The members of the cluster, as the file in this node's directory has them: more may come while the daemon runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use cenote_cluster::Members;
use cenote_model::{Error, ErrorKind, Result};

/// See the module.
pub(super) struct Roster {
    dir: PathBuf,
    members: RwLock<Arc<Members>>,
}

impl Roster {
    /// `members`: those of the file in the directory of a node.
    pub fn new(dir: &Path, members: Members) -> Arc<Self> {
        Arc::new(Self { dir: dir.to_path_buf(), members: RwLock::new(Arc::new(members)) })
    }
    /// The directory of the node.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// The members.
    pub fn get(&self) -> Arc<Members> {
        self.members.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// Reads the file again. Fails, and changes nothing, if it differs in anything but members that were added or have left.
    pub fn reread(&self) -> Result<Arc<Members>> {
        let refuse = |why: &str| {
            Err(Error::new(ErrorKind::InvalidInput, format!("members of a cluster in {}", self.dir.display()))
                .because(why)
                .try_next("copy the file from another node, and set `home` to this one's; or restart the daemon"))
        };
        let Some(new) = Members::read(&self.dir)? else { return refuse("the file is gone") };
        let before = self.get();
        let is_same = |member: &cenote_cluster::Member| {
            new.of(member.home).is_some_and(|now| now.address == member.address && now.name == member.name)
        };
        let rest = Members { all: before.all.clone(), ..new.clone() };
        // One of these may have been given up.
        let keepers = |of: &Members| of.keepers().iter().map(|keeper| keeper.home).collect::<Vec<_>>();
        if rest != (Members { keeping: new.keeping, ..(*before).clone() }) || keepers(&new) != keepers(&before) {
            return refuse("what holds for as long as a daemon runs is another than when this one began");
        }
        if !before.all.iter().all(is_same) {
            return refuse("a member is missing, or has another name or address");
        }
        let new = Arc::new(new);
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use cenote_cluster::{Member, RegisterPlace};
    use cenote_model::{HomeId, StoreId};

    use super::*;

    #[test]
    fn members_come_and_leave_and_nothing_else_changes() {
        let dir = std::env::temp_dir().join(format!("cenote-roster-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let member = |home: u16| Member {
            home: HomeId(home),
            address: SocketAddr::from(([127, 0, 0, 1], 7000 + home)),
            name: format!("n{home}"),
            has_left: false,
        };
        let members = |count: u16| Members {
            cluster: StoreId(7),
            home: HomeId(1),
            protect: 1,
            homes_on: None,
            register: RegisterPlace::Nodes,
            keeping: Some(3),
            encrypt: false,
            all: (1..=count).map(member).collect(),
        };
        let roster = Roster::new(&dir, Members { keeping: None, ..members(4) });
        members(5).write(&dir).unwrap();
        assert_eq!(roster.reread().unwrap().all.len(), 5);
        let mut left = members(5);
        left.all[3].has_left = true;
        left.write(&dir).unwrap();
        assert!(roster.reread().unwrap().of(HomeId(4)).unwrap().has_left);
        let mut renamed = members(5);
        renamed.all[4].name = "another".into();
        let wrong = [
            members(4),
            renamed,
            Members { protect: 2, ..members(5) },
            Members { keeping: Some(5), ..members(5) },
            Members { home: HomeId(2), ..members(5) },
            Members { encrypt: true, ..members(5) },
        ];
        for wrong in wrong {
            wrong.write(&dir).unwrap();
            assert_eq!(roster.reread().unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong:?}");
            assert_eq!(*roster.get(), left);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
