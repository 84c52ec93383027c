//! A mirror that is gone for longer than its home can keep what it lacks: the home takes nothing more, and says why.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::TestDir;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Patience enough for this test: nobody is missed meanwhile.
const FACTOR: &str = "40";
const TIERS: [&str; 4] =
    ["--tier", "name=memory,kind=memory,size=192MiB", "--tier", "name=disk,kind=directory,path=disk,size=512MiB"];
/// More than a home keeps for a mirror that is behind.
const MUCH: usize = 96 << 20;
const SOON: Duration = Duration::from_secs(10);

fn signal(place: &TestDir, node: &str, signal: Signal) {
    let holder = cenote_server::holder(&place.path(node)).expect("a daemon has it");
    kill_process(Pid::from_raw(holder.pid as i32).unwrap(), signal).unwrap();
}

#[test]
fn what_is_wrong_is_told_while_a_home_takes_nothing_more() {
    let place = TestDir::new();
    let dir = place.path("c").to_str().unwrap().to_owned();
    let ask = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("CENOTE_HA_FACTOR", FACTOR).env("CENOTE_STORE", place.path("c/n2")).stdin(Stdio::null());
        common::said(&mut command)
    };
    let ok = |args: &[&str]| {
        let said = ask(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out
    };
    ok(&[&["cluster", "start", &dir, "--local", "3", "--protect", "1"], &TIERS[..]].concat());
    let report = || serde_json::from_str::<Value>(&ok(&["--json", "ha"])).unwrap();
    let begin = Instant::now();
    let mirror = loop {
        if let Some(mirror) = report()["homes"][1]["mirrors"][0].as_u64() {
            break format!("c/n{mirror}");
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "no mirror");
        std::thread::sleep(Duration::from_millis(50));
    };
    ok(&["mk", "runs"]);
    std::fs::write(place.path("much"), vec![7; MUCH]).unwrap();
    ok(&["protect"]);
    signal(&place, &mirror, Signal::STOP);
    let much = place.path("much");
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let put = scope.spawn(|| ask(&["put", "-p", much.to_str().unwrap(), "runs/1"]));
        // Until nothing more is taken.
        std::thread::sleep(Duration::from_secs(3));
        assert!(!put.is_finished(), "more was taken than can be kept");
        for _ in 0..3 {
            let asked = Instant::now();
            assert_eq!(report()["homes"].as_array().unwrap().len(), 3);
            assert!(asked.elapsed() < SOON, "`cenote ha` took {:?}", asked.elapsed());
        }
        // The command itself says what it waits for.
        std::thread::sleep(Duration::from_secs(6).saturating_sub(begun.elapsed()) + SOON);
        assert!(!put.is_finished());
        signal(&place, &mirror, Signal::CONT);
        let said = put.join().unwrap();
        assert_eq!(said.code, 0, "{said:?}");
        // Which of both depends on whether the mirror led the nodes that keep the register.
        let silent = format!("waiting: {} does not answer", mirror.trim_start_matches("c/"));
        let is_said =
            [&silent, "waiting: the register of the cluster does not answer"].iter().any(|it| said.err.contains(*it));
        assert!(is_said, "no `{silent}` in {}", said.err);
    });
    ok(&["protect"]);
    ok(&["cluster", "destroy", &dir, "--yes"]);
}
