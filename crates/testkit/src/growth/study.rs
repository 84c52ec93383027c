//! The studies: each runs its model at all sizes and gives a table and curves.

use std::collections::BTreeMap;

use cenote_ha::Settings;
use cenote_layout::Layout;

use super::bandwidth::{self, Work};
use super::chart::{Chart, Line, number};
use super::failover::{self, first_view};
use super::figures::{Figure, Figures};
use super::register::{self, Answers, view_bytes};
use super::{check, names, places, rebuild, sharing};

/// Nodes at which everything is looked at.
pub const SCALES: [usize; 7] = [10, 30, 100, 300, 1_000, 3_000, 10_000];
/// What layouts survive in these studies; homes have as many mirrors.
const SURVIVES: usize = 2;
/// Programs of a node that use a home.
const CLIENTS: usize = 2;
/// Objects of a home.
const OBJECTS: u64 = 100_000;

/// What all studies begin with.
#[derive(Clone, Debug)]
pub struct Terms {
    /// What drives the model.
    pub figures: Figures,
    /// Nodes.
    pub scales: Vec<usize>,
    /// The only source of chance.
    pub seed: u64,
}

/// Rows of words under a title.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The first row.
    pub head: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    fn new(title: &str, head: &[&str]) -> Self {
        Self { title: title.into(), head: head.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }
    /// A title, what rows are called, and a column for each size.
    fn by_scale(title: &str, terms: &Terms) -> Self {
        let head = std::iter::once("nodes".into()).chain(terms.scales.iter().map(ToString::to_string)).collect();
        Self { title: title.into(), head, rows: Vec::new() }
    }
    fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push(std::iter::once(name.to_string()).chain(cells).collect());
    }
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|{}\n", "---|".repeat(self.head.len()));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}{rule}{rows}", self.title, line(&self.head))
    }
}

/// A study's tables and curves.
#[derive(Clone, Debug, Default)]
pub struct Study {
    /// In the order in which they are read.
    pub tables: Vec<Table>,
    /// Pictures.
    pub charts: Vec<Chart>,
}

/// What makes one of them.
pub type Make = fn(&Terms) -> Study;

/// All studies by name.
pub const ALL: [(&str, Make); 9] = [
    ("figures", figures_used),
    ("check", checked),
    ("places", placed),
    ("bandwidth", bandwidths),
    ("names", creations),
    ("failover", failovers),
    ("rebuild", rebuilds),
    ("register", registers),
    ("sharing", shared),
];

fn layout(text: &str) -> Layout {
    text.parse().expect("a layout of the studies is sound")
}

fn line(name: &str, terms: &Terms, values: impl IntoIterator<Item = f64>) -> Line {
    let nodes = terms.scales.iter().map(|nodes| *nodes as f64);
    Line { name: name.into(), points: nodes.zip(values).collect() }
}

fn figures_used(terms: &Terms) -> Study {
    let mut table = Table::new("Figures", &["figure", "value", "from"]);
    for (name, Figure { value, unit, from }) in terms.figures.all() {
        table.row(&format!("`{name}`"), [format!("{} {unit}", number(value)).trim_end().to_string(), from.to_string()]);
    }
    Study { tables: vec![table], charts: Vec::new() }
}

fn checked(terms: &Terms) -> Study {
    let head = ["what", "model", "measured", "model / measured", ""];
    let mut table = Table::new("The model beside what was measured", &head);
    for check in check::checks(&terms.figures) {
        let of = |value: f64| format!("{} {}", number(value), check.unit);
        let note = if check.is_figure { "itself a figure" } else { "" };
        table.row(check.what, [of(check.model), of(check.measured), format!("{:.2}", check.ratio()), note.into()]);
    }
    Study { tables: vec![table], charts: Vec::new() }
}

