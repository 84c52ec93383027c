//! Says on standard error what a command waits for: a cluster that needs a node which is away answers nothing until that is
//! back, and a program would not know why.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{HaReport, Mode, OpenOptions, Store};

use super::ha::named;

/// A command that takes no longer is not looked after.
const EVERY: Duration = Duration::from_secs(5);
/// A node that was not heard for so long is worth a word.
const SILENCE_US: u64 = 2_000_000;

/// Watches the cluster until the process ends, from a thread. `dir`: the directory of a node. A second call does nothing.
pub fn watch(dir: PathBuf) {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    if IS_WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    let watch = move || {
        let mut said = Vec::new();
        loop {
            std::thread::sleep(EVERY);
            // A session of its own: that of the command may wait.
            let options = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
            let Ok(report) = Store::open_with(&dir, &options).and_then(|store| store.ha_report()) else { continue };
            for (about, cause) in reasons(&report) {
                if !said.contains(&about) {
                    eprintln!("cenote: waiting: {about}\n  cause: {cause}\n  next:  `cenote ha` shows what is missing");
                    said.push(about);
                }
            }
        }
    };
    let _ = std::thread::Builder::new().name("cenote-waiting".into()).spawn(watch); // without it nothing is said
}

/// What everybody may be waiting for, each with its cause.
fn reasons(report: &HaReport) -> Vec<(String, String)> {
    let freezes = report.decided.iter().filter(|it| it.kind == "freeze");
    let freezes: Vec<_> = freezes.map(|it| (it.what.clone(), it.why.clone())).collect();
    if !freezes.is_empty() {
        return freezes;
    }
    if !report.trouble.is_empty() {
        return vec![("the view of the cluster".into(), report.trouble.clone())];
    }
    if report.asked_ago_us.is_some_and(|us| us > SILENCE_US) {
        let cause = "a node that keeps it is away, or slow; the others choose another one";
        return vec![("the register of the cluster does not answer".into(), cause.into())];
    }
    let silent = report.nodes.iter().filter(|it| it.live && it.silence_us.is_some_and(|us| us > SILENCE_US));
    let about = |node: cenote::model::NodeId| format!("{} does not answer", named(report, node));
    silent.map(|it| (about(it.node), "the nodes with the register have not heard it for a while".into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote::{HaDecided, HaNode};

    #[test]
    fn what_keeps_all_waiting_is_said_before_what_may() {
        let node = |number, live, silence_us| HaNode {
            node: cenote::model::NodeId(number),
            name: format!("n{number}"),
            live,
            silence_us: Some(silence_us),
            ..HaNode::default()
        };
        let mut report = HaReport {
            nodes: vec![node(1, true, 1000), node(2, true, 3_000_000), node(3, false, 9_000_000)],
            ..HaReport::default()
        };
        let told = |report: &HaReport| reasons(report).into_iter().map(|(about, _)| about).collect::<Vec<_>>();
        assert_eq!(told(&report).len(), 1);
        assert!(told(&report)[0].contains("n2"), "{:?}", told(&report));
        report.asked_ago_us = Some(1_000_000);
        assert!(told(&report)[0].contains("n2"), "{:?}", told(&report));
        report.asked_ago_us = Some(3_000_000);
        assert!(told(&report)[0].contains("register"), "{:?}", told(&report));
        report.trouble = "the register is away".into();
        assert_eq!(told(&report), ["the view of the cluster"]);
        let freeze = HaDecided { kind: "freeze".into(), what: "FREEZE; n2".into(), ..HaDecided::default() };
        report.decided = vec![HaDecided { kind: "wait".into(), ..HaDecided::default() }, freeze];
        assert_eq!(told(&report), ["FREEZE; n2"]);
    }
}
