//! Growth on paper: all studies of ten nodes run, quickly, and always give the same.

use std::time::{Duration, Instant};

use cenote_testkit::growth::figures::Figures;
use cenote_testkit::growth::study::{ALL, Terms};

fn terms(seed: u64) -> Terms {
    Terms { figures: Figures::measured(), scales: vec![10, 20], seed }
}

#[test]
fn all_studies_of_ten_nodes_run_soon_and_the_same_seed_gives_the_same() {
    let begin = Instant::now();
    for (name, make) in ALL {
        let (first, second) = (make(&terms(7)), make(&terms(7)));
        assert!(!first.tables.is_empty() && first.tables.iter().all(|table| !table.rows.is_empty()), "{name}");
        for (table, again) in first.tables.iter().zip(&second.tables).filter(|(table, _)| !table.title.contains("now"))
        {
            assert_eq!(table.markdown(), again.markdown(), "{name}");
            assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{name}: {table:?}");
        }
        for (chart, again) in first.charts.iter().zip(&second.charts) {
            assert!(chart.lines.iter().all(|line| line.points.len() == 2), "{name}");
            assert_eq!(chart.svg(), again.svg(), "{name}");
        }
    }
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
}

#[test]
fn another_seed_gives_other_phases() {
    let (_, make) = ALL.into_iter().find(|(name, _)| *name == "failover").expect("a study of take-over");
    assert_ne!(make(&terms(1)).tables[0].markdown(), make(&terms(2)).tables[0].markdown());
}

/// The model counts a view's bytes by docs/format.md; this is what the register really writes.
#[cfg(feature = "crash")]
#[test]
fn a_view_has_the_bytes_that_the_register_sends() {
    use cenote_cluster::register::{RegisterRequest, Stamp};
    use cenote_testkit::growth::failover::first_view;
    use cenote_testkit::growth::register::view_bytes;

    let sent = |nodes| RegisterRequest::Swap { seen: None, view: first_view(nodes, 2), stamp: Stamp(1) }.encode().len();
    // Version, kind, stamp and a flag stand before the view.
    for nodes in [1, 2, 10, 1000] {
        assert_eq!(view_bytes(&first_view(nodes, 2)), sent(nodes) as u64 - (1 + 1 + 16 + 1), "{nodes}");
    }
}
