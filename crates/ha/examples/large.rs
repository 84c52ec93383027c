//! What large clusters cost one node: `cargo run --release -p cenote-ha --example large -- [NODES...]`.
//!
//! Times of one answer of the register taken in, of a new view adopted, and of a decision: at rest, with a dead node, and
//! with a rack of forty dead.

use std::sync::Arc;
use std::time::Instant;

use cenote_ha::{
    ClusterId, Event, History, Home, HomeId, Identity, Member, MemberState, Report, Seen, Settings, View, decide,
};
use cenote_model::NodeId;

fn view(nodes: u16, survives: usize) -> View {
    let member = |id: u16| Member {
        id: NodeId(id),
        address: format!("node{id}:7420"),
        identity: Identity(u128::from(id)),
        state: MemberState::Live { since_view: 1 },
        is_leaving: false,
    };
    let mirrors =
        |id: u16| (1..=survives as u32).map(move |step| NodeId(((u32::from(id) + step) % u32::from(nodes)) as u16));
    let home = |id: u16| Home {
        id: HomeId(id),
        host: NodeId(id),
        wanted_host: NodeId(id),
        mirrors: mirrors(id).collect(),
        term: 1,
        mirrors_wanted: survives,
        moving: None,
        is_shared: false,
    };
    View {
        cluster: ClusterId(5),
        number: 9,
        survives,
        members: (0..nodes).map(member).collect(),
        homes: (0..nodes).map(home).collect(),
    }
}

struct Watcher {
    history: History,
    settings: Settings,
    now_us: u64,
}

impl Watcher {
    fn see(&mut self, seen: Seen) {
        self.history.record(Event { at_us: self.now_us, seen }, &self.settings);
    }
    /// The answers of so many beats; the dead are not heard. Returns milliseconds of one.
    fn beats(&mut self, beats: u64, view: &Arc<View>, dead: &[NodeId]) -> f64 {
        let begin = Instant::now();
        for _ in 0..beats {
            self.now_us += self.settings.beat_us;
            self.see(Seen::Register { view: Arc::clone(view), asked_us: self.now_us - 1000 });
            for member in view.members.iter().filter(|member| !dead.contains(&member.id)) {
                self.see(Seen::Heard(member.id));
                let reports = dead.iter().map(|node| Report::Unheard(*node)).collect();
                self.see(Seen::Reports { by: member.id, in_view: view.number, reports });
            }
        }
        begin.elapsed().as_secs_f64() * 1e3 / beats as f64
    }
    /// Milliseconds of a decision, and how many nodes it excludes.
    fn decision(&self, me: u16) -> (f64, usize) {
        let begin = Instant::now();
        let proposal = decide(NodeId(me), &self.history, &self.settings, self.now_us);
        (begin.elapsed().as_secs_f64() * 1e3, proposal.decided.len())
    }
}

fn main() {
    let asked: Vec<u16> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let scales = if asked.is_empty() { vec![10, 100, 1_000, 10_000] } else { asked };
    println!(
        "{:>6} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "nodes", "answer ms", "view ms", "at rest ms", "one dead ms", "its heir ms", "rack ms"
    );
    for nodes in scales {
        let first = Arc::new(view(nodes, 2));
        let mut watcher = Watcher { history: History::default(), settings: Settings::default(), now_us: 0 };
        let answer_ms = watcher.beats(20, &first, &[]);
        let (rest_ms, _) = watcher.decision(0);
        let (mut dead_watcher, mut rack_watcher) = (
            Watcher { history: watcher.history.clone(), ..watcher },
            Watcher { history: watcher.history.clone(), ..watcher },
        );
        dead_watcher.beats(8, &first, &[NodeId(5)]);
        let (dead_ms, _) = dead_watcher.decision(0);
        let proposal = decide(NodeId(0), &dead_watcher.history, &dead_watcher.settings, dead_watcher.now_us);
        let second = Arc::new(proposal.view.expect("a silent node is excluded"));
        let begin = Instant::now();
        dead_watcher.now_us += 1000;
        dead_watcher.see(Seen::Register { view: Arc::clone(&second), asked_us: dead_watcher.now_us });
        let view_ms = begin.elapsed().as_secs_f64() * 1e3;
        let (heir_ms, _) = dead_watcher.decision(6);
        let rack: Vec<NodeId> = (1..40.min(nodes / 2)).map(NodeId).collect();
        rack_watcher.beats(8, &first, &rack);
        let (rack_ms, _) = rack_watcher.decision(0);
        println!(
            "{nodes:>6} {answer_ms:>12.3} {view_ms:>12.3} {rest_ms:>12.3} {dead_ms:>12.3} {heir_ms:>12.3} {rack_ms:>12.3}"
        );
    }
}
