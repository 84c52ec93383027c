use cenote_model::{DeviceId, DeviceKind, DeviceState};

/// What placement needs to know of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceView {
    /// Its id.
    pub id: DeviceId,
    /// Its name, for reasons.
    pub name: String,
    /// What it is made of; the order of kinds is the order of tiers.
    pub kind: DeviceKind,
    /// Where it is in its life.
    pub state: DeviceState,
    /// Bytes that it holds when full.
    pub capacity_bytes: u64,
    /// Bytes that extents take.
    pub used_bytes: u64,
    /// Bytes leased, or waiting for readers to leave.
    pub reserved_bytes: u64,
    /// Draining starts above this…
    pub watermark_high_permille: u16,
    /// …and goes down to this.
    pub watermark_low_permille: u16,
}

impl DeviceView {
    /// Bytes that could be given out now.
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes).saturating_sub(self.reserved_bytes)
    }
    /// Bytes of use at which draining starts.
    pub fn high_bytes(&self) -> u64 {
        permille(self.capacity_bytes, self.watermark_high_permille)
    }
    /// Bytes of use at which draining ends.
    pub fn low_bytes(&self) -> u64 {
        permille(self.capacity_bytes, self.watermark_low_permille)
    }
    /// True if it takes new data.
    pub fn is_online(&self) -> bool {
        self.state == DeviceState::Online
    }
    /// True if use, with `more` added, stays at or below the high watermark.
    pub fn below_high_with(&self, more: u64) -> bool {
        self.used_bytes.saturating_add(self.reserved_bytes).saturating_add(more) <= self.high_bytes()
    }
    /// Use in words: `memory 98% of 64 MiB`.
    pub fn use_words(&self) -> String {
        let taken = self.capacity_bytes - self.free_bytes();
        let percent = (u128::from(taken) * 100).checked_div(u128::from(self.capacity_bytes)).unwrap_or(100);
        let state = match self.state {
            DeviceState::Online => "",
            DeviceState::Draining => ", draining",
            DeviceState::Failed => ", failed",
        };
        format!("`{}` ({}) {percent}% of {}{state}", self.name, self.kind.word(), bytes_words(self.capacity_bytes))
    }
}

fn permille(bytes: u64, part: u16) -> u64 {
    (u128::from(bytes) * u128::from(part.min(1000)) / 1000) as u64
}

/// A size for a person.
pub(crate) fn bytes_words(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}
