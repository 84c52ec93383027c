//! The first view of a cluster: all nodes live, each hosts its own home.

use cenote_ha::{ClusterId, Hello, Home, HomeId, Member, MemberState, View};
use cenote_model::NodeId;

use crate::{Board, Members};

/// Number of the first view, and the term of its homes.
const FIRST: u64 = 1;

/// The first view, made of what all nodes say of themselves. Fails with the nodes that have not said anything yet: who
/// they are is in the view, and only they know.
pub fn first_view(members: &Members, board: &Board) -> Result<View, Vec<NodeId>> {
    let node = |home: cenote_model::HomeId| NodeId(home.0);
    let silent: Vec<NodeId> =
        members.homes().into_iter().map(node).filter(|node| board.hello(*node).is_none()).collect();
    if !silent.is_empty() {
        return Err(silent);
    }
    let (mirrors_wanted, is_shared) = (usize::from(members.protect), members.homes_on.is_some());
    let home = |id: cenote_model::HomeId| Home {
        id: HomeId(id.0),
        host: node(id),
        wanted_host: node(id),
        mirrors: Vec::new(),
        term: FIRST,
        mirrors_wanted,
        moving: None,
        is_shared,
    };
    let said = members.all.iter().filter_map(|it| Some((it, board.hello(node(it.home))?)));
    Ok(View {
        cluster: ClusterId(members.cluster.0),
        number: FIRST,
        survives: if is_shared { members.register_survives() } else { mirrors_wanted },
        members: said.map(|(it, hello)| member(node(it.home), hello)).collect(),
        homes: members.homes().into_iter().map(home).collect(),
    })
}

fn member(id: NodeId, hello: &Hello) -> Member {
    Member {
        id,
        address: hello.address.clone(),
        identity: hello.identity,
        state: MemberState::Live { since_view: FIRST },
        is_leaving: false,
    }
}
