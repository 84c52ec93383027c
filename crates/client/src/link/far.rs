//! Leased memory of another node, which this process cannot map: the bytes for it travel with the updates that use it
//! ([`cenote_model::Update::Fill`]), so that a write there waits for no answer either.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_model::{ContainerId, DeviceId, DeviceKind, Durability, ErrorKind, Request, Response, Result, Run};

use super::space::Space;
use crate::labels::plain;
use crate::sync::lock;

/// First lease; each further one doubles…
const LEASE_BYTES_FIRST: u64 = 1 << 20;
/// …up to this.
const LEASE_BYTES_MAX: u64 = 8 << 20;
/// Shortest run of a lease.
const RUN_BYTES: u64 = 64 << 10;
/// For this long after placement gave no memory, nothing is asked for: the home carries the bytes itself then.
const REST: Duration = Duration::from_secs(1);

/// The answer to a request for a lease, once it is there.
type Coming = Arc<Mutex<Option<Response>>>;

/// The runs of one class.
#[derive(Default)]
pub(super) struct FarRuns {
    runs: Vec<Run>,
    unit: u64,
    lease_bytes: u64,
    /// A lease that was asked for before the last one was used up: the home answers after the writes under way.
    coming: Option<Coming>,
    none_until: Option<Instant>,
}

impl FarRuns {
    /// Those on the selected devices, which are to be given back, and those of a lease that nobody has looked at.
    pub fn take_of(&mut self, is_of: impl Fn(DeviceId) -> bool) -> Vec<Run> {
        let mut taken: Vec<Run> = self.runs.extract_if(.., |run| is_of(run.device)).collect();
        let has_come = self.coming.as_ref().is_some_and(|coming| lock(coming).is_some());
        if let Some(coming) = self.coming.take_if(|_| has_come)
            && let Some(Response::Lease(lease)) = lock(&coming).take()
        {
            taken.extend(lease.runs);
        }
        taken
    }
    /// Takes a run for `want` bytes, or for as many as a run has at most. `None` if the home has no memory for them now.
    pub fn take(&mut self, space: &Space, class: (ContainerId, Option<Durability>), want: u64) -> Result<Option<Run>> {
        if self.none_until.is_some_and(|until| Instant::now() < until) {
            return Ok(None);
        }
        let want = want.min(RUN_BYTES);
        let cut = self.cut(want);
        if cut.is_some() {
            let is_low = self.runs.iter().map(|run| run.len).sum::<u64>() < self.lease_bytes / 2;
            if is_low && self.coming.is_none() {
                self.ask(space, class);
            }
            return Ok(cut);
        }
        if self.coming.is_none() {
            self.ask(space, class);
        }
        // What is left is too short.
        space.channel.unlease(std::mem::take(&mut self.runs));
        self.take_in(space)?;
        let cut = self.cut(want);
        self.none_until = cut.is_none().then(|| Instant::now() + REST);
        Ok(cut)
    }
    /// Asks for the next lease.
    fn ask(&mut self, space: &Space, (container, durability): (ContainerId, Option<Durability>)) {
        let bytes = (self.lease_bytes * 2).clamp(LEASE_BYTES_FIRST, LEASE_BYTES_MAX);
        self.lease_bytes = bytes;
        let request = Request::Lease { container, bytes, run_min: RUN_BYTES as u32, avoid: Vec::new(), durability };
        let coming = Coming::default();
        self.coming = Some(coming.clone());
        space.channel.submit(request, Box::new(move |response| *lock(&coming) = Some(response)));
    }
    /// Waits for the lease that was asked for.
    fn take_in(&mut self, space: &Space) -> Result<()> {
        let Some(coming) = self.coming.take() else { return Ok(()) };
        let mut answer = None;
        space.channel.wait_until(|| {
            answer = lock(&coming).take();
            answer.is_some()
        });
        match answer {
            Some(Response::Lease(lease)) => self.add(space, lease.runs),
            Some(Response::Failed(error)) if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Full) => {
                Err(plain(error))
            }
            _ => Ok(()),
        }
    }
    fn add(&mut self, space: &Space, runs: Vec<Run>) -> Result<()> {
        let Some(first) = runs.first() else { return Ok(()) };
        let shape = space.segments.shape(first.device)?;
        if shape.kind == DeviceKind::SharedMemory {
            (self.unit, self.runs) = (shape.unit_bytes, runs);
            space.watch();
        } else {
            space.channel.unlease(runs);
        }
        Ok(())
    }
    /// Cuts space for `want` bytes from a run that has it.
    fn cut(&mut self, want: u64) -> Option<Run> {
        let len = want.next_multiple_of(self.unit.max(1));
        let at = self.runs.iter().rposition(|run| run.len >= len)?;
        let run = &mut self.runs[at];
        let cut = Run { len, ..*run };
        (run.offset, run.len) = (run.offset + len, run.len - len);
        if run.len == 0 {
            self.runs.swap_remove(at);
        }
        Some(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_in_units_from_those_that_are_long_enough() {
        let run = |offset, len| Run { device: DeviceId(1), offset, len };
        let mut far = FarRuns { runs: vec![run(0, 4096), run(8192, 1024)], unit: 512, ..FarRuns::default() };
        assert_eq!(far.cut(1000), Some(run(8192, 1024)));
        assert_eq!(far.cut(1), Some(run(0, 512)));
        assert_eq!(far.cut(4096), None);
        assert_eq!(far.cut(3584), Some(run(512, 3584)));
        assert_eq!((far.cut(1), far.take_of(|_| true)), (None, vec![]));
    }
}
