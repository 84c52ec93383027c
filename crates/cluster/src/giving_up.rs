//! A node is given up, as a person asks who knows that it is gone for good: whether that may be.

use cenote_ha::{Fate, Loads, View};
use cenote_model::{Error, ErrorKind, NodeId, Result};

use crate::Members;
use crate::change::named;

/// Gives a node up in the next view. `silence`: for how long the register has not heard it, and whether that is long enough.
///
/// Refused is what need not be, or would leave no cluster: nothing else that is lost is a reason, since a person was told of it.
pub(crate) fn give_up(
    next: &mut View,
    members: &Members,
    node: NodeId,
    silence: Option<(u64, bool)>,
    loads: &Loads,
) -> Result<()> {
    let refuse =
        |kind, why: String, next: &str| Err(Error::new(kind, named(members, node)).because(why).try_next(next));
    let Some(member) = next.member(node) else {
        let why = "it does not take part in the cluster, or has left".into();
        return refuse(ErrorKind::NotFound, why, "`cenote cluster status` shows all nodes");
    };
    if member.is_given_up() {
        return Ok(());
    }
    if node.0 == members.home.0 {
        let why = "its own daemon is asked, so it is not gone".into();
        return refuse(ErrorKind::InvalidInput, why, "`cenote cluster leave` moves what it has to others");
    }
    if next.homes.iter().any(|home| home.is_shared) {
        let why =
            "the homes of this cluster lie in a pool, so that nothing waits for it and nothing has to be given up"
                .into();
        return refuse(ErrorKind::Unsupported, why, "leave it as it is: another node has its home until it is back");
    }
    match silence {
        Some((_, true)) => {}
        Some((us, false)) => {
            let why = format!("it lives: the register heard it {:.1} s ago", us as f64 / 1e6);
            let next =
                "`cenote cluster leave` moves what it has to others; if it is gone for good, try again in some seconds";
            return refuse(ErrorKind::Busy, why, next);
        }
        None => {
            let why = "whether it lives is not known yet".into();
            return refuse(ErrorKind::Busy, why, "try again in some seconds");
        }
    }
    let first = next.homes.iter().map(|home| home.id).min();
    if next.fates(node).iter().any(|(home, fate)| Some(*home) == first && *fate == Fate::Lost) {
        let why = "it has the only copy of the first home, which has the names of all containers";
        return refuse(
            ErrorKind::Unsupported,
            why.into(),
            "bring the node back; without it the cluster cannot go on: `cenote cluster destroy`",
        );
    }
    next.give_up(node, next.number, loads);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use cenote_ha::{ClusterId, Home, HomeId, Identity, Member, MemberState};
    use cenote_model::{ClusterChange, StoreId};

    use super::*;
    use crate::{Heard, RegisterPlace, changed};

    const SILENT: Option<(u64, bool)> = Some((60_000_000, true));

    /// Four nodes, seen from n1.
    fn members() -> Members {
        let member = |home: u16| crate::Member {
            home: cenote_model::HomeId(home),
            address: SocketAddr::from(([127, 0, 0, 1], 7000 + home)),
            name: format!("n{home}"),
            has_left: false,
        };
        Members {
            cluster: StoreId(7),
            home: cenote_model::HomeId(1),
            protect: 1,
            homes_on: None,
            register: RegisterPlace::First,
            keeping: None,
            encrypt: false,
            all: (1..=5).map(member).collect(),
        }
    }

    /// Each home has these mirrors.
    fn view(mirrors: [&[u16]; 4]) -> View {
        let state = MemberState::Live { since_view: 1 };
        let member = |id: u16| Member {
            id: NodeId(id),
            address: format!("h{id}:1"),
            identity: Identity(id.into()),
            state,
            is_leaving: false,
        };
        let home = |(id, mirrors): (u16, &&[u16])| Home {
            id: HomeId(id),
            host: NodeId(id),
            wanted_host: NodeId(id),
            mirrors: mirrors.iter().copied().map(NodeId).collect(),
            term: 1,
            mirrors_wanted: 1,
            moving: None,
            is_shared: false,
        };
        View {
            cluster: ClusterId(7),
            number: 4,
            survives: 1,
            members: (1..=4).map(member).collect(),
            homes: (1..).zip(&mirrors).map(home).collect(),
        }
    }

    fn give_up(view: &View, node: u16, silence: Option<(u64, bool)>) -> Result<Option<View>> {
        let change = ClusterChange::GiveUp { node: NodeId(node), dry_run: false };
        changed(view, &members(), change, Heard { silence, ..Heard::default() })
    }

    fn lost(view: &View) -> Vec<u16> {
        view.homes.iter().filter(|home| view.is_lost(home)).map(|home| home.id.0).collect()
    }

    #[test]
    fn a_home_without_another_copy_is_lost_and_others_go_on() {
        let bare = view([&[], &[], &[], &[]]);
        let next = give_up(&bare, 3, SILENT).unwrap().unwrap();
        assert_eq!((next.number, lost(&next)), (5, vec![3]));
        assert_eq!(next.member(NodeId(3)).unwrap().state, MemberState::GivenUp { since_view: 5 });
        assert_eq!(next.owed().count(), 0);
        let home = next.home(HomeId(3)).unwrap();
        assert_eq!((home.host, home.wanted_host), (NodeId(3), NodeId(3)), "nobody asks for it");
        // Once more changes nothing, though it were heard again.
        assert_eq!(give_up(&next, 3, Some((0, false))), Ok(None));
        assert_eq!(lost(&give_up(&next, 2, SILENT).unwrap().unwrap()), [2, 3]);
    }

    #[test]
    fn a_home_with_a_mirror_goes_on_there() {
        let ring = view([&[2], &[3], &[4], &[1]]);
        let next = give_up(&ring, 3, SILENT).unwrap().unwrap();
        assert_eq!(lost(&next), [0; 0]);
        let home = next.home(HomeId(3)).unwrap();
        // The mirror takes over as from any host that takes no part: the term, and the lease, are not this change's.
        assert_eq!((home.host, home.wanted_host, home.term), (NodeId(3), NodeId(4), 1));
        assert_eq!(next.home(HomeId(2)).unwrap().mirrors, [], "its host goes on without");
        // One that another node had already stays there.
        let mut moved = ring.clone();
        moved.homes[2].host = NodeId(4);
        moved.homes[2].mirrors = vec![NodeId(2)];
        moved.members[2].state = MemberState::Excluded { is_owed: true, since_view: 2 };
        let next = give_up(&moved, 3, SILENT).unwrap().unwrap();
        let home = next.home(HomeId(3)).unwrap();
        assert_eq!((home.host, home.wanted_host, home.mirrors.len()), (NodeId(4), NodeId(4), 1));
    }

    #[test]
    fn a_home_is_lost_with_the_last_of_its_copies_in_whatever_order() {
        let ring = view([&[2], &[3], &[4], &[1]]);
        for (first, second) in [(3, 4), (4, 3)] {
            let next = give_up(&ring, first, SILENT).unwrap().unwrap();
            assert_eq!(lost(&next), [0; 0], "{first}: the other copy may come back");
            let next = give_up(&next, second, SILENT).unwrap().unwrap();
            assert_eq!(lost(&next), [3], "{first}, {second}");
            assert!(next.homes.iter().all(|home| home.wanted_host.0 < 3 || home.id.0 == 3), "{next:#?}");
        }
    }

    #[test]
    fn what_need_not_be_or_would_leave_no_cluster_is_refused() {
        let bare = view([&[], &[], &[], &[]]);
        let kind = |view: &View, node, silence| give_up(view, node, silence).unwrap_err().kind();
        assert_eq!(kind(&bare, 3, Some((100_000, false))), ErrorKind::Busy, "it lives");
        assert_eq!(kind(&bare, 3, None), ErrorKind::Busy, "not known yet");
        assert_eq!(kind(&bare, 9, SILENT), ErrorKind::NotFound);
        assert_eq!(kind(&bare, 5, SILENT), ErrorKind::NotFound, "it never took part");
        assert_eq!(kind(&bare, 1, SILENT), ErrorKind::InvalidInput, "it was asked");
        // The names of all containers.
        let mut moved = bare.clone();
        moved.homes[0].host = NodeId(2);
        let error = give_up(&moved, 2, SILENT).unwrap_err();
        assert!(error.to_string().contains("names of all containers"), "{error}");
        moved.homes[0].mirrors = vec![NodeId(3)];
        assert_eq!(lost(&give_up(&moved, 2, SILENT).unwrap().unwrap()), [2]);
        let mut pooled = bare;
        pooled.homes.iter_mut().for_each(|home| home.is_shared = true);
        assert_eq!(kind(&pooled, 3, SILENT), ErrorKind::Unsupported);
    }

    #[test]
    fn a_node_that_was_given_up_and_its_homes_stay_so() {
        let next = give_up(&view([&[], &[], &[], &[]]), 3, SILENT).unwrap().unwrap();
        let node = NodeId(3);
        for change in [ClusterChange::Join { node }, ClusterChange::Leave { node }] {
            let error = changed(&next, &members(), change, Heard::default()).unwrap_err();
            assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("given up"), "{error}");
        }
        let home = cenote_model::HomeId(3);
        let to = |node| ClusterChange::MoveHome { home, to: NodeId(node) };
        let error = changed(&next, &members(), to(2), Heard::default()).unwrap_err();
        assert!(error.to_string().contains("lost with node `n3`"), "{error}");
    }
}
