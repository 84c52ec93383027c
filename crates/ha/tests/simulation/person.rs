//! A person who gives a node up, rightly or not: it may only be cut off.

use std::sync::Arc;

use cenote_ha::{Loads, View};
use cenote_model::NodeId;

use crate::cluster::Cluster;

impl Cluster {
    pub fn give_up(&mut self, id: NodeId) {
        let mut next = View::clone(&self.register.view);
        // Somebody has to take the question. Of shared homes nothing is lost with a node, so nothing is to be given up.
        if next.is_shared() || next.is_given_up(id) || next.live().all(|node| node == id) {
            return;
        }
        next.number += 1;
        next.give_up(id, next.number, &Loads::default());
        self.tally.given_up += 1;
        self.tally.lost_homes += next.homes.iter().filter(|home| next.is_lost(home)).count() as u64;
        self.trace(|| format!("a person gives node {} up: view {}", id.0, next.number));
        self.register.view = Arc::new(next);
    }
    /// A person has another node mirror a home, whatever the load is.
    pub fn move_mirror(&mut self, from: NodeId, to: NodeId) {
        let mut next = View::clone(&self.register.view);
        let can = next.stays(to);
        let Some(home) = next.homes.iter_mut().find(|home| home.mirrors.contains(&from) && !home.is_on(to)) else {
            return;
        };
        if !can || home.moving.is_some() {
            return;
        }
        home.moving = Some((from, to));
        let id = home.id;
        next.number += 1;
        self.tally.moves_asked += 1;
        self.trace(|| {
            format!("a person moves a mirror of {id} from node {} to node {}: view {}", from.0, to.0, next.number)
        });
        self.register.view = Arc::new(next);
    }
}
