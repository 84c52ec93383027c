//! Whether what lies in a node's directory is a part of the cluster, and what only such a part may suffer: its end, and its
//! deletion. A directory can hold a store of its own, or one of another cluster.

use std::path::Path;

use cenote::{Error, ErrorKind, HomeId, Result, Store, StoreId};
use cenote_cluster::{KEY_FILE, MEMBERS_FILE, Members};
use cenote_device::LOCK_FILE;

use super::nodes::{Node, Nodes};
use crate::failure::Done;

/// Returns true if the directory of a node holds a store that is this home of the cluster; false if it holds none. Fails if it
/// holds another one.
pub(super) fn is_made(dir: &Path, cluster: StoreId, home: HomeId) -> Result<bool> {
    let Some(found) = cenote_server::home_number(dir)? else { return Ok(false) };
    let what = match Members::read(dir)? {
        Some(members) if members.cluster != cluster => format!("a node of another cluster, {}", members.cluster),
        // One whose beginning was interrupted has no members yet.
        _ if found == home => return Ok(true),
        _ if found == HomeId(0) => "a store by itself".into(),
        _ => format!("home {found}, not {home}"),
    };
    Err(Error::new(ErrorKind::Exists, format!("store in {}", dir.display()))
        .because(format!("it is {what}, and no part of this cluster"))
        .try_next("choose another directory for the cluster, or move the store away"))
}

/// Stops the daemon of a node on this host, with all others, if it has one; of another cluster than this one never.
pub(super) fn stop_node(dir: &Path, cluster: Option<&str>) -> Done {
    let cluster = cluster.map(str::parse::<StoreId>).transpose()?;
    let is_of_it = |members: Members| cluster.is_none_or(|cluster| members.cluster == cluster);
    if dir.exists() && Members::read(dir)?.is_some_and(is_of_it) {
        Store::stop_node(dir)?;
    }
    Ok(())
}

/// Deletes a node on this host, or what there is of one that was not made to the end.
pub(super) fn destroy_node(dir: &Path, cluster: &str, home: u16) -> Done {
    let cluster: StoreId = cluster.parse()?;
    if is_made(dir, cluster, HomeId(home))? {
        return Ok(Store::destroy(dir, false).map(drop)?);
    }
    if dir.exists() && Members::read(dir)?.is_none_or(|members| members.cluster == cluster) {
        for file in [LOCK_FILE, MEMBERS_FILE, KEY_FILE] {
            let _ = std::fs::remove_file(dir.join(file)); // what stays keeps the directory
        }
        let _ = std::fs::remove_dir(dir);
    }
    Ok(())
}

/// Deletes a node, on its host.
pub(super) fn destroy(dir: &Path, nodes: &Nodes, (home, node): (HomeId, &Node)) -> Result<String> {
    let (place, home) = (dir.join(&node.name), home.0.to_string());
    let words = ["cluster".as_ref(), "destroy-node".as_ref(), place.as_os_str(), nodes.cluster.as_ref(), home.as_ref()];
    nodes.run(node, &words, &[])
}
