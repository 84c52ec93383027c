//! Self-checks of the state in memory.

use super::Core;

impl Core {
    /// Returns contradictions in memory. Tests call it after every step.
    pub fn audit(&self) -> Vec<String> {
        self.state.audit()
    }
}