fn placed(terms: &Terms) -> Study {
    let layout = layout("4+2");
    let head = [
        "nodes",
        "looked at",
        "parts a node: most / mean",
        "sharers of a node",
        "stripes lost with a rack",
        "some stripe lost with 3 nodes",
    ];
    let title = "Places of 100 stripes a node of 4+2, by `choose`; the last column for 25,000 stripes a node";
    let mut table = Table::new(title, &head);
    let per_rack = terms.figures.rack_nodes.value as usize;
    for nodes in terms.scales.iter().copied() {
        let widths: &[bool] = if nodes > places::NEAR { &[false, true] } else { &[false] };
        for is_near in widths.iter().copied().filter(|is_near| *is_near || nodes <= 1000) {
            let spread = places::spread(nodes, per_rack, &layout, 100, is_near, terms.seed);
            let lost = |lost: u64, all: u64| format!("{:.2}%", lost as f64 * 100.0 / all as f64);
            table.row(
                &nodes.to_string(),
                [
                    spread.looked_at.to_string(),
                    format!("{:.2}", spread.parts.1 as f64 / spread.parts.0),
                    spread.sharers.to_string(),
                    if nodes > per_rack { lost(spread.lost_by_rack, spread.stripes) } else { "all".into() },
                    format!("{:.2}%", 100.0 * places::joint_loss(nodes, spread.looked_at, &layout, 25_000, terms.seed)),
                ],
            );
        }
    }
    let mut costs = Table::by_scale("Microseconds of a choice, measured now", terms);
    for (name, is_near) in [("among all", false), ("among 128", true)] {
        costs.row(name, terms.scales.iter().map(|nodes| format!("{:.1}", places::cost_us(*nodes, is_near, &layout))));
    }
    Study { tables: vec![table, costs], charts: Vec::new() }
}

fn bandwidths(terms: &Terms) -> Study {
    let mut better = terms.figures;
    (better.net_threads.value, better.cores.value, better.oversubscription.value) = (4.0, 16.0, 1.0);
    let plain = &terms.figures;
    let cases = [
        ("write, mirror=2", "mirror=2", Work::Write, false, plain),
        ("write, mirror=2, first copy here", "mirror=2", Work::Write, true, plain),
        ("write, 4+2", "4+2", Work::Write, false, plain),
        ("read, 4+2", "4+2", Work::Read, false, plain),
        ("read, 4+2, a node dead", "4+2", Work::DegradedRead, false, plain),
        ("write, 4+2, 4 threads, even net", "4+2", Work::Write, false, &better),
    ];
    let mut table = Table::by_scale("GB/s of all programs together (of one node), without begin and tail", terms);
    let mut ends = Table::by_scale("The same until the last program ends, of one node; what is busiest", terms);
    let mut lines = Vec::new();
    for (name, layout_text, work, is_own_first, figures) in cases {
        let layout = layout(layout_text);
        let run = |nodes: &usize| {
            let setup =
                |first| bandwidth::Setup { nodes: *nodes, layout: &layout, work, each: 12, is_own_first, first };
            // Few nodes have few stripes, whose places are more uneven by chance: the mean of several sets of them.
            let repeats = (400 / *nodes as u64).clamp(1, 20);
            let all: Vec<_> = (0..repeats).map(|set| bandwidth::run(figures, setup(set * 1000))).collect();
            let mean = |of: fn(&bandwidth::Outcome) -> f64| all.iter().map(of).sum::<f64>() / repeats as f64;
            let (gb_s, gb_s_to_end) = (mean(|one| one.gb_s), mean(|one| one.gb_s_to_end));
            bandwidth::Outcome { gb_s, gb_s_to_end, ..all[0].clone() }
        };
        let outcomes: Vec<bandwidth::Outcome> = terms.scales.iter().map(run).collect();
        let of_node = |outcome: &bandwidth::Outcome| outcome.gb_s / outcome.nodes as f64;
        table.row(name, outcomes.iter().map(|one| format!("{} ({:.2})", number(one.gb_s), of_node(one))));
        let end = |one: &bandwidth::Outcome| format!("{:.2}, {}", one.gb_s_to_end / one.nodes as f64, one.busiest.0);
        ends.row(name, outcomes.iter().map(end));
        lines.push(line(name, terms, outcomes.iter().map(of_node)));
    }
    let title = "Bandwidth of programs, by node";
    let chart = Chart { file: "growth-bandwidth", title, unit: "GB/s a node", lines, bar: None };
    Study { tables: vec![table, ends], charts: vec![chart] }
}

