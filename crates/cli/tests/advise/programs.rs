//! Results of watching unmodified programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{TestDir, said};
use crate::watched::{advise, compiled, file, number, tracer, watched};

/// Threads, `fork`, `exec`, C streams, mapped files, memory objects, renaming, a signal handler that reads.
const EVERYTHING: &str = include_str!("everything.c");

#[test]
fn dd_cat_and_tar_are_seen_to_the_byte() {
    let place = TestDir::with_store();
    let (a, b) = (place.path("a"), place.path("b.tar"));
    let of = format!("of={}", a.display());
    let (done, report) = watched(&place, &[], ["dd", "if=/dev/zero", &of, "bs=64k", "count=50", "conv=fsync"]);
    assert_eq!(done.code, 0, "{done:?}");
    let item = file(&report, &a);
    assert_eq!(number(item, "/file/writes/bytes"), 50 * 65_536);
    assert_eq!(number(item, "/file/writes/accesses"), 50);
    assert_eq!(number(item, "/file/writes/sequential"), 50);
    assert_eq!(number(item, "/file/syncs"), 1);
    assert!(item["now_s"].as_f64().unwrap() > 0.0);

    // Standard output remains the program's, unchanged.
    let (done, report) = watched(&place, &[], ["cat", a.to_str().unwrap()]);
    assert_eq!(done.bytes, vec![0; 50 * 65_536]);
    assert!(done.err.is_empty(), "{}", done.err);
    assert_eq!(number(file(&report, &a), "/file/reads/unique_bytes"), 50 * 65_536);

    let (done, report) =
        watched(&place, &[], ["tar", "cf", b.to_str().unwrap(), "-C", place.dir.to_str().unwrap(), "a"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(number(file(&report, &a), "/file/reads/bytes"), 50 * 65_536);
    assert_eq!(number(file(&report, &b), "/file/writes/bytes"), fs::metadata(&b).unwrap().len());
}

#[test]
fn children_temporary_files_and_pipes_of_a_shell() {
    let place = TestDir::with_store();
    let script = "seq 1 200000 > big; sort -r big | head -c 100 > small; (cat big big > twice); mv twice three; rm big";
    let (done, report) = watched(&place, &[], ["sh", "-c", script]);
    assert_eq!(done.code, 0, "{done:?}");
    let big = file(&report, &place.path("big"));
    assert_eq!(big["file"]["temporary"], true, "{big:#}");
    let bytes = number(big, "/file/writes/bytes");
    assert!(bytes > 1_000_000, "{big:#}");
    assert!(number(big, "/file/reads/bytes") >= 3 * bytes, "{big:#}");
    assert!(big["file"]["reads"]["unique_bytes"].as_u64().unwrap() < bytes * 11 / 10, "read again: {big:#}");
    // One process renamed what another wrote.
    assert_eq!(fs::metadata(place.path("three")).unwrap().len(), 2 * bytes);
    assert!(number(&report, "/processes") >= 6, "{report:#}");
}

/// The results are the same with and without watching, and everything the program does is seen.
#[test]
fn a_program_that_does_everything_does_it_unchanged() {
    let place = TestDir::with_store();
    let Some(program) = compiled(&place, EVERYTHING, &["-pthread", "-rdynamic"]) else { return };
    let (plain, traced) = (place.path("plain"), place.path("traced"));
    for dir in [&plain, &traced] {
        fs::create_dir(dir).unwrap();
    }
    let path = |dir: &std::path::Path| dir.display().to_string();
    let alone = said(std::process::Command::new(&program).arg(path(&plain)));
    assert_eq!(alone.code, 7, "{alone:?}");
    let (done, report) = watched(&place, &[], [program.display().to_string(), path(&traced)]);
    assert_eq!((done.code, &done.out, &done.err), (7, &alone.out, &alone.err), "{report:#}");
    let (mut one, mut other) = (crate::common::tree(&plain), crate::common::tree(&traced));
    for list in [&mut one, &mut other] {
        for (path, _) in list {
            *path = path.file_name().unwrap().into();
        }
    }
    assert!(one == other, "files differ");

    let at = |name: &str| file(&report, &traced.join(name));
    let side = |name: &str, what: &str| number(at(name), &format!("/file/{what}"));
    // Four threads write 256 pieces of 4 KiB each at their own places, and read them back.
    assert_eq!((side("threads", "writes/accesses"), side("threads", "writes/bytes")), (1024, 1 << 22));
    assert!(side("threads", "reads/accesses") >= 1024);
    assert_eq!(side("threads", "size_bytes"), 1 << 22);
    // Every third block of 4 KiB.
    assert!(side("strided", "reads/strided") >= 95, "{:#}", at("strided"));
    // A child of `fork`, and the program that it executes.
    assert_eq!(side("forked", "writes/bytes"), 5 * 1000);
    assert_eq!(side("execed", "writes/bytes"), 6);
    assert_eq!(side("vforked", "writes/bytes"), 8);
    // C streams: formatted output shows when they are closed.
    assert_eq!(side("stream", "writes/bytes"), fs::metadata(traced.join("stream")).unwrap().len());
    assert!(side("stream", "writes/accesses") < 200, "by the buffer, not by the call: {:#}", at("stream"));
    assert_eq!(at("stream")["file"]["streamed"], true);
    assert_eq!(side("mapped", "mapped_bytes"), 1 << 20);
    // `renamed` was written under another name.
    assert_eq!(side("renamed", "writes/bytes"), 3000);
    assert_eq!(side("duplicated", "writes/bytes"), 12);
    assert_eq!(side("appended", "writes/sequential"), 20);

    let places: Vec<&Value> =
        report["items"].as_array().unwrap().iter().filter(|item| item["kind"] == "memory").collect();
    let made_by = |function: &str| {
        let found = places.iter().find(|item| item["name"].as_str().unwrap().contains(function));
        *found.unwrap_or_else(|| panic!("{function} in {places:#?}"))
    };
    let hot = made_by("make_hot");
    assert_eq!(number(hot, "/memory/object_bytes_max"), 24 << 20);
    let cold = made_by("make_cold");
    let share = |item: &Value| {
        number(item, "/memory/touched_bytes") as f64 / number(item, "/memory/sampled_bytes").max(1) as f64
    };
    assert!(number(hot, "/memory/samples") >= 3, "{hot:#}");
    assert!(share(hot) > 0.5, "{hot:#}");
    // Its pages were touched when it was filled, at most.
    assert!(share(cold) < share(hot) / 1.5, "{cold:#}{hot:#}");
    let short = made_by("make_short");
    assert_eq!((number(short, "/memory/made"), number(short, "/memory/freed")), (300, 300));
    assert_eq!(number(short, "/memory/live_bytes_max"), 1 << 20);
    let grown = made_by("grow");
    assert!(number(grown, "/memory/object_bytes_max") >= 8 << 20, "{grown:#}");
    let left: u64 = places
        .iter()
        .filter(|item| item["name"].as_str().unwrap().contains("grow"))
        .map(|item| number(item, "/memory/made") - number(item, "/memory/freed"))
        .sum();
    assert_eq!(left, 0, "all of it was given back: {places:#?}");
}

#[test]
fn python_is_seen() {
    let place = TestDir::with_store();
    let script = r"
import os, subprocess, sys
data = os.urandom(1 << 20)
with open('data', 'wb') as f:
    f.write(data)
fd = os.open('data', os.O_RDONLY)
state = 1
for i in range(3000):
    state = state * 6364136223846793005 % 2**64 + 1442695040888963407
    os.pread(fd, 4096, (state >> 40) % 256 * 4096)
subprocess.run(['cp', 'data', 'copy'], check=True)
assert open('copy', 'rb').read() == data
try:
    import numpy
    a = numpy.arange(1 << 20, dtype='f8'); numpy.save('array.npy', a); assert (numpy.load('array.npy') == a).all()
except ImportError:
    print('without numpy')
print('done')
";
    let (done, report) = watched(&place, &[], ["python3", "-c", script]);
    if done.code == 127 {
        println!("skipped: there is no python3");
        return;
    }
    assert!(done.code == 0 && done.out.ends_with("done\n"), "{done:?}");
    let data = file(&report, &place.path("data"));
    assert!(number(data, "/file/reads/accesses") >= 3000, "{data:#}");
    assert!(data["reason"].as_str().unwrap().contains("random"), "{data:#}");
    assert_eq!(number(file(&report, &place.path("copy")), "/file/writes/bytes"), 1 << 20);
    if !done.out.contains("without numpy") {
        assert!(number(file(&report, &place.path("array.npy")), "/file/writes/bytes") >= 8 << 20);
    }
    assert!(number(&report, "/own_files") > 10, "its modules are not its data");
}

/// Counts survive whatever ends the program, and its exit status is passed on.
#[test]
fn a_killed_program_still_gives_a_report() {
    let place = TestDir::with_store();
    let script = "dd if=/dev/zero of=big bs=4k count=300 2>/dev/null; exec dd if=/dev/zero of=big bs=4k conv=notrunc 2>/dev/null";
    let report = place.path("report.json");
    let mut child = advise(&place, &["--json", "--output", report.to_str().unwrap()], ["sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    let victim = loop {
        assert!(begin.elapsed() < Duration::from_mins(1), "it does not begin");
        std::thread::sleep(Duration::from_millis(30));
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
        let Some(pid) = children.split_whitespace().next().and_then(|pid| pid.parse::<i32>().ok()) else { continue };
        if fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains("notrunc"))
            && fs::metadata(place.path("big")).is_ok_and(|found| found.len() > 4 << 20)
        {
            break pid;
        }
    };
    let pid = rustix::process::Pid::from_raw(victim).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 9));
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!(report["signal"], 9);
    let big = file(&report, &place.path("big"));
    // Every write except the one in which it died.
    let written = fs::metadata(place.path("big")).unwrap().len();
    let seen = number(big, "/file/writes/bytes") - 300 * 4096;
    assert!(seen <= written && seen + 8192 >= written, "{seen} of {written}");
}

