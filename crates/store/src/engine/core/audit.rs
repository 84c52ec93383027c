//! What contradicts itself in memory.

use super::Core;

impl Core {
    /// What contradicts itself in memory: for tests, which ask after every step.
    pub fn audit(&self) -> Vec<String> {
        self.state.audit()
    }
}
