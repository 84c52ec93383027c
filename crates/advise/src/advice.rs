//! Combines the program's accesses, their time on each tier, and the choice of a tier.

use cenote_policy::DeviceView;
use cenote_tally::{FileUse, MemoryUse, Run, file_flag};

use crate::choose::{Item, choose};
use crate::{cost, memory, reason};

/// Gains below this many seconds are not reported.
const GAIN_LEAST_S: f64 = 1e-3;
/// Upper bound of the files that are judged separately: those that took most time.
const FILES_MOST: usize = 2000;

/// The subject of a recommendation.
#[derive(Clone, PartialEq, Debug)]
pub enum Subject {
    /// A file, or the files of a group.
    File(Box<FileUse>),
    /// Memory objects of one allocation site.
    Memory(MemoryUse),
}

/// A recommended place.
#[derive(Clone, PartialEq, Debug)]
pub struct Recommendation {
    /// The subject.
    pub subject: Subject,
    /// Its bytes.
    pub bytes: u64,
    /// Index of the recommended tier among the given ones; `None`: leave it in place.
    pub tier: Option<usize>,
    /// Seconds that the program spent on it; for memory a lower bound.
    pub now_s: f64,
    /// Seconds on the recommended tier, or as now.
    pub there_s: f64,
    /// Seconds on each tier; `None` if it cannot be there.
    pub options_s: Vec<Option<f64>>,
    /// The reason.
    pub reason: String,
}

impl Recommendation {
    /// The path of the file, or the allocation site.
    pub fn name(&self) -> &str {
        match &self.subject {
            Subject::File(file) => &file.path,
            Subject::Memory(memory) => &memory.place,
        }
    }
    /// Seconds gained; negative: lost, for memory that becomes free.
    pub fn gain_s(&self) -> f64 {
        self.now_s - self.there_s
    }
    /// The gain as a share of the present time.
    pub fn gain_share(&self) -> f64 {
        if self.now_s > 0.0 { self.gain_s() / self.now_s } else { 0.0 }
    }
}

/// Files that were not judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Files of the system and of the program itself: libraries, modules, settings.
    pub own_files: usize,
    /// Files beyond the upper bound.
    pub more_files: usize,
}

/// All recommendations.
#[derive(Clone, PartialEq, Debug)]
pub struct Advice {
    /// Seconds that the program ran.
    pub wall_s: f64,
    /// Judged subjects: the largest gains first, then those that took most time.
    pub items: Vec<Recommendation>,
    /// Subjects that were not judged.
    pub kept: Kept,
    /// Remaining space on each tier, in bytes.
    pub room_bytes: Vec<u64>,
}

impl Advice {
    /// Seconds gained by files.
    pub fn gain_s(&self) -> f64 {
        let gains = self.items.iter().filter(|item| item.tier.is_some()).map(|item| item.gain_s().max(0.0));
        // An empty sum is -0.
        gains.sum::<f64>().max(0.0)
    }
    /// Memory of the machine that becomes free, in bytes.
    pub fn freed_bytes(&self) -> u64 {
        let freed = self.items.iter().filter(|item| item.tier.is_some() && matches!(item.subject, Subject::Memory(_)));
        freed.map(|item| item.bytes).sum()
    }
}

/// Returns true if the file belongs to the program or the system rather than into a store: libraries, modules,
/// settings.
pub fn is_programs_own(path: &str) -> bool {
    const DIRS: [&str; 8] = ["/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/", "/etc/", "/run/", "/nix/"];
    const ENDINGS: [&str; 6] = [".so", ".py", ".pyc", ".pyi", ".pem", ".cache"];
    const PARTS: [&str; 5] = [".so.", "/site-packages/", "/lib/python3", "/.pyenv/", "/__pycache__/"];
    DIRS.iter().any(|dir| path.starts_with(dir))
        || ENDINGS.iter().any(|ending| path.ends_with(ending))
        || PARTS.iter().any(|part| path.contains(part))
}

