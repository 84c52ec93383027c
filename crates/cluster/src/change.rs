//! Changes of the view that a person asks for: nodes that join and leave, homes that move. Pure: what follows from them
//! is for `ha` and for the nodes themselves.

use cenote_ha::{Hello, Home, HomeId, Loads, Member, MemberState, View};
use cenote_model::{ClusterChange, Error, ErrorKind, NodeId, Result};

use crate::Members;
use crate::giving_up::give_up;

/// What was heard of the node that is to join, or to be given up.
#[derive(Clone, Default, Debug)]
pub struct Heard<'a> {
    /// What it says of itself.
    pub hello: Option<&'a Hello>,
    /// For how long the register has not heard it, and whether that is long enough for a node that is gone.
    pub silence: Option<(u64, bool)>,
    /// How loaded all nodes are.
    pub loads: Loads,
}

/// The view after a change; `None` if it is so already.
///
/// Fails with `Unsupported` or `InvalidInput` if the change is never possible, with `Busy` if it may be later.
#[allow(clippy::needless_pass_by_value, reason = "what was heard is gathered for this question alone")]
pub fn changed(view: &View, members: &Members, change: ClusterChange, heard: Heard<'_>) -> Result<Option<View>> {
    let mut next = View { number: view.number + 1, ..view.clone() };
    match change {
        ClusterChange::Reread => return Ok(None),
        ClusterChange::Join { node } => join(&mut next, members, node, heard.hello)?,
        ClusterChange::Leave { node } => leave(&mut next, members, node, &heard.loads)?,
        ClusterChange::Forget { node } => forget(&mut next, members, node)?,
        ClusterChange::GiveUp { node, .. } => give_up(&mut next, members, node, heard.silence, &heard.loads)?,
        ClusterChange::MoveHome { home, to } => move_home(&mut next, members, HomeId(home.0), to)?,
        ClusterChange::MoveMirror { home, from, to } => move_mirror(&mut next, members, HomeId(home.0), (from, to))?,
    }
    next.drop_old_moves();
    let is_new = next.members != view.members || next.homes != view.homes;
    Ok(is_new.then_some(next))
}

pub(crate) fn named(members: &Members, node: NodeId) -> String {
    let member = members.of(cenote_model::HomeId(node.0));
    member.map_or_else(|| format!("node {}", node.0), |member| format!("node `{}`", member.name))
}

fn join(view: &mut View, members: &Members, node: NodeId, hello: Option<&Hello>) -> Result<()> {
    if view.is_given_up(node) {
        return Err(gone_for_good(members, node).try_next(
            "destroy its directory (`cenote destroy`), and have it join anew under another number: `cenote cluster give-up` \
             again, then `cenote cluster join`",
        ));
    }
    if let Some(member) = view.members.iter_mut().find(|member| member.id == node) {
        if std::mem::take(&mut member.is_leaving) {
            // Its own home comes back, whoever has it by now.
            view.homes.iter_mut().filter(|home| home.id.0 == node.0).for_each(|home| home.wanted_host = node);
        }
        return Ok(());
    }
    let hello = hello.filter(|hello| hello.cluster == view.cluster).ok_or_else(|| {
        Error::new(ErrorKind::Busy, named(members, node))
            .because("it has not said yet who it is")
            .try_next("see the log of its daemon, and `cenote ha` there")
    })?;
    let state = MemberState::Live { since_view: view.number };
    let address = hello.address.clone();
    view.members.push(Member { id: node, address, identity: hello.identity, state, is_leaving: false });
    view.members.sort_by_key(|member| member.id);
    let id = HomeId(node.0);
    if view.home(id).is_none() {
        view.homes.push(Home {
            id,
            host: node,
            wanted_host: node,
            mirrors: Vec::new(),
            term: 1,
            mirrors_wanted: usize::from(members.protect),
            moving: None,
            is_shared: members.homes_on.is_some(),
        });
        view.homes.sort_by_key(|home| home.id);
    }
    Ok(())
}