fn creations(terms: &Terms) -> Study {
    let mut table = Table::by_scale("Creations a second of all nodes together", terms);
    let mut busy = Table::by_scale("What is busiest; messages that a forwarding thread takes at once", terms);
    let mut lines = Vec::new();
    let mut ready = terms.figures;
    ready.poll_ns.value = f64::MIN_POSITIVE;
    let plain = names::ALL.iter().map(|(make, name)| (*make, *name, &terms.figures));
    let spread = (names::Make::SpreadTree, "the same, told which connections are ready", &ready);
    let mut cases: Vec<(names::Make, &str, &Figures)> = plain.collect();
    cases.insert(3, spread);
    for (make, name, figures) in cases {
        let run = |nodes: &usize| {
            // Objects are launched, files of strict directories awaited, by some programs at once.
            let under_way = if make == names::Make::OwnObjects { 64 } else { 8 };
            let each = (100_000 / *nodes as u64).clamp(4 * under_way, 1000);
            names::run(figures, *nodes, make, each, under_way, SURVIVES)
        };
        let outcomes: Vec<names::Outcome> = terms.scales.iter().map(run).collect();
        table.row(name, outcomes.iter().map(|one| number(one.pace.per_s)));
        busy.row(name, outcomes.iter().map(|one| format!("{}, {:.1}", one.busiest.0, one.batch)));
        lines.push(line(name, terms, outcomes.iter().map(|one| one.pace.per_s)));
    }
    let chart = Chart { file: "growth-names", title: "Creations of all nodes", unit: "a second", lines, bar: None };
    Study { tables: vec![table, busy], charts: vec![chart] }
}

fn failovers(terms: &Terms) -> Study {
    let settings = Settings::default();
    let mut lines = Vec::new();
    let mut tables = Vec::new();
    for (answers, name) in [(Answers::News, "news only"), (Answers::Whole, "whole answers")] {
        let head = [
            "nodes",
            "proposed",
            "excluded",
            "heir told",
            "heir acts",
            "all told",
            "clients: half, all",
            "register busy",
            "stood still",
        ];
        let mut table =
            Table::new(&format!("One node dies, {name} of the register: milliseconds after its death"), &head);
        let (mut excluded, mut acts, mut attached) = (Vec::new(), Vec::new(), Vec::new());
        for nodes in terms.scales.iter().copied() {
            let (dead, seed) = (vec![nodes / 2], terms.seed);
            let setup = failover::Setup { nodes, survives: SURVIVES, dead, answers, settings, objects: OBJECTS, seed };
            let outcome = failover::run(&terms.figures, &setup);
            let clients = failover::attached_ms(&terms.figures, &outcome, CLIENTS);
            let ms = |us: Option<u64>| us.map_or("never".to_string(), |us| format!("{:.0}", us as f64 / 1e3));
            let is_all = outcome.told_all_us.len() + 1 == nodes;
            let told = outcome.told_all_us.iter().copied().max().filter(|_| is_all);
            let steps = [outcome.proposed_us, outcome.excluded_us, outcome.told_us, outcome.acts_us, told].map(ms);
            let rest = [
                clients.map_or("never".into(), |(half, all)| format!("{half:.0}, {all:.0}")),
                format!("{:.0}%", outcome.register_busy * 100.0),
                format!("{} nodes", outcome.stood_still),
            ];
            table.row(&nodes.to_string(), steps.into_iter().chain(rest));
            let seconds = |us: Option<u64>| us.map_or(0.0, |us| us as f64 / 1e6);
            excluded.push(seconds(outcome.excluded_us));
            acts.push(seconds(outcome.acts_us));
            attached.push(clients.filter(|_| is_all).map_or(0.0, |(_, all)| all / 1e3));
        }
        if answers == Answers::News {
            lines.push(line("excluded", terms, excluded));
            lines.push(line("its mirror acts", terms, acts));
        }
        lines.push(line(&format!("last client attached, {name}"), terms, attached));
        tables.push(table);
    }
    tables.push(racks(terms, settings));
    let (title, unit) = ("Take-over of a dead node's home", "seconds after its death");
    let chart = Chart { file: "growth-failover", title, unit, lines, bar: None };
    Study { tables, charts: vec![chart] }
}