#[test]
fn signals_are_passed_on_and_masks_are_the_programs_own() {
    let place = TestDir::with_store();
    let script = "trap 'echo told; exit 5' TERM; grep SigBlk /proc/self/status; echo ready > ready; while :; do sleep 0.05; done";
    let child = advise(&place, &["--output", "/dev/null"], ["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !place.path("ready").exists() {
        assert!(begin.elapsed() < Duration::from_mins(1), "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((output.status.code(), text.lines().last()), (Some(5), Some("told")), "{text}");
    assert!(text.contains("SigBlk:\t0000000000000000"), "nothing is blocked in it: {text}");
}

#[test]
fn what_cannot_be_watched_is_said_before_it_runs() {
    let place = TestDir::with_store();
    let main = "#include <stdio.h>\nint main(void) { fclose(fopen(\"ran\", \"w\")); return 0; }\n";
    if let Some(program) = compiled(&place, main, &["-static"]) {
        let done = said(&mut advise(&place, &[], [&program]));
        assert!(done.code == 1 && done.err.contains("statically"), "{done:?}");
        assert!(!place.path("ran").exists(), "it was run");
        // The same in a script.
        let script = place.path("script");
        fs::write(&script, format!("#!{}\n", program.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let done = said(&mut advise(&place, &[], [&script]));
        assert!(done.code == 1 && done.err.contains("statically"), "{done:?}");
    }
    let done = said(&mut advise(&place, &[], ["no-such-program-here"]));
    assert!(done.code == 1 && done.err.contains("PATH"), "{done:?}");
    let setuid = place.path("setuid");
    fs::copy("/bin/true", &setuid).unwrap();
    if rustix::process::geteuid().is_root() {
        rustix::fs::chown(&setuid, rustix::fs::Uid::from_raw(65_534).into(), None).unwrap();
        fs::set_permissions(&setuid, fs::Permissions::from_mode(0o4755)).unwrap();
        let done = said(&mut advise(&place, &[], [&setuid]));
        assert!(done.code == 1 && done.err.contains("setuid"), "{done:?}");
    } else {
        println!("skipped: only root can make a program of another user");
    }
    let done = said(advise(&place, &[], ["true"]).env("CENOTE_TRACE_LIBRARY", "/no/such.so"));
    assert!(done.code == 1 && done.err.contains("make build"), "{done:?}");
    // A program that removes the tracer from its own environment.
    let done = said(&mut advise(&place, &[], ["env", "-i", "/bin/sh", "-c", "exit 3"]));
    assert_eq!(done.code, 3, "{done:?}");
}

/// The tracer alone, without a place for traces, has no effect.
#[test]
fn without_a_place_for_traces_nothing_happens() {
    let place = TestDir::new();
    for dir in ["/no/such/directory", "", "/proc"] {
        let mut program = std::process::Command::new("sh");
        program.args(["-c", "echo hello; cat /dev/null; exit 4"]).env("LD_PRELOAD", tracer());
        let done = said(program.env("CENOTE_TRACE_DIR", dir).current_dir(&place.dir));
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (4, "hello\n", ""));
    }
}
