//! The allocator: which allocation units of a device are free.

/// Units in a zone: its bits fill a page.
const ZONE_UNITS: u64 = 32_768;
/// Longest run of a zone: unknown, or the run goes on in the next zone.
const UNKNOWN: u32 = u32::MAX;
/// How far to look around freed units for a longer run.
const LOOK_UNITS: u64 = 64;
const WORDS: usize = (ZONE_UNITS / 64) as usize;

/// A bit per unit, in zones; zones that are all free or all used take no bits.
#[derive(Debug)]
pub(crate) struct Bitmap {
    units: u64,
    segment_units: u64,
    zones: Vec<Zone>,
    free_units: u64,
    cursor: u64,
}

#[derive(Debug)]
struct Zone {
    /// Free units. The bits are absent when this is 0 or all.
    free: u32,
    /// Upper bound of the zone's runs of free units, or [`UNKNOWN`]: searches for long runs skip fragmented zones.
    longest: u32,
    used_bits: Option<Box<[u64; WORDS]>>,
}

impl Bitmap {
    /// Returns a map with all units free. Runs never cross a multiple of `segment_units`.
    pub fn new(units: u64, segment_units: u64) -> Self {
        let zones = (0..units.div_ceil(ZONE_UNITS))
            .map(|z| Zone { free: ZONE_UNITS.min(units - z * ZONE_UNITS) as u32, longest: UNKNOWN, used_bits: None })
            .collect();
        Self { units, segment_units: segment_units.max(1), zones, free_units: units, cursor: 0 }
    }
    pub fn units(&self) -> u64 {
        self.units
    }
    pub fn free_units(&self) -> u64 {
        self.free_units
    }
    fn zone_units(&self, zone: u64) -> u64 {
        ZONE_UNITS.min(self.units - zone * ZONE_UNITS)
    }
    /// Begins the next search at the first unit.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }
    /// Finds and marks up to `want` units in runs of at least `run_min`, from where the last search ended. Returns
    /// (first unit, units) of each run; together at most `want`, less if there is no more or after `runs_max` runs.
    pub fn take(&mut self, want: u64, run_min: u64, runs_max: usize) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        let run_min = run_min.clamp(1, want.max(1));
        if run_min > self.segment_units || want == 0 {
            return runs;
        }
        let mut left = want;
        let mut at = if self.cursor < self.units { self.cursor } else { 0 };
        let begin = at;
        let mut wrapped = false;
        let mut segment_end = 0;
        let mut survey = Survey::default();
        while left >= run_min && runs.len() < runs_max {
            let found = self.find_free(at, run_min);
            survey.reach(&mut self.zones, at, found.unwrap_or(self.units));
            let Some(first) = found.filter(|first| !wrapped || *first < begin) else {
                if wrapped {
                    break;
                }
                (wrapped, at) = (true, 0);
                continue;
            };
            if first >= segment_end || at == 0 {
                segment_end = (first / self.segment_units + 1) * self.segment_units;
            }
            let end = self.find_used(first, (first + left).min(segment_end).min(self.units));
            let len = end - first;
            if len >= run_min {
                self.mark(first, len);
                runs.push((first, len));
                left -= len;
                survey.give_up();
            } else {
                survey.note(first, end);
            }
            at = end.max(first + 1);
            if at >= self.units {
                survey.reach(&mut self.zones, at, at);
                if wrapped {
                    break;
                }
                (wrapped, at) = (true, 0);
            }
        }
        if let Some((first, len)) = runs.last() {
            self.cursor = first + len;
        }
        runs
    }
    /// Returns the first free unit at or after `from` in a zone that may have a run of `run_min`.
    fn find_free(&self, from: u64, run_min: u64) -> Option<u64> {
        let mut at = from;
        while at < self.units {
            let zone = at / ZONE_UNITS;
            let zone_end = zone * ZONE_UNITS + self.zone_units(zone);
            let it = &self.zones[zone as usize];
            if it.free == 0 || u64::from(it.longest) < run_min {
                at = zone_end;
                continue;
            }
            let Some(bits) = &it.used_bits else { return Some(at) };
            match find(bits, at % ZONE_UNITS, |word| !word) {
                Some(bit) if zone * ZONE_UNITS + bit < zone_end => return Some(zone * ZONE_UNITS + bit),
                _ => at = zone_end,
            }
        }
        None
    }
    /// Returns the first used unit at or after `from`, or `limit`.
    fn find_used(&self, from: u64, limit: u64) -> u64 {
        let mut at = from;
        while at < limit {
            let zone = at / ZONE_UNITS;
            let zone_end = zone * ZONE_UNITS + self.zone_units(zone);
            let it = &self.zones[zone as usize];
            match &it.used_bits {
                None if it.free == 0 => return at,
                None => at = zone_end,
                Some(bits) => match find(bits, at % ZONE_UNITS, |word| word) {
                    Some(bit) => return (zone * ZONE_UNITS + bit).min(limit),
                    None => at = zone_end,
                },
            }
        }
        limit
    }
    /// Returns the first run of used units at or after `from`.
    pub fn used_run(&self, from: u64) -> Option<(u64, u64)> {
        let first = self.find_used(from, self.units);
        (first < self.units).then(|| (first, self.find_free(first, 1).unwrap_or(self.units) - first))
    }
    /// Returns the first run of free units within `[from, to)`.
    pub fn free_run(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let first = self.find_free(from, 1).filter(|first| *first < to)?;
        Some((first, self.find_used(first, to) - first))
    }
    /// Returns the longest run that [`Bitmap::take`] would find, if it has at least `run_min` units.
    pub fn longest(&self, run_min: u64) -> Option<u64> {
        let (mut at, mut longest) = (0, 0);
        while let Some(first) = self.find_free(at, run_min.max(longest + 1)) {
            let segment_end = (first / self.segment_units + 1) * self.segment_units;
            let end = self.find_used(first, segment_end.min(self.units));
            longest = longest.max(end - first);
            at = end;
        }
        (longest >= run_min.max(1)).then_some(longest)
    }
    /// Marks units used; returns how many were used already.
    pub fn mark(&mut self, first: u64, len: u64) -> u64 {
        self.change(first, len, true)
    }
    /// Marks units free; returns how many were free already.
    pub fn clear(&mut self, first: u64, len: u64) -> u64 {
        self.change(first, len, false)
    }
    fn change(&mut self, first: u64, len: u64, used: bool) -> u64 {
        let end = (first + len).min(self.units);
        let mut wrong = len - end.saturating_sub(first).min(len);
        let mut at = first;
        while at < end {
            let zone = at / ZONE_UNITS;
            let zone_units = self.zone_units(zone);
            let until = end.min(zone * ZONE_UNITS + zone_units);
            let count = until - at;
            let changed = self.zones[zone as usize].change(at % ZONE_UNITS, count, zone_units as u32, used);
            if used {
                self.free_units -= u64::from(changed);
            } else {
                self.free_units += u64::from(changed);
            }
            wrong += count - u64::from(changed);
            at = until;
        }
        wrong
    }
    /// Checks the counts. Fails with what is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut free_units = 0;
        for (z, zone) in (0..).zip(&self.zones) {
            let units = self.zone_units(z);
            let (free, longest) = match &zone.used_bits {
                // Most zones of a large device have no bits: inspecting their units would take seconds.
                None if zone.free == 0 => (0, 0),
                None if u64::from(zone.free) == units => (units, units),
                None => return Err("a zone without bits is neither free nor used"),
                Some(bits) => free_in(bits, units),
            };
            if free != u64::from(zone.free) {
                return Err("a zone counts its free units wrongly");
            }
            if zone.longest != UNKNOWN && longest > u64::from(zone.longest) {
                return Err("a zone has a longer run of free units than it says");
            }
            free_units += free;
        }
        if free_units == self.free_units { Ok(()) } else { Err("its free units are counted wrongly") }
    }
    /// Returns true if all these units are free.
    #[cfg(test)]
    fn is_free(&self, first: u64, len: u64) -> bool {
        self.find_used(first, first + len) == first + len
    }
}

