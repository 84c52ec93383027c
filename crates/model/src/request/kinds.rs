//! Which kinds of requests change something, and as what each is timed.

use super::Request;
use crate::{Timed, WeightsAsk};

impl Request {
    /// The kind of latency that it counts as.
    #[must_use]
    pub fn timed(&self) -> Timed {
        match self {
            Self::Apply { .. } | Self::Prepare { .. } | Self::Decide { .. } | Self::Settle { .. } => Timed::Apply,
            Self::Lease { .. } | Self::Unlease { .. } => Timed::Lease,
            // These wait for a job, as a flush does.
            Self::Read { .. }
            | Self::Deposit { .. }
            | Self::Flush { .. }
            | Self::Verify { .. }
            | Self::DeviceDrain { .. }
            | Self::Checkpoint => Timed::Flush,
            _ => Timed::Ask,
        }
    }
    /// Returns true if it needs the right to write.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(
            self,
            Self::Apply { .. }
                | Self::Prepare { .. }
                | Self::Decide { .. }
                | Self::Settle { .. }
                | Self::Ask { .. }
                | Self::Forget { .. }
                | Self::Lease { .. }
                | Self::Unlease { .. }
                | Self::Deposit { .. }
                | Self::DeviceAdd { .. }
                | Self::DeviceDrain { .. }
                | Self::DeviceRemove { .. }
                | Self::Profile { measure_ms: 1.., .. }
                | Self::Arrange { dry_run: false, .. }
                | Self::HabitLearned { .. }
                | Self::PolicySet { dry_run: false, .. }
                | Self::Weights { ask: WeightsAsk::Set(_) | WeightsAsk::Follow(_) }
                | Self::Checkpoint
                | Self::Shutdown { .. }
                | Self::ChangeCluster { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrange, ArrangeTarget, ContainerId, FlushTarget};

    #[test]
    fn what_only_looks_is_for_readers_too() {
        let container = ContainerId(1);
        let arrange = |dry_run| Request::Arrange {
            target: Box::new(ArrangeTarget::Container(container)),
            what: Arrange::Evict,
            dry_run,
        };
        let profile = |measure_ms| Request::Profile { name: "disk".into(), measure_ms };
        let set = |dry_run| Request::PolicySet { text: None, dry_run };
        assert!(
            [arrange(false), profile(1), set(false), Request::Shutdown { cluster: false }, Request::Checkpoint]
                .iter()
                .all(Request::changes)
        );
        let looking =
            [arrange(true), profile(0), set(true), Request::Stats, Request::Verify { target: FlushTarget::Store }];
        assert!(!looking.iter().any(Request::changes));
    }

    #[test]
    fn what_waits_for_a_job_is_not_timed_with_what_is_answered_at_once() {
        let lease = Request::Unlease { runs: Vec::new() };
        let apply = Request::Apply { checks: Vec::new(), updates: Vec::new(), atomic: true };
        let timed = [Request::Checkpoint, Request::Stats, lease, apply].map(|request| request.timed());
        assert_eq!(timed, [Timed::Flush, Timed::Ask, Timed::Lease, Timed::Apply]);
    }
}
