//! When what was written, for rules that go by age.

use super::Core;

impl Core {
    /// The clocks go on.
    pub fn look_at_times(&mut self) {
        let unix_ms = self.seams.clock.unix_ms();
        self.state.times.look(self.state.now.ns, unix_ms, self.state.epoch);
    }
}
