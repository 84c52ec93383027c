//! Formats the reasons in a few words.

use cenote_model::size::human;
use cenote_policy::DeviceView;
use cenote_tally::read::Side;
use cenote_tally::{FileUse, MemoryUse, file_flag};

use crate::advice::is_input;
use crate::choose::Item;
use crate::memory::{SAMPLES_LEAST, is_empty, touched_share};

/// The access pattern, by the share of sequential or strided accesses.
pub(crate) fn pattern(side: &Side) -> &'static str {
    let share = |part: u64| part as f64 / side.accesses.max(1) as f64;
    match (share(side.sequential), share(side.strided)) {
        (sequential, _) if sequential >= 0.8 => "sequential",
        (_, strided) if strided >= 0.6 => "strided",
        (sequential, strided) if sequential + strided >= 0.8 => "regular",
        _ => "random",
    }
}

fn side_words(side: &Side, what: &str) -> Option<String> {
    if side.accesses == 0 {
        return None;
    }
    let mean = side.bytes / side.accesses;
    let again = side.bytes as f64 / side.unique_bytes().max(1) as f64;
    let again = if again >= 1.5 { format!(", {again:.1} times over") } else { String::new() };
    if side.accesses == 1 {
        return Some(format!("1 {what} of {}{again}", human(mean)));
    }
    Some(format!("{} {} {what}s of {}{again}", side.accesses, pattern(side), human(mean)))
}

/// The reason for a file.
pub(crate) fn of_file(file: &FileUse, item: &Item, tier: Option<usize>, tiers: &[DeviceView], room: &[u64]) -> String {
    let mut words: Vec<String> =
        [side_words(&file.reads, "read"), side_words(&file.writes, "write")].into_iter().flatten().collect();
    match file.waits_for_media() {
        0 => {}
        1 => words.push("1 sync".into()),
        syncs => words.push(format!("{syncs} syncs")),
    }
    let best =
        item.there_s.iter().enumerate().filter_map(|(at, s)| Some((at, (*s)?))).min_by(|a, b| a.1.total_cmp(&b.1));
    match tier {
        Some(tier) => {
            if file.is_temporary() {
                words.push("deleted in the end: it need not be durable".into());
            } else if !tiers[tier].kind.is_persistent() && file.writes.bytes > 0 {
                words.push("becomes durable behind the program".into());
            }
            if is_input(file) && !file.is(file_flag::GROUP) {
                let seconds = item.bytes as f64 / tiers[tier].speed.write_bandwidth;
                words.push(format!("to be put there first ({seconds:.2} s)"));
            }
            if let Some((best, _)) = best
                && best != tier
            {
                words.push(format!("`{}` has no room", tiers[best].name));
            }
        }
        None => match best {
            Some((best, there_s)) if there_s < item.now_s * 0.95 && room[best] < item.bytes => {
                words.push(format!("no room on `{}`", tiers[best].name));
            }
            Some((best, there_s)) if there_s >= item.now_s * 0.95 => {
                words.push(format!("no faster on any tier (`{}` {:.3} s)", tiers[best].name, there_s));
            }
            Some(_) => words.push("too little to gain".into()),
            None => words.push("no tier can take it".into()),
        },
    }
    if file.is(file_flag::MAPPED) {
        words.push("also mapped: what page faults took is not in these times".into());
    }
    words.join("; ")
}

/// The reason for memory objects.
pub(crate) fn of_memory(memory: &MemoryUse, tier: Option<usize>, wall_s: f64) -> String {
    let count = if memory.made == 1 { "1 object".to_owned() } else { format!("{} objects", memory.made) };
    let mut words = vec![count];
    if memory.samples == 0 {
        words.push("none lived long enough to be sampled".into());
    } else {
        let share = touched_share(memory) * 100.0;
        words.push(format!("{share:.0}% of the pages touched between two samples ({} seen)", memory.samples));
        if memory.is_shared_out {
            words.push("estimated: shared a mapping".into());
        }
        match tier {
            Some(_) => words.push("cold: memory becomes free".into()),
            None if is_empty(memory) => words.push("never filled: it takes no memory".into()),
            None if memory.samples < SAMPLES_LEAST => words.push("too few samples to judge".into()),
            None => words.push(format!("too hot to leave memory for 1% of {wall_s:.1} s")),
        }
    }
    words.join("; ")
}
