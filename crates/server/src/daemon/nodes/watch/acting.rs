//! What follows from the view, as the watch sees it.

use std::sync::Arc;

use cenote_ha::{Decided, Seen, View};

/// What follows from the view and from decisions; called on the watch thread.
pub(in super::super) trait Acting: Send + Sync {
    /// A view that is newer than the last one.
    fn view(&self, view: &Arc<View>);
    /// What was decided now (each beat), before anything of it is proposed to the register.
    fn act(&self, decided: &[Decided]);
    /// What this node has seen itself since the last call (mirror states of homes it hosts, refused connections, failed
    /// devices).
    fn seen(&self) -> Vec<Seen>;
    /// Until when (microseconds of the clock that goes on while the machine sleeps) this node may act as host: leases come from
    /// answers of the register.
    fn lease(&self, until_us: u64);
}