fn leave(view: &mut View, members: &Members, node: NodeId, loads: &Loads) -> Result<()> {
    let refuse = |why: String, next: &str| {
        Err(Error::new(ErrorKind::Unsupported, named(members, node)).because(why).try_next(next))
    };
    let Some(member) = view.member(node) else { return Ok(()) };
    if member.is_given_up() {
        return Err(
            gone_for_good(members, node).try_next("there is nothing left to move: `cenote cluster give-up` again")
        );
    }
    if members.keepers().iter().any(|keeper| keeper.home.0 == node.0) {
        return refuse(
            "it keeps the register of the view, which cannot be moved to another node".into(),
            "let another node leave; `cenote cluster status` shows which nodes keep the register",
        );
    }
    if view.homes.iter().any(|home| home.is_shared) {
        return refuse(
            "the homes of this cluster lie in a pool, and a node cannot give its own away for good yet".into(),
            "stop its daemon: another node has its home until it is started again",
        );
    }
    let stay = view.live().filter(|other| *other != node && view.stays(*other)).count();
    if stay <= view.survives {
        return refuse(
            format!("{stay} nodes would stay, and the loss of {} is to be survived", view.survives),
            "let another node join before: `cenote cluster join`",
        );
    }
    let has_homes = view.homes.iter().any(|home| home.host == node);
    if has_homes && !member.is_live() {
        return Err(Error::new(ErrorKind::Busy, named(members, node))
            .because("it does not take part now, and it alone has some homes")
            .try_next("start its daemon, and wait until `cenote ha` says that it takes part"));
    }
    if has_homes && view.survives == 0 {
        return refuse(
            "homes move as mirrors do, and this cluster has none".into(),
            "export what it has (`cenote cp`), or make a cluster with `cenote cluster start --protect 1`",
        );
    }
    view.members.iter_mut().filter(|member| member.id == node).for_each(|member| member.is_leaving = true);
    for at in 0..view.homes.len() {
        if view.homes[at].wanted_host == node
            && let Some(to) = view.heir(&view.homes[at], loads)
        {
            view.homes[at].wanted_host = to;
        }
    }
    Ok(())
}

/// The error for a node that was given up.
#[cold]
fn gone_for_good(members: &Members, node: NodeId) -> Error {
    Error::new(ErrorKind::Unsupported, named(members, node))
        .because("it was given up, and the cluster goes on without it")
}

fn forget(view: &mut View, members: &Members, node: NodeId) -> Result<()> {
    let Some(member) = view.member(node) else { return Ok(()) };
    let busy = |why: String| {
        Err(Error::new(ErrorKind::Busy, named(members, node)).because(why).try_next("`cenote ha` shows what is copied"))
    };
    if !member.is_leaving {
        return busy("nobody asked it to leave".into());
    }
    if matches!(member.state, MemberState::Excluded { is_owed: true, .. }) {
        return busy("what it had is not made good yet".into());
    }
    let list = |is: &dyn Fn(&Home) -> bool| {
        let homes = view.homes.iter().filter(|home| is(home)).map(|home| format!("n{}", home.id.0));
        homes.collect::<Vec<_>>().join(", ")
    };
    let hosted = list(&|home| home.host == node || home.wanted_host == node);
    if !hosted.is_empty() {
        return busy(format!("it still has the home {hosted}"));
    }
    let mirrored = list(&|home| home.mirrors.contains(&node));
    if !mirrored.is_empty() {
        return busy(format!("it still mirrors the home {mirrored}"));
    }
    view.members.retain(|member| member.id != node);
    Ok(())
}

