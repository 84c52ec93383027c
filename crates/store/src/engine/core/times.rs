//! The table of epochs and times, for rules by age.

use super::Core;

impl Core {
    /// Updates the table from the clocks.
    pub fn look_at_times(&mut self) {
        let unix_ms = self.seams.clock.unix_ms();
        self.state.times.look(self.state.now.ns, unix_ms, self.state.epoch);
    }
}