/// Deaths of many at once, and how often that is.
fn racks(terms: &Terms, settings: Settings) -> Table {
    let head = ["nodes", "a rack dies", "freezes a year by single nodes: survives 1", "survives 2", "by racks"];
    let mut table = Table::new("Freezing, if a node is made good 100 s after its death", &head);
    let per_rack = terms.figures.rack_nodes.value as usize;
    for nodes in terms.scales.iter().copied() {
        let rack = if nodes > 2 * per_rack && nodes <= 1000 {
            let (dead, seed, answers) = ((per_rack..2 * per_rack).collect(), terms.seed, Answers::News);
            let setup = failover::Setup { nodes, survives: SURVIVES, dead, answers, settings, objects: OBJECTS, seed };
            let outcome = failover::run(&terms.figures, &setup);
            if outcome.has_frozen && outcome.excluded_us.is_none() { "all freeze" } else { "goes on" }
        } else {
            ""
        };
        let freezes = |survives| failover::freezes_a_year(&terms.figures, nodes, survives, 100.0);
        let racks = if nodes > per_rack { number(freezes(SURVIVES).1) } else { String::new() };
        let rare = |value: f64| if value < 0.001 { format!("{value:.0e}") } else { number(value) };
        table.row(&nodes.to_string(), [rack.into(), rare(freezes(1).0), rare(freezes(2).0), racks]);
    }
    table
}

fn rebuilds(terms: &Terms) -> Study {
    let layouts = [layout("4+2,unit=8MiB"), layout("mirror=3")];
    let manner = |is_on_disk, is_busy| rebuild::Manner { is_on_disk, is_busy };
    let near = places::NEAR;
    let cases = [
        ("4+2 in memory, idle, among 128", 0, near, manner(false, false)),
        ("4+2 on disk, idle, among 128", 0, near, manner(true, false)),
        ("4+2 on disk, busy, among 128", 0, near, manner(true, true)),
        ("4+2 on disk, busy, among all", 0, usize::MAX, manner(true, true)),
        ("mirror=3 on disk, busy, among 128", 1, near, manner(true, true)),
    ];
    let plan_of = |which: usize, width: usize, nodes: usize| {
        // So many that a node has 94 GiB.
        let stripes = if which == 0 { 2000 } else { 500 };
        rebuild::plan(&terms.figures, rebuild::Setup { nodes, layout: &layouts[which], stripes, width })
    };
    let mut plans: BTreeMap<(usize, usize, usize), rebuild::Plan<'_>> = BTreeMap::new();
    let title = "Seconds until a dead node's 94 GiB are whole again (helpers; most parts that one receives)";
    let mut table = Table::by_scale(title, terms);
    let mut busy = Table::by_scale("What is busiest", terms);
    let mut lines = Vec::new();
    for (name, which, width, manner) in cases {
        let run = |nodes: &usize| {
            // Placing each stripe among all of thousands takes minutes, which is why it is not done.
            (width == near || *nodes <= 300).then(|| {
                let plan = plans.entry((which, width, *nodes)).or_insert_with(|| plan_of(which, width, *nodes));
                rebuild::run(&terms.figures, plan, manner)
            })
        };
        let outcomes: Vec<Option<rebuild::Outcome>> = terms.scales.iter().map(run).collect();
        let words = |one: &Option<rebuild::Outcome>| {
            one.as_ref()
                .map_or(String::new(), |one| format!("{} ({}; {})", number(one.seconds), one.helpers, one.received.0))
        };
        table.row(name, outcomes.iter().map(words));
        busy.row(name, outcomes.iter().map(|one| one.as_ref().map_or(String::new(), |one| one.busiest.0.into())));
        lines.push(line(name, terms, outcomes.iter().map(|one| one.as_ref().map_or(0.0, |one| one.seconds))));
    }
    let (title, unit) = ("Rebuild of a dead node's bytes", "seconds");
    let chart = Chart { file: "growth-rebuild", title, unit, lines, bar: None };
    Study { tables: vec![table, busy], charts: vec![chart] }
}

