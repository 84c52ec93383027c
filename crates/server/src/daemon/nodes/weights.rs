//! The weights of users are the same at all homes. Whoever sets one tells all homes that answer. A home that was away, or is new,
//! takes over what others have: nodes tell each other with their beats which version they have, and one that has an earlier
//! one asks for the latest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{Error, ErrorKind, HomeId, Request, Response, Result, UserWeights, WeightsAsk};

use super::super::Daemon;
use super::Nodes;
use super::errands::at;
use crate::Host;

/// Looks at the homes of which this node is host: tells others which version all of them have, and has those follow that have
/// an earlier one than another node.
pub(super) fn look(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>, hosts: Vec<Arc<Host>>) {
    let version = |host: &Arc<Host>| host.service.with_engine(|engine| engine.weights().version).ok();
    let versions: Vec<u64> = hosts.iter().filter_map(version).collect();
    let range = versions.iter().min().zip(versions.iter().max());
    nodes.watch.tell_weights(range.map_or(0, |(earliest, _)| *earliest));
    let Some((&earliest, &latest_here)) = range else { return };
    let from = nodes.watch.home_with_weights_after(latest_here);
    if (from.is_none() && latest_here == earliest) || nodes.errands.weighs().swap(true, Ordering::SeqCst) {
        return;
    }
    let (nodes_too, daemon) = (nodes.clone(), daemon.clone());
    let follow = move || {
        if let Err(error) = take_over(&nodes_too, &daemon, &hosts, from) {
            tracing::debug!(%error, "the weights of users are taken over later");
        }
        nodes_too.errands.weighs().store(false, Ordering::SeqCst);
    };
    if std::thread::Builder::new().name("cenote-weights".into()).spawn(follow).is_err() {
        nodes.errands.weighs().store(false, Ordering::SeqCst);
    }
}

/// Takes over the weights of a home on another node, or else the latest ones that are here.
fn take_over(nodes: &Nodes, daemon: &Daemon, hosts: &[Arc<Host>], from: Option<HomeId>) -> Result<()> {
    let latest = if let Some(home) = from {
        weights_in(nodes.errands.ask(&*nodes.gateway(home)?, Request::Weights { ask: WeightsAsk::Show })?)?
    } else {
        let all = hosts.iter().filter_map(|host| host.service.with_engine(|engine| engine.weights().clone()).ok());
        all.max_by_key(|weights| weights.version).unwrap_or_default()
    };
    for host in hosts {
        let follow = WeightsAsk::Follow(latest.clone());
        let now = weights_in(at(daemon, host, |engine| engine.weigh(follow))?)?;
        if now.version == latest.version {
            tracing::info!(home = %host.summary.home, version = now.version, "it has the weights of users of all homes");
        }
    }
    Ok(())
}

fn weights_in(response: Response) -> Result<UserWeights> {
    match response {
        Response::Weights(weights) => Ok(weights),
        _ => Err(Error::new(ErrorKind::Internal, "the weights of users").because("another answer came")),
    }
}
