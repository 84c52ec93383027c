//! Recommendations for made-up programs and tiers: what goes where, and what stays.

use cenote_model::Durability;
use cenote_policy::{Incoming, from_schema};
use cenote_tally::read::Side;

use super::*;
use crate::testing::{file, memory, run, side, tiers};
use crate::{Rules, policy_text};

fn tier_of(advice: &Advice, name: &str) -> Option<String> {
    let item = advice.items.iter().find(|item| item.name() == name).unwrap_or_else(|| panic!("{name} is not judged"));
    assert!(!item.reason.is_empty());
    item.tier.map(|tier| tiers()[tier].name.to_string())
}

/// The hot file goes to memory, the long stream to where it fits; a file that no tier makes faster stays.
#[test]
fn files_go_where_they_gain_most() {
    let files = [
        file("/data/hot.idx", 32 << 20, side(100_000, 4096, false, 20.0), Side::default()),
        file("/data/stream.bin", 1 << 30, side(1024, 1 << 20, true, 30.0), Side::default()),
        file("/data/fast.bin", 1 << 20, side(10, 100_000, true, 1e-5), Side::default()),
        file("/usr/lib/libm.so.6", 1 << 20, side(10, 100_000, true, 5.0), Side::default()),
    ];
    let advice = advise(&run(&files, &[]), &tiers(), 60.0);
    assert_eq!(tier_of(&advice, "/data/hot.idx").as_deref(), Some("ram"));
    assert_eq!(tier_of(&advice, "/data/stream.bin").as_deref(), Some("ssd"));
    assert_eq!(tier_of(&advice, "/data/fast.bin"), None);
    assert_eq!((advice.kept.own_files, advice.items.len()), (1, 3));
    assert!(advice.gain_s() > 40.0 && advice.gain_s() < 50.0, "{}", advice.gain_s());
    let hot = &advice.items.iter().find(|item| item.name() == "/data/hot.idx").unwrap();
    assert!(hot.gain_share() > 0.9 && hot.reason.contains("100000 random reads"), "{}", hot.reason);
}

#[test]
fn capacity_is_shared_by_gain_and_never_exceeded() {
    let files: Vec<_> = (0..20)
        .map(|at| {
            file(&format!("/d/{at}"), 20 << 20, side(1000 * (at + 1), 4096, false, (at + 1) as f64), Side::default())
        })
        .collect();
    let advice = advise(&run(&files, &[]), &tiers(), 100.0);
    for (at, tier) in tiers().iter().enumerate() {
        let taken: u64 = advice.items.iter().filter(|item| item.tier == Some(at)).map(|item| item.bytes).sum();
        assert!(taken <= tier.room_bytes(), "{}: {taken}", tier.name);
        assert_eq!(advice.room_bytes[at], tier.room_bytes() - taken);
    }
    assert_eq!(tier_of(&advice, "/d/19").as_deref(), Some("ram"), "who gains most");
    assert_ne!(tier_of(&advice, "/d/0").as_deref(), Some("ram"));
}

#[test]
fn syncs_need_a_tier_that_keeps() {
    let mut log = file("/d/log", 1 << 20, Side::default(), side(1000, 1024, true, 4.0));
    log.syncs = 1000;
    log.sync_ns = 4_000_000_000;
    let advice = advise(&run(&[log], &[]), &tiers(), 10.0);
    assert_eq!(tier_of(&advice, "/d/log").as_deref(), Some("pm"));
    let volatile: Vec<DeviceView> = tiers().into_iter().take(1).collect();
    let mut log = file("/d/log", 1 << 20, Side::default(), side(1000, 1024, true, 4.0));
    log.syncs = 1000;
    assert!(advise(&run(&[log], &[]), &volatile, 10.0).items[0].tier.is_none(), "nowhere to be durable");
}