fn registers(terms: &Terms) -> Study {
    let settings = Settings::default();
    let head =
        "Beats every 100 ms: load of the register; answer at the 99th percentile; share of answers later than a lease";
    let mut table = Table::by_scale(head, terms);
    let mut bytes = Table::by_scale("MB/s that leave the first node", terms);
    let mut lines = Vec::new();
    for (keeper, name) in register::ALL {
        let run = |nodes: &usize| register::run(&terms.figures, &settings, *nodes, keeper, terms.seed);
        let outcomes: Vec<register::Outcome> = terms.scales.iter().map(run).collect();
        let words =
            |one: &register::Outcome| format!("{:.2}; {} ms; {:.0}%", one.load, number(one.ms.1), one.late * 100.0);
        table.row(name, outcomes.iter().map(words));
        if matches!(keeper, register::Keeper::FirstNode(_)) {
            bytes.row(name, outcomes.iter().map(|one| number(one.bytes_per_s / 1e6)));
        }
        lines.push(line(name, terms, outcomes.iter().map(|one| one.beat_ms_least)));
    }
    let bar = Some((settings.beat_us as f64 / 1e3, "today's beat"));
    let (title, unit) = ("The shortest beat of which a register is busy for half of its time", "milliseconds");
    let chart = Chart { file: "growth-register", title, unit, lines, bar };
    Study { tables: vec![table, bytes, limits(terms)], charts: vec![chart] }
}

/// What each node or the register must hold.
fn limits(terms: &Terms) -> Table {
    let figures = &terms.figures;
    let mut table = Table::by_scale("What must be held", terms);
    let all = |of: &dyn Fn(usize) -> f64, unit: &str| -> Vec<String> {
        terms.scales.iter().map(|nodes| format!("{}{unit}", number(of(*nodes)))).collect()
    };
    let view = |nodes: usize| view_bytes(&first_view(nodes, SURVIVES)) as f64;
    table.row("bytes of a view (at most 1 MiB)", all(&view, "B"));
    table.row("a new view to all nodes", all(&|nodes| view(nodes) * nodes as f64, "B"));
    table.row("connections of a node to all others, and from them", all(&|nodes| 2.0 * (nodes - 1) as f64, ""));
    let windows = |nodes: usize| (nodes - 1) as f64 * figures.window_bytes.value;
    table.row("what they may send it at once", all(&windows, "B"));
    table.row("rings of a program that uses all homes", all(&|nodes| nodes as f64 * figures.ring_bytes.value, "B"));
    table.row("a decision of `ha`", all(&|nodes| nodes as f64 * figures.decide_ns.value / 1e3, "µs"));
    table
}

fn shared(terms: &Terms) -> Study {
    let cases = [("the home tells each", sharing::Tell::Each), ("a tree, 16 each", sharing::Tell::Tree(16))];
    let mut table = Table::by_scale(
        "A file that all nodes look at: a strict write, ms; messages; until all have looked again, ms",
        terms,
    );
    let mut lines = Vec::new();
    for (name, tell) in cases {
        let run = |nodes: &usize| sharing::run(&terms.figures, *nodes, tell, 20, SURVIVES);
        let outcomes: Vec<sharing::Outcome> = terms.scales.iter().map(run).collect();
        let words = |one: &sharing::Outcome| {
            let ms = number(one.writes.p50_us / 1e3);
            format!("{ms}; {}; {}", number(one.messages), number(one.read_again_ms))
        };
        table.row(name, outcomes.iter().map(words));
        lines.push(line(&format!("write, {name}"), terms, outcomes.iter().map(|one| one.writes.p50_us / 1e3)));
        if tell == sharing::Tell::Each {
            lines.push(line("all look again", terms, outcomes.iter().map(|one| one.read_again_ms)));
        }
    }
    let (title, unit) = ("A write to a file that all nodes have looked at", "milliseconds");
    let chart = Chart { file: "growth-sharing", title, unit, lines, bar: None };
    Study { tables: vec![table], charts: vec![chart] }
}