/// Recommends a tier for what a program used. `tiers` are those of the store, `wall_s` is the program's run time.
pub fn advise(run: &Run, tiers: &[DeviceView], wall_s: f64) -> Advice {
    let mut kept = Kept::default();
    let mut files: Vec<&FileUse> = Vec::new();
    for file in run.files.values() {
        if is_programs_own(&file.path) {
            kept.own_files += 1;
        } else if file.reads.accesses + file.writes.accesses > 0 {
            files.push(file);
        }
    }
    files.sort_by(|a, b| b.seconds().total_cmp(&a.seconds()));
    kept.more_files = files.len().saturating_sub(FILES_MOST);
    files.truncate(FILES_MOST);

    let mut room: Vec<u64> = tiers.iter().map(DeviceView::room_bytes).collect();
    let wanted: Vec<Item> = files.iter().map(|file| file_item(file, tiers)).collect();
    let chosen = choose(&wanted, &mut room, GAIN_LEAST_S);
    let mut items: Vec<Recommendation> = files
        .iter()
        .zip(wanted)
        .zip(chosen)
        .map(|((file, item), tier)| {
            let there_s = tier.and_then(|tier| item.there_s[tier]).unwrap_or(item.now_s);
            Recommendation {
                reason: reason::of_file(file, &item, tier, tiers, &room),
                subject: Subject::File(Box::new((*file).clone())),
                bytes: item.bytes,
                tier,
                now_s: item.now_s,
                there_s,
                options_s: item.there_s,
            }
        })
        .collect();
    items.extend(judge_memory(run, tiers, &mut room, wall_s));
    let rank = |item: &Recommendation| if item.tier.is_some() { item.gain_s() } else { f64::NEG_INFINITY };
    items.sort_by(|a, b| rank(b).total_cmp(&rank(a)).then(b.now_s.total_cmp(&a.now_s)).then(b.bytes.cmp(&a.bytes)));
    Advice { wall_s, items, kept, room_bytes: room }
}

fn file_item(file: &FileUse, tiers: &[DeviceView]) -> Item {
    Item {
        bytes: cost::footprint_bytes(file),
        now_s: file.seconds(),
        there_s: tiers.iter().map(|tier| cost::file_seconds(file, tier, tiers)).collect(),
    }
}

/// Judges memory objects; first those that free most bytes for each second lost.
fn judge_memory(run: &Run, tiers: &[DeviceView], room: &mut [u64], wall_s: f64) -> Vec<Recommendation> {
    let mut items: Vec<Recommendation> = run
        .memory
        .values()
        .map(|used| Recommendation {
            subject: Subject::Memory(used.clone()),
            bytes: memory::taken_bytes(used),
            tier: None,
            now_s: memory::now_seconds(used, tiers),
            there_s: memory::now_seconds(used, tiers),
            options_s: tiers.iter().map(|tier| memory::there_seconds(used, tier, tiers)).collect(),
            reason: String::new(),
        })
        .collect();
    let loss = |item: &Recommendation| {
        let least = item.options_s.iter().flatten().fold(f64::INFINITY, |least, s| least.min(*s));
        (least - item.now_s) / item.bytes.max(1) as f64
    };
    items.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
    for item in &mut items {
        let Subject::Memory(used) = &item.subject else { continue };
        let fits = |(tier, there): (usize, &Option<f64>)| {
            let there = (*there)?;
            let good = room[tier] >= item.bytes && memory::is_bearable(used, there - item.now_s, wall_s);
            good.then_some((tier, there))
        };
        let best = item.options_s.iter().enumerate().filter_map(fits).min_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((tier, there_s)) = best {
            room[tier] -= item.bytes;
            (item.tier, item.there_s) = (Some(tier), there_s);
        }
        item.reason = reason::of_memory(used, item.tier, wall_s);
    }
    items
}

/// Returns true if the file existed before the program, so that somebody has to put it into the store first.
pub(crate) fn is_input(file: &FileUse) -> bool {
    !file.is(file_flag::CREATED | file_flag::TRUNCATED)
}

#[cfg(test)]
mod tests;
