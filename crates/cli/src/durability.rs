//! Durability as an argument.

use cenote::Durability;
use clap::ValueEnum;

/// When updates are acknowledged.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DurabilityArg {
    /// When on a persistent tier and in the journal: survives power loss (write-through)
    Sync,
    /// When in the fastest tier: survives the death of any process; survives power loss once drained or flushed (write-back)
    Async,
    /// Never drained: survives the death of processes, not power loss
    Scratch,
    /// Like async, but straight to the lowest persistent tier
    Bypass,
}

impl From<DurabilityArg> for Durability {
    fn from(word: DurabilityArg) -> Self {
        match word {
            DurabilityArg::Sync => Self::Sync,
            DurabilityArg::Async => Self::Async,
            DurabilityArg::Scratch => Self::Scratch,
            DurabilityArg::Bypass => Self::Bypass,
        }
    }
}