fn move_home(view: &mut View, members: &Members, id: HomeId, to: NodeId) -> Result<()> {
    let subject = || format!("home n{}", id.0);
    let refuse = |kind, why: String, next: &str| Err(Error::new(kind, subject()).because(why).try_next(next));
    let Some(at) = view.homes.iter().position(|home| home.id == id) else {
        return refuse(ErrorKind::NotFound, "there is no such home".into(), "`cenote ha` lists all");
    };
    if view.is_lost(&view.homes[at]) {
        let why = format!("it was lost with {}, which was given up", named(members, view.homes[at].host));
        return refuse(ErrorKind::NotFound, why, "`cenote ha` lists those that are left");
    }
    if !view.stays(to) {
        let why = format!("{} does not take part, or is to leave", named(members, to));
        return refuse(ErrorKind::Busy, why, "`cenote ha` shows who takes part");
    }
    let own = NodeId(id.0);
    if to != own && view.stays(own) {
        let why = format!("programs on {} work with it as their own", named(members, own));
        return refuse(ErrorKind::Unsupported, why, "a home moves away when its node leaves: `cenote cluster leave`");
    }
    if view.survives == 0 && !view.homes[at].is_shared && view.homes[at].host != to {
        let why = "homes move as mirrors do, and this cluster has none".into();
        return refuse(ErrorKind::Unsupported, why, "make a cluster with `cenote cluster start --protect 1`");
    }
    view.homes[at].wanted_host = to;
    Ok(())
}

