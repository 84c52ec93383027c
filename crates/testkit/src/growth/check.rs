//! The model beside what was measured: clusters of one and of four nodes on one machine, whose processors all share.

use super::figures::Figures;
use super::flow::{Flow, Load, Stages, drive, one};
use super::nodes::{Nodes, Site};
use super::world::Step;

const KIB4: u64 = 4 << 10;
const MIB: u64 = 1 << 20;
/// A ring between client and daemon has so many bytes: longer messages go through it in parts.
const RING_BYTES: u64 = 256 << 10;

/// One comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Check {
    /// What was done.
    pub what: &'static str,
    /// In which unit.
    pub unit: &'static str,
    /// What the model says.
    pub model: f64,
    /// What `docs/performance.md` says.
    pub measured: f64,
    /// True if the measured value is itself among the figures: then the ratio says only that the model keeps it.
    pub is_figure: bool,
}

impl Check {
    /// Model by measured value.
    pub fn ratio(&self) -> f64 {
        self.model / self.measured
    }
}

/// What a program does, one or some at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    LocalGet,
    LocalPut,
    LocalCreate,
    LocalLarge,
    RemoteGet,
    RemotePut,
    RemoteLarge,
    Bare,
    Protocol,
}

/// All comparisons.
pub fn checks(figures: &Figures) -> Vec<Check> {
    let rate = |access: Access, under_way: u64| per_s(figures, access, under_way);
    let gb_s = |access: Access, under_way: u64| per_s(figures, access, under_way) * MIB as f64 / 1e9;
    let of = |what, unit, model, measured, is_figure| Check { what, unit, model, measured, is_figure };
    let bare = 1e6 / rate(Access::Bare, 1);
    vec![
        of("1 node: get of 4 KiB", "1/s", rate(Access::LocalGet, 1), 0.90 * 1.62e6, true),
        of("1 node: put of 4 KiB, pipelined", "1/s", rate(Access::LocalPut, 32), 0.60 * 1.108e6, true),
        of("1 node: creation, pipelined", "1/s", rate(Access::LocalCreate, 64), 0.54 * 1.546e6, true),
        of("1 node: put of 1 MiB", "GB/s", gb_s(Access::LocalLarge, 1), 1.06 * 6.121, false),
        of("bare loop: 64 bytes there and back", "µs", bare, 81.0 * 0.93, false),
        of("protocol: 1 MiB, 4 under way", "GB/s", gb_s(Access::Protocol, 4), 2.2, true),
        of("4 nodes: get of 4 KiB, other home", "µs", 1e6 / rate(Access::RemoteGet, 1), 68.0, false),
        of(
            "4 nodes: put of 4 KiB, other home, awaited, by two bare round trips",
            "times",
            2.0 * bare * rate(Access::RemotePut, 1) / 1e6,
            1.35,
            false,
        ),
        of("4 nodes: put of 4 KiB, other home, pipelined", "1/s", rate(Access::RemotePut, 64), 106_000.0, false),
        of("4 nodes: get of 1 MiB, other home", "ms", 1e3 / rate(Access::RemoteLarge, 1), 2.9, false),
    ]
}

fn per_s(figures: &Figures, access: Access, under_way: u64) -> f64 {
    let mut flow = Flow::default();
    let nodes = Nodes::new(&mut flow.world, figures, 4, Site::OneMachine);
    nodes.connect_all(&mut flow.world, 3);
    drive(&mut flow, Load { workers: 1, each: 2000, under_way }, |_, _| stages(&nodes, access)).per_s
}

/// The steps of an access by a program of node 0. The other home is node 1's.
fn stages(nodes: &Nodes, access: Access) -> Stages {
    let figures = &nodes.figures;
    let mut way = Vec::new();
    let request = figures.request_bytes.value as u64;
    let copy_ns = |bytes: u64| Figures::ns_of(bytes, figures.copy_gb_s);
    match access {
        Access::LocalGet => nodes.client(0, Figures::ns(figures.get_us), &mut way),
        Access::LocalPut => {
            nodes.client(0, Figures::ns(figures.put_client_us), &mut way);
            nodes.ring(0, Figures::ns(figures.put_engine_us), &mut way);
        }
        Access::LocalCreate => {
            nodes.client(0, Figures::ns(figures.create_client_us), &mut way);
            nodes.ring(0, Figures::ns(figures.create_engine_us), &mut way);
        }
        Access::LocalLarge => {
            // The client announces its message while it copies, so that the daemon is awake when it comes.
            nodes.client(0, Figures::ns_of(MIB, figures.copy_sum_gb_s), &mut way);
            nodes.client(0, Figures::ns(figures.put_engine_us), &mut way);
        }
        Access::RemoteGet => carried_get(nodes, KIB4, &mut way),
        Access::RemoteLarge => carried_get(nodes, MIB, &mut way),
        Access::RemotePut => {
            // Into the ring, out of it, to the other node, into memory that was leased there.
            nodes.client(0, Figures::ns(figures.put_client_us) + copy_ns(KIB4), &mut way);
            nodes.net(0, copy_ns(KIB4), &mut way);
            nodes.send(0, 1, KIB4 + request, &mut way);
            let fill_ns = Figures::ns_of(KIB4, figures.copy_sum_gb_s);
            nodes.net(1, fill_ns + Figures::ns(figures.put_engine_us), &mut way);
            nodes.send(1, 0, request, &mut way);
            nodes.client(0, Figures::ns(figures.message_us), &mut way);
        }
        Access::Bare => {
            // Blocking calls: each end sleeps until something comes.
            for _ in 0..2 {
                way.push(Step::wait(2.0 * Figures::ns(figures.syscall_us) + Figures::ns(figures.wake_us)));
            }
        }
        Access::Protocol => {
            nodes.send(0, 1, request, &mut way);
            nodes.send(1, 0, MIB, &mut way);
        }
    }
    vec![one(way)]
}

/// A read that is carried: asked of the gateway and of the home, copied into an answer, framed, and through the ring in as
/// many parts as it needs, each of which waits for the client.
fn carried_get(nodes: &Nodes, bytes: u64, way: &mut Vec<Step>) {
    let figures = &nodes.figures;
    let request = figures.request_bytes.value as u64;
    let copy_ns = |bytes: u64| Figures::ns_of(bytes, figures.copy_gb_s);
    nodes.client(0, Figures::ns(figures.message_us), way);
    nodes.send(0, 1, request, way);
    // The engine reads into a buffer, which is put into a message.
    nodes.net(1, 2.0 * copy_ns(bytes) + Figures::ns(figures.lookup_us), way);
    nodes.send(1, 0, bytes, way);
    for begin in (0..bytes).step_by(RING_BYTES as usize) {
        let part = RING_BYTES.min(bytes - begin);
        // Out of the frames, into the ring; out of the ring, to where the program wants it.
        nodes.net(0, 2.0 * copy_ns(part), way);
        nodes.client(0, 2.0 * copy_ns(part), way);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_keeps_its_figures_and_is_near_what_was_measured_elsewhere() {
        for check in checks(&Figures::measured()) {
            let bounds = if check.is_figure { 0.7..1.4 } else { 0.4..2.5 };
            assert!(bounds.contains(&check.ratio()), "{check:?}: {}", check.ratio());
        }
    }
}