/// What a search learns of a zone that it sees from first to last unit: the longest run there.
#[derive(Default)]
struct Survey {
    zone: u64,
    longest: Option<u32>,
}

impl Survey {
    /// The search went from `from` to `to` and saw no free unit between, except in zones that it skipped.
    fn reach(&mut self, zones: &mut [Zone], from: u64, to: u64) {
        let zone = to / ZONE_UNITS;
        if zone == self.zone && from <= to && from > zone * ZONE_UNITS {
            return;
        }
        if let Some(longest) = self.longest.take()
            && self.zone < zone
        {
            zones[self.zone as usize].longest = longest;
        }
        self.zone = zone;
        self.longest = (from <= zone * ZONE_UNITS).then_some(0);
    }
    /// Notes a run in the present zone of which nothing is taken.
    fn note(&mut self, first: u64, end: u64) {
        let crosses = first.is_multiple_of(ZONE_UNITS) || end / ZONE_UNITS != self.zone;
        let len = if crosses { UNKNOWN } else { (end - first) as u32 };
        self.longest = self.longest.map(|longest| longest.max(len));
    }
    /// Drops what was learned: the rest of the zone has changed.
    fn give_up(&mut self) {
        self.longest = None;
    }
}

impl Zone {
    /// Returns how many units changed.
    fn change(&mut self, first: u64, count: u64, zone_units: u32, used: bool) -> u32 {
        if self.used_bits.is_none() {
            let all_used = self.free == 0;
            if all_used == used {
                return 0;
            }
            if count == u64::from(zone_units) {
                (self.free, self.longest) = if used { (0, 0) } else { (zone_units, UNKNOWN) };
                return zone_units;
            }
            self.used_bits = Some(Box::new([if all_used { u64::MAX } else { 0 }; WORDS]));
        }
        let Some(bits) = &mut self.used_bits else { return 0 };
        let mut changed = 0;
        let mut at = first;
        let end = first + count;
        while at < end {
            let (word, bit) = ((at / 64) as usize, at % 64);
            let n = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - n)) << bit;
            let before = bits[word];
            bits[word] = if used { before | mask } else { before & !mask };
            changed += (before ^ bits[word]).count_ones();
            at += n;
        }
        if used {
            self.free -= changed;
        } else {
            self.free += changed;
        }
        if self.free == 0 || self.free == zone_units {
            self.used_bits = None;
            self.longest = if self.free == 0 { 0 } else { UNKNOWN };
        } else if !used && self.longest != UNKNOWN {
            self.longest = self.longest.max(run_around(bits, first, end, u64::from(zone_units)));
        }
        changed
    }
}