fn move_mirror(view: &mut View, members: &Members, id: HomeId, (from, to): (NodeId, NodeId)) -> Result<()> {
    let subject = || format!("home n{}", id.0);
    let refuse = |kind, why: String, next: &str| Err(Error::new(kind, subject()).because(why).try_next(next));
    let Some(at) = view.homes.iter().position(|home| home.id == id) else {
        return refuse(ErrorKind::NotFound, "there is no such home".into(), "`cenote ha` lists all");
    };
    let home = &view.homes[at];
    if home.mirrors.contains(&to) && !home.mirrors.contains(&from) {
        return Ok(()); // it is so
    }
    if !home.mirrors.contains(&from) || home.is_on(to) {
        let why = format!("{} does not mirror it, or {} has a copy of it", named(members, from), named(members, to));
        return refuse(ErrorKind::Conflict, why, "`cenote home list` shows where its mirrors are");
    }
    if !view.stays(to) {
        let why = format!("{} does not take part, or is to leave", named(members, to));
        return refuse(ErrorKind::Busy, why, "`cenote ha` shows who takes part");
    }
    view.homes[at].moving = Some((from, to));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use cenote_ha::{ClusterId, Identity};
    use cenote_model::StoreId;

    use super::*;
    use crate::RegisterPlace;

    const NODES: u16 = 5;

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
            register: RegisterPlace::Nodes,
            keeping: Some(3),
            encrypt: false,
            all: (1..=NODES + 1).map(member).collect(),
        }
    }

    fn view() -> View {
        let state = MemberState::Live { since_view: 1 };
        let member = |id: u16| Member {
            id: NodeId(id),
            address: format!("h{id}:1"),
            identity: Identity(id.into()),
            state,
            is_leaving: false,
        };
        let home = |id: u16| Home {
            id: HomeId(id),
            host: NodeId(id),
            wanted_host: NodeId(id),
            mirrors: vec![NodeId(id % NODES + 1)],
            term: 1,
            mirrors_wanted: 1,
            moving: None,
            is_shared: false,
        };
        View {
            cluster: ClusterId(7),
            number: 4,
            survives: 1,
            members: (1..=NODES).map(member).collect(),
            homes: (1..=NODES).map(home).collect(),
        }
    }

    fn hello(node: u16) -> Hello {
        Hello {
            cluster: ClusterId(7),
            identity: Identity(node.into()),
            address: format!("h{node}:1"),
            left_in_view: 0,
            holds_view: 4,
            devices: Vec::new(),
            lost_devices: Vec::new(),
        }
    }

    fn said(hello: &Hello) -> Heard<'_> {
        Heard { hello: Some(hello), ..Heard::default() }
    }

    fn kind(view: &View, change: ClusterChange) -> ErrorKind {
        changed(view, &members(), change, Heard::default()).unwrap_err().kind()
    }

    #[test]
    fn homes_in_a_pool_have_no_mirrors_and_their_nodes_do_not_leave() {
        let homes_on = Some(cenote_device::rados_dir::Address::parse("rados:meta/run").unwrap());
        let members = Members { protect: 0, homes_on, ..members() };
        let mut pooled = View { survives: 1, ..view() };
        for home in &mut pooled.homes {
            (home.is_shared, home.mirrors, home.mirrors_wanted) = (true, Vec::new(), 0);
        }
        let join = ClusterChange::Join { node: NodeId(6) };
        let next = changed(&pooled, &members, join, said(&hello(6))).unwrap().unwrap();
        let home = next.home(HomeId(6)).unwrap();
        assert!(home.is_shared && home.mirrors_wanted == 0 && next.is_shared(), "{home:?}");
        let leave = ClusterChange::Leave { node: NodeId(5) };
        let error = changed(&pooled, &members, leave, Heard::default()).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("in a pool"), "{error}");
        // The home of a node that is away goes back to it, as a person may ask, too.
        pooled.homes[4].host = NodeId(1);
        pooled.homes[4].wanted_host = NodeId(1);
        let back = ClusterChange::MoveHome { home: cenote_model::HomeId(5), to: NodeId(5) };
        let next = changed(&pooled, &members, back, Heard::default()).unwrap().unwrap();
        assert_eq!(next.home(HomeId(5)).unwrap().wanted_host, NodeId(5));
    }

    #[test]
    fn a_node_joins_once_it_has_said_who_it_is() {
        let join = ClusterChange::Join { node: NodeId(6) };
        assert_eq!(kind(&view(), join), ErrorKind::Busy);
        let stranger = Hello { cluster: ClusterId(8), ..hello(6) };
        assert!(changed(&view(), &members(), join, said(&stranger)).is_err());
        let next = changed(&view(), &members(), join, said(&hello(6))).unwrap().unwrap();
        assert_eq!((next.number, next.members.len(), next.homes.len()), (5, 6, 6));
        let home = next.home(HomeId(6)).unwrap();
        assert_eq!((home.host, home.mirrors_wanted, home.mirrors.len()), (NodeId(6), 1, 0));
        assert_eq!(next.member(NodeId(6)).unwrap().state, MemberState::Live { since_view: 5 });
        assert_eq!(changed(&next, &members(), join, Heard::default()), Ok(None), "it takes part already");
    }

    #[test]
    fn a_node_leaves_when_it_has_nothing_any_more() {
        let (leave, forget) = (ClusterChange::Leave { node: NodeId(4) }, ClusterChange::Forget { node: NodeId(4) });
        assert_eq!(kind(&view(), forget), ErrorKind::Busy, "nobody asked it to");
        let mut next = changed(&view(), &members(), leave, Heard::default()).unwrap().unwrap();
        assert!(!next.stays(NodeId(4)) && next.is_live(NodeId(4)));
        let to = next.home(HomeId(4)).unwrap().wanted_host;
        assert_eq!(to, NodeId(5), "its mirror");
        assert_eq!(changed(&next, &members(), leave, Heard::default()), Ok(None));
        assert_eq!(kind(&next, forget), ErrorKind::Busy, "it is host");
        next.homes.iter_mut().filter(|home| home.id == HomeId(4)).for_each(|home| home.host = to);
        assert_eq!(kind(&next, forget), ErrorKind::Busy, "it mirrors another home");
        next.homes.iter_mut().for_each(|home| home.mirrors.retain(|mirror| *mirror != NodeId(4)));
        let gone = changed(&next, &members(), forget, Heard::default()).unwrap().unwrap();
        assert!(gone.member(NodeId(4)).is_none() && gone.home(HomeId(4)).is_some());
        assert_eq!(changed(&gone, &members(), forget, Heard::default()), Ok(None));
        assert_eq!(changed(&gone, &members(), leave, Heard::default()), Ok(None));
        // One that thinks better of it gets its home back.
        let join = ClusterChange::Join { node: NodeId(4) };
        let stays = changed(&next, &members(), join, Heard::default()).unwrap().unwrap();
        assert!(stays.stays(NodeId(4)) && stays.home(HomeId(4)).unwrap().wanted_host == NodeId(4));
    }

    #[test]
    fn what_would_lose_data_or_the_register_is_refused() {
        let leave = |node| ClusterChange::Leave { node: NodeId(node) };
        assert_eq!(kind(&view(), leave(2)), ErrorKind::Unsupported, "it keeps the register");
        let mut few = view();
        few.members.truncate(4);
        few.members[0].is_leaving = true;
        few.members[1].state = MemberState::Excluded { is_owed: false, since_view: 2 };
        assert_eq!(kind(&few, leave(4)), ErrorKind::Unsupported, "one would stay");
        let bare = View { survives: 0, ..view() };
        assert_eq!(kind(&bare, leave(4)), ErrorKind::Unsupported);
        let mut dead = view();
        dead.members[3].state = MemberState::Excluded { is_owed: true, since_view: 2 };
        assert_eq!(kind(&dead, leave(4)), ErrorKind::Busy, "it alone has its home");
        dead.homes[3].host = NodeId(5);
        let next = changed(&dead, &members(), leave(4), Heard::default()).unwrap().unwrap();
        assert_eq!(next.homes[3].wanted_host, NodeId(5), "the home stays where it is");
        assert_eq!(kind(&next, ClusterChange::Forget { node: NodeId(4) }), ErrorKind::Busy, "it is owed");
    }

    #[test]
    fn a_home_moves_when_its_own_node_is_gone_or_gets_it_back() {
        let to = |home, node| ClusterChange::MoveHome { home: cenote_model::HomeId(home), to: NodeId(node) };
        assert_eq!(kind(&view(), to(4, 1)), ErrorKind::Unsupported, "programs of n4 use it");
        assert_eq!(kind(&view(), to(9, 1)), ErrorKind::NotFound);
        assert_eq!(kind(&view(), to(4, 9)), ErrorKind::Busy);
        let mut gone = view();
        gone.members.remove(3);
        gone.homes[3].host = NodeId(5);
        let next = changed(&gone, &members(), to(4, 1), Heard::default()).unwrap().unwrap();
        assert_eq!((next.homes[3].wanted_host, next.homes[3].host), (NodeId(1), NodeId(5)));
        assert_eq!(changed(&next, &members(), to(4, 1), Heard::default()), Ok(None));
    }

    #[test]
    fn a_mirror_moves_to_a_node_that_has_no_copy_and_stays() {
        let view = view();
        let (home, node) = (cenote_model::HomeId(1), NodeId);
        let moved = |view: &View, from: u16, to: u16| {
            let change = ClusterChange::MoveMirror { home, from: node(from), to: node(to) };
            changed(view, &members(), change, Heard::default())
        };
        let next = moved(&view, 2, 4).unwrap().unwrap();
        assert_eq!(next.home(HomeId(1)).unwrap().moving, Some((node(2), node(4))));
        assert_eq!(next.home(HomeId(1)).unwrap().mirrors, [node(2)], "it stays until the other one has everything");
        assert_eq!(moved(&next, 2, 4), Ok(None), "asked for twice");
        assert_eq!(moved(&next, 2, 5).unwrap().unwrap().home(HomeId(1)).unwrap().moving, Some((node(2), node(5))));
        let mut there = view.clone();
        there.homes[0].mirrors = vec![node(4)];
        assert_eq!(moved(&there, 2, 4), Ok(None), "it is there");
        for (from, to, kind) in [(3, 4, ErrorKind::Conflict), (2, 1, ErrorKind::Conflict), (2, 9, ErrorKind::Busy)] {
            assert_eq!(moved(&view, from, to).unwrap_err().kind(), kind, "{from} {to}");
        }
        // Who leaves gets nothing.
        let change = ClusterChange::Leave { node: node(4) };
        let next = changed(&next, &members(), change, Heard::default()).unwrap().unwrap();
        assert_eq!(next.home(HomeId(1)).unwrap().moving, None);
    }
}
