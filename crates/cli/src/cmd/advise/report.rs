//! Report on a run: a table for people, a JSON document for programs.

use std::path::Path;

use cenote::model::size::human;
use cenote_advise::{Advice, Recommendation, Rules, Subject};
use cenote_policy::DeviceView;
use cenote_tally::read::Side;
use cenote_tally::{FileUse, MemoryUse, Run, file_flag};
use serde_json::{Value, json};

use super::super::tiers::{rate, time};
use super::AdviseArgs;
use super::tiers::TierSet;
use super::watch::Seen;
use crate::failure::Done;
use crate::out::Out;

/// Unmarks files that were deleted and exist again, such as the replaced output of a program.
pub fn look_again(run: &mut Run) {
    for file in run.files.values_mut() {
        if file.is(file_flag::DELETED) && Path::new(&file.path).exists() {
            file.flags &= !file_flag::DELETED;
        }
    }
}

/// Writes the report.
pub fn write(
    out: &mut Out,
    args: &AdviseArgs,
    known: &TierSet,
    seen: &Seen,
    advice: &Advice,
    policy: Option<(&Path, &Rules)>,
) -> Done {
    if out.json {
        return out.document(&document(args, known, seen, advice, policy));
    }
    heading(out, known, seen)?;
    if seen.run.processes == 0 {
        out.line(
            "  the tracer was not loaded: was LD_PRELOAD taken from the environment, or is the program run elsewhere?",
        )?;
        return Ok(());
    }
    let titles = ["what", ">size", ">now", "tier", ">there", ">gain", ">", "why"];
    let listed = listed(advice);
    let shown = listed.len().min(args.top);
    let rows: Vec<Vec<String>> = listed.iter().take(args.top).map(|item| row(item, &known.tiers)).collect();
    if rows.is_empty() {
        out.line("no file of its own was read or written, and no large memory object was made")?;
    } else {
        out.table(&titles, &rows)?;
    }
    summary(out, shown, known, seen, advice)?;
    if let Some((file, rules)) = policy {
        out.line(format!("policy for {} in {}", counted(rules.files, "file"), file.display()))?;
        if rules.left_out > 0 {
            out.line(format!(
                "  {} of less gain have no rule: there would be too many",
                counted(rules.left_out, "file")
            ))?;
        }
        if args.apply {
            out.line("  containers follow it once they have the policy `user`: cenote set CONTAINER --policy user")?;
        }
    }
    if let Some(file) = &args.plot {
        out.line(format!("drawn in {}", file.display()))?;
    }
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn heading(out: &mut Out, known: &TierSet, seen: &Seen) -> Done {
    let end = match seen.signal {
        Some(signal) => format!("ended by signal {signal}"),
        None => format!("exit code {}", seen.exit_code),
    };
    let run = &seen.run;
    out.line(format!("{:.2} s, {}, {end}", seen.wall_s, processes(run.processes)))?;
    match &known.store {
        Some(dir) => out.line(format!("tiers of the store {}:", dir.display()))?,
        None => out.line("tiers that `cenote init` would make of this machine:")?,
    }
    for tier in &known.tiers {
        let speed = &tier.speed;
        out.line(format!(
            "  {}: {}, {} free of {}, reads after {} at {}, writes after {} at {}",
            tier.name,
            tier.kind.word(),
            human(tier.room_bytes()),
            human(tier.capacity_bytes),
            time(speed.read_latency_ns),
            rate(speed.read_bandwidth),
            time(speed.write_latency_ns),
            rate(speed.write_bandwidth)
        ))?;
    }
    Ok(())
}

fn processes(count: u64) -> String {
    match count {
        1 => "1 program watched".to_owned(),
        count => format!("{count} programs watched"),
    }
}

/// Names a memory object by its innermost function; if that has no name, adds the first one that has.
pub fn place(memory: &MemoryUse) -> String {
    let innermost = memory.place.lines().next().unwrap_or("unknown");
    match memory.place.lines().find_map(|line| line.split_once(" in ")) {
        Some((function, _)) if !innermost.contains(" in ") => {
            let function = function.split('+').next().unwrap_or(function);
            format!("memory: {innermost} below {function}")
        }
        _ => format!("memory: {innermost}"),
    }
}

/// Returns the listed recommendations: without the many small memory objects that stay where they are.
pub fn listed(advice: &Advice) -> Vec<&Recommendation> {
    let is_memory = |item: &&Recommendation| matches!(item.subject, Subject::Memory(_));
    let largest = advice.items.iter().filter(is_memory).map(|item| item.bytes).max().unwrap_or(0);
    let is_small = |item: &&Recommendation| is_memory(item) && item.tier.is_none() && item.bytes < largest / 16;
    advice.items.iter().filter(|item| !is_small(item)).collect()
}

fn row(item: &Recommendation, tiers: &[DeviceView]) -> Vec<String> {
    let (name, is_least) = match &item.subject {
        Subject::File(file) => (crate::out::escaped(file.path.as_bytes()), ""),
        Subject::Memory(memory) => (crate::out::escaped(place(memory).as_bytes()), "≥ "),
    };
    let (tier, there, gain, share) = match item.tier {
        Some(tier) => (
            tiers[tier].name.to_string(),
            format!("{is_least}{}", time(item.there_s * 1e9)),
            signed(item.gain_s()),
            format!("{:+.0}%", -item.gain_share() * 100.0),
        ),
        None => ("stays".to_owned(), String::new(), String::new(), String::new()),
    };
    vec![
        name,
        human(item.bytes),
        format!("{is_least}{}", time(item.now_s * 1e9)),
        tier,
        there,
        gain,
        share,
        item.reason.clone(),
    ]
}

fn signed(seconds: f64) -> String {
    let words = time(seconds.abs() * 1e9);
    if seconds < 0.0 { format!("-{words}") } else { words }
}

fn summary(out: &mut Out, shown: usize, known: &TierSet, seen: &Seen, advice: &Advice) -> Done {
    let more = advice.items.len() - shown;
    if more > 0 {
        out.line(format!("and {more} more of less weight (--json has all)"))?;
    }
    if advice.kept.own_files > 0 {
        out.line(format!("left out: {} of the system and of programs", counted(advice.kept.own_files, "file")))?;
    }
    let files = advice.items.iter().filter(|item| matches!(item.subject, Subject::File(_)));
    let files = files.map(|item| item.now_s).fold(0.0, |sum, s| sum + s);
    let share = if advice.wall_s > 0.0 { advice.gain_s() / advice.wall_s * 100.0 } else { 0.0 };
    out.line(format!(
        "file I/O took {} of {:.2} s; as recommended it would take {} less ({share:.1}% of the run)",
        time(files * 1e9),
        advice.wall_s,
        time(advice.gain_s() * 1e9)
    ))?;
    if advice.freed_bytes() > 0 {
        out.line(format!("{} of memory would become free", human(advice.freed_bytes())))?;
    }
    for (tier, left) in known.tiers.iter().zip(&advice.room_bytes) {
        let taken = tier.room_bytes() - left;
        if taken > 0 {
            out.line(format!("  {}: {} of the {} that are free", tier.name, human(taken), human(tier.room_bytes())))?;
        }
    }
    if seen.run.missed > 0 {
        out.line(format!(
            "of {} accesses only number and bytes are known: threads or signal handlers on one file at once",
            seen.run.missed
        ))?;
    }
    if seen.run.objects_missed > 0 {
        out.line(format!("{} memory objects could not be counted: too many at a time", seen.run.objects_missed))?;
    }
    for why in &seen.damaged {
        out.line(format!("a trace is left out: {}", crate::out::escaped(why.as_bytes())))?;
    }
    Ok(())
}

fn document(
    args: &AdviseArgs,
    known: &TierSet,
    seen: &Seen,
    advice: &Advice,
    policy: Option<(&Path, &Rules)>,
) -> Value {
    let tiers = known.tiers.iter().zip(&advice.room_bytes).map(|(tier, left)| {
        json!({
            "name": &*tier.name,
            "kind": tier.kind.word(),
            "capacity_bytes": tier.capacity_bytes,
            "room_bytes": tier.room_bytes(),
            "room_left_bytes": left,
            "read_latency_ns": tier.speed.read_latency_ns,
            "write_latency_ns": tier.speed.write_latency_ns,
            "read_bytes_per_s": tier.speed.read_bandwidth,
            "write_bytes_per_s": tier.speed.write_bandwidth,
        })
    });
    json!({
        "program": args.program.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
        "exit_code": seen.exit_code,
        "signal": seen.signal,
        "seconds": seen.wall_s,
        "processes": seen.run.processes,
        "samples": seen.samples,
        "accesses_without_place": seen.run.missed,
        "objects_missed": seen.run.objects_missed,
        "damaged": seen.damaged,
        "store": known.store.as_ref().map(|dir| dir.display().to_string()),
        "tiers": tiers.collect::<Vec<_>>(),
        "gain_s": advice.gain_s(),
        "freed_bytes": advice.freed_bytes(),
        "own_files": advice.kept.own_files,
        "items": advice.items.iter().map(|item| item_document(item, &known.tiers)).collect::<Vec<_>>(),
        "policy": policy.map(|(file, _)| file.display().to_string()),
    })
}

fn item_document(item: &Recommendation, tiers: &[DeviceView]) -> Value {
    let options = tiers.iter().zip(&item.options_s).map(|(tier, seconds)| (tier.name.to_string(), json!(seconds)));
    let mut document = json!({
        "name": item.name(),
        "bytes": item.bytes,
        "tier": item.tier.map(|tier| tiers[tier].name.to_string()),
        "now_s": item.now_s,
        "there_s": item.there_s,
        "gain_s": item.gain_s(),
        "gain_percent": item.gain_share() * 100.0,
        "reason": item.reason,
        "options_s": options.collect::<serde_json::Map<_, _>>(),
    });
    match &item.subject {
        Subject::File(file) => {
            document["kind"] = "file".into();
            document["file"] = file_document(file);
        }
        Subject::Memory(memory) => {
            document["kind"] = "memory".into();
            document["memory"] = memory_document(memory);
        }
    }
    document
}

fn file_document(file: &FileUse) -> Value {
    let side = |side: &Side| {
        json!({
            "accesses": side.accesses,
            "bytes": side.bytes,
            "unique_bytes": side.unique_bytes(),
            "seconds": side.ns as f64 / 1e9,
            "sequential": side.sequential,
            "strided": side.strided,
            "by_size": side.sizes,
        })
    };
    let life = file.last_ns.saturating_sub(file.first_ns) as f64 / 1e9;
    json!({
        "reads": side(&file.reads),
        "writes": side(&file.writes),
        "syncs": file.syncs,
        "sync_s": file.sync_ns as f64 / 1e9,
        "opens": file.opens,
        "size_bytes": file.size_bytes,
        "in_use_s": life,
        "bursts": file.bursts,
        "switches": file.switches,
        "temporary": file.is_temporary(),
        "group": file.is(file_flag::GROUP),
        "streamed": file.is(file_flag::STREAMED),
        "mapped_bytes": file.mapped_bytes,
        "mapped_touched_bytes": file.touched_bytes,
        "processes": file.processes,
    })
}

fn memory_document(memory: &MemoryUse) -> Value {
    json!({
        "place": memory.place.lines().collect::<Vec<_>>(),
        "made": memory.made,
        "freed": memory.gone,
        "made_bytes": memory.made_bytes,
        "live_bytes_max": memory.live_bytes_max,
        "resident_bytes_max": memory.resident_bytes_max,
        "object_bytes_max": memory.object_bytes_max,
        "mean_life_s": memory.life_ns as f64 / 1e9 / memory.gone.max(1) as f64,
        "samples": memory.samples,
        "sampled_bytes": memory.sampled_bytes,
        "touched_bytes": memory.touched_bytes,
        "shared_mapping": memory.is_shared_out,
    })
}