#[test]
fn cold_memory_may_leave_and_hot_memory_may_not() {
    let memories = [
        memory("cold", 100, 0.0, 50),
        memory("hot", 100, 1.0, 50),
        memory("new", 100, 0.0, 2),
        memory("unseen", 100, 0.0, 0),
    ];
    let mut empty = memory("empty", 100, 0.0, 50);
    empty.resident_bytes_max = 4096;
    let memories = [&memories[..], &[empty]].concat();
    let advice = advise(&run(&[], &memories), &tiers(), 10.0);
    assert_eq!(tier_of(&advice, "cold").as_deref(), Some("pm"));
    for stays in ["hot", "new", "unseen", "empty"] {
        assert_eq!(tier_of(&advice, stays), None, "{stays}");
    }
    assert_eq!(advice.freed_bytes(), 100 << 20);
    assert!(advice.items.iter().find(|item| item.name() == "hot").unwrap().reason.contains("100%"));
}

#[test]
fn nothing_is_recommended_for_nothing() {
    let advice = advise(&Run::default(), &tiers(), 0.0);
    assert!(advice.items.is_empty());
    let Rules { text, files, .. } = policy_text(&advice, &tiers()).unwrap();
    assert_eq!(files, 0);
    assert!(from_schema(&text, &tiers()).is_ok());
    let file = file("/d/a", 1 << 20, side(1000, 4096, false, 5.0), Side::default());
    assert!(advise(&run(&[file], &[]), &[], 1.0).items[0].tier.is_none(), "no tiers");
}

/// The generated policy places each file on the recommended tier, whatever its name.
#[test]
fn the_policy_file_sends_files_to_their_tiers() {
    let hot = side(100_000, 4096, false, 20.0);
    let mut scratch = file("/t/sort-a\"b\\c\n.tmp", 8 << 20, hot.clone(), side(100, 1 << 20, true, 5.0));
    scratch.flags = file_flag::CREATED | file_flag::DELETED;
    let mut files = vec![
        file("/data/hot.idx", 16 << 20, hot.clone(), Side::default()),
        file("/data/big.h5", 2 << 30, side(4096, 1 << 20, true, 60.0), Side::default()),
        scratch,
    ];
    for at in 0..5 {
        files.push(file(&format!("/out/ckpt-{at:04}.h5"), 300 << 20, Side::default(), side(300, 1 << 20, true, 9.0)));
    }
    let advice = advise(&run(&files, &[]), &tiers(), 100.0);
    let rules = policy_text(&advice, &tiers()).unwrap();
    assert_eq!((rules.files, rules.left_out), (4, 0), "five checkpoints are one: {}", rules.text);
    assert!(rules.text.contains("ckpt-*.h5"), "{}", rules.text);
    let policy = from_schema(&rules.text, &tiers()).unwrap();
    let goes = |label: &str, bytes: u64| {
        let incoming = Incoming { label, ..Incoming::new(Durability::Async, bytes) };
        let decision = policy.place(&tiers(), &incoming).unwrap();
        tiers()[usize::from(decision.device().0) - 1].name.to_string()
    };
    for item in advice.items.iter().filter(|item| item.tier.is_some()) {
        let label = format!("hdf5:{}", item.name());
        assert_eq!(goes(&label, 1 << 20), tiers()[item.tier.unwrap()].name.to_string(), "{label}");
    }
    assert_eq!(goes("hdf5:/out/ckpt-9999.h5", 1 << 20), "ssd", "the next checkpoint, too");
    assert!(rules.text.contains("mode = \"scratch\""));
}

/// A database creates its journal, waits until it is on media, and deletes it: the file that recovers the database
/// is not scratch.
#[test]
fn what_is_synced_is_never_scratch() {
    let hot = side(100_000, 4096, false, 20.0);
    let mut journal = file("/db/main.db-journal", 8 << 20, hot.clone(), side(100, 1 << 20, true, 5.0));
    journal.flags = file_flag::CREATED | file_flag::DELETED;
    journal.syncs = 10;
    let mut each = file("/db/each-write.log", 8 << 20, hot, side(100, 1 << 20, true, 5.0));
    each.flags = file_flag::CREATED | file_flag::DELETED | file_flag::SYNCED;
    let advice = advise(&run(&[journal, each], &[]), &tiers(), 100.0);
    assert_eq!(advice.items.len(), 2);
    for item in &advice.items {
        assert!(!item.reason.contains("need not be durable"), "{}: {}", item.name(), item.reason);
    }
    let rules = policy_text(&advice, &tiers()).unwrap();
    assert!(!rules.text.contains("scratch"), "{}", rules.text);
}