/// Units of the free run that holds `[first, end)`; [`UNKNOWN`] if it touches the zone's begin or end, or is long.
fn run_around(bits: &[u64; WORDS], first: u64, end: u64, zone_units: u64) -> u32 {
    let is_free = |unit: u64| bits[(unit / 64) as usize] & 1 << (unit % 64) == 0;
    let before = (0..first).rev().take(LOOK_UNITS as usize).take_while(|unit| is_free(*unit)).count() as u64;
    let after = (end..zone_units).take(LOOK_UNITS as usize).take_while(|unit| is_free(*unit)).count() as u64;
    let is_known = before < first && end + after < zone_units && before.max(after) < LOOK_UNITS;
    if is_known { (before + end - first + after) as u32 } else { UNKNOWN }
}

/// Free units of a zone, and those of its longest run.
fn free_in(bits: &[u64; WORDS], zone_units: u64) -> (u64, u64) {
    let (mut free, mut longest, mut at) = (0, 0, 0);
    while at < zone_units {
        let Some(first) = find(bits, at, |word| !word).filter(|first| *first < zone_units) else { break };
        let end = find(bits, first, |word| word).unwrap_or(zone_units).min(zone_units);
        (free, longest, at) = (free + end - first, longest.max(end - first), end);
    }
    (free, longest)
}

/// Returns the first bit at or after `from` that is set in `of(word)`.
fn find(bits: &[u64; WORDS], from: u64, of: impl Fn(u64) -> u64) -> Option<u64> {
    let mut word = (from / 64) as usize;
    let mut value = of(bits[word]) & (u64::MAX << (from % 64));
    loop {
        if value != 0 {
            return Some(word as u64 * 64 + u64::from(value.trailing_zeros()));
        }
        word += 1;
        if word == WORDS {
            return None;
        }
        value = of(bits[word]);
    }
}

#[cfg(test)]
mod tests;
