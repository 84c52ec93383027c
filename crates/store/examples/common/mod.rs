//! What the examples that drive an engine share: blocks of leased space.

use cenote_model::{ContainerId, Extent, Request, Response, Run, Sums};

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// The request for more space.
pub fn lease_request(container: ContainerId) -> Request {
    Request::Lease { container, bytes: 64 << 20, run_min: 4096, avoid: vec![], durability: None }
}

/// Leased space, handed out in blocks.
#[derive(Default)]
pub struct Blocks(Vec<Run>);

impl Blocks {
    /// Returns true if more has to be leased.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Takes in the answer to [`lease_request`].
    pub fn refill(&mut self, answer: Response) {
        let Response::Lease(lease) = answer else { panic!("no lease") };
        self.0 = lease.runs;
    }
    /// Returns the next block as an extent.
    pub fn next(&mut self) -> Extent {
        let run = self.0.last_mut().expect("a run");
        let extent = Extent::whole(run.device, run.offset, BLOCK as u32, Sums::One(0x1234_5678));
        run.offset += BLOCK;
        run.len -= BLOCK;
        if run.len < BLOCK {
            self.0.pop();
        }
        extent
    }
}
