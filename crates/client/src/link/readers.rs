//! The reader's side of the shared control table: announcements, version words, and the long-lived pins of views.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cenote_device::control::{ClientFile, ControlView, LockWords, WRITES_TIMED_IN, boot_ns, is_counting};
use cenote_host::fork;
use cenote_model::{DeviceId, Result, Timed};

use super::attachment::Attachment;
use crate::map::pieces::{Part, Source};
use crate::sync::lock;

/// A group of views accepts new members while the reader epoch is at most this far above the group's.
const GROUP_EPOCHS: u64 = 256;
/// Slots available to views; the rest are for reads.
const GROUPS_MAX: usize = 24;

/// When the words of a table say whether something changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Valid {
    /// As long as the table is there: the home is on this node, and can have no other host.
    Always,
    /// Until a time that the table says: another node may become the host of the home.
    UntilTime,
    /// The same, and only those that the daemon of this node was told: another node has the home.
    UntilTold,
}

/// The control table, and the slots of this client.
pub(crate) struct Readers {
    table: ControlView,
    file: ClientFile,
    /// Identity of the table's file: device and inode.
    table_is: (u64, u64),
    counting: bool,
    valid: Valid,
    /// The last tick in which words were valid.
    looked_at: AtomicU64,
    groups: Mutex<Vec<Group>>,
}

/// A value that no word has, and that no other call returns, nor one that follows it.
#[cold]
fn fresh() -> u64 {
    const STRIDE: u64 = 5;
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(STRIDE, Ordering::Relaxed)
}

/// A clock that takes some ns to read and stands still for some ms. It jumps when the machine wakes up.
#[inline]
fn tick() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// Views that share a slot. The slot has the epoch of the first one, which protects the later ones too.
struct Group {
    slot: usize,
    epoch: u64,
    views: usize,
}

/// The announcement of one read.
pub(crate) struct ReadAnnouncement<'a> {
    file: &'a ClientFile,
    slot: usize,
    counting: bool,
}

/// The start of a read.
pub(crate) struct ReadStart {
    /// It stands for [`cenote_device::control::READS_SAMPLED_IN`] reads of this thread.
    pub is_sampled: bool,
    /// Start time, if the read is timed.
    timed: Option<Instant>,
}

impl ReadAnnouncement<'_> {
    /// Starts a read. `sampling`: the caller needs to know whether the read is a sample, even if nothing is counted.
    #[inline]
    pub fn begin(&self, sampling: bool) -> ReadStart {
        let is_sampled = (self.counting || sampling) && self.file.counters().is_sampled(self.slot);
        ReadStart { is_sampled, timed: (self.counting && is_sampled).then(Instant::now) }
    }
    /// Counts a finished read by tier.
    #[inline]
    pub fn count(&self, parts: &[Part], begin: &ReadStart) {
        if !self.counting {
            return;
        }
        let mut slowest = None;
        for part in parts {
            let device = match &part.source {
                Source::Hole | Source::ThroughLink | Source::Kept(..) => continue,
                Source::Mapped(_, device) => *device,
                Source::File { extent, .. } => extent.device,
            };
            self.file.counters().read(self.slot, device, part.len as u64);
            // The file tier determines the time of a read from several tiers.
            if slowest.is_none() || matches!(part.source, Source::File { .. }) {
                slowest = Some(device);
            }
        }
        if let (Some(begin), Some(device)) = (begin.timed, slowest) {
            self.file.counters().took(Timed::Get, device, begin.elapsed().as_nanos() as u64);
        }
    }
}

impl Drop for ReadAnnouncement<'_> {
    #[inline]
    fn drop(&mut self) {
        self.file.slots().clear(self.slot);
    }
}

/// The announcement of a view, for its whole life.
pub(crate) struct ViewAnnouncement {
    attachment: Arc<Attachment>,
    slot: usize,
    generation: u64,
}

impl Drop for ViewAnnouncement {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // a forked child's copy of a view: the announcement is the parent's, which may still read
        }
        let readers = &self.attachment.readers;
        let mut groups = lock(&readers.groups);
        if let Some(at) = groups.iter().position(|group| group.slot == self.slot) {
            groups[at].views -= 1;
            if groups[at].views == 0 {
                readers.file.slots().clear(self.slot);
                groups.remove(at);
            }
        }
    }
}

impl Readers {
    /// The number of this client's session with the home.
    pub fn session(&self) -> u64 {
        self.file.counters().session()
    }
    pub fn new(table: OwnedFd, file: ClientFile, valid: Valid) -> Result<Self> {
        let table_is = rustix::fs::fstat(&table).map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
        let table = ControlView::map(table)?;
        Ok(Self {
            table,
            file,
            table_is,
            counting: is_counting(),
            valid,
            looked_at: AtomicU64::new(0),
            groups: Mutex::default(),
        })
    }
    /// Those of a link that is not attached yet: a table that belongs to no engine.
    pub fn nowhere() -> Result<Self> {
        let (table, file) = cenote_device::control::unattached()?;
        Self::new(table, file, Valid::UntilTold)
    }
    /// The file of this client.
    pub fn file(&self) -> &ClientFile {
        &self.file
    }
    /// Returns the current instance word.
    #[inline]
    pub fn instance(&self) -> u64 {
        self.table.instance()
    }
    /// Returns the version word of this hash; a value that no word has if another node has it and it may have changed.
    #[inline]
    pub fn word(&self, hash: u64) -> u64 {
        match self.valid {
            Valid::Always => self.table.word(hash),
            Valid::UntilTold | Valid::UntilTime => self.known_word(hash).unwrap_or_else(fresh),
        }
    }
    /// Returns the version word of this hash; `None` if another node has it and it may have changed.
    pub fn known_word(&self, hash: u64) -> Option<u64> {
        match self.valid {
            Valid::Always => Some(self.table.word(hash)),
            Valid::UntilTold => self.in_time().then(|| self.table.told(hash)).flatten(),
            Valid::UntilTime => self.in_time().then(|| self.table.word(hash)),
        }
    }
    /// What the table says of locks of files.
    #[inline]
    pub fn lock_words(&self) -> LockWords {
        self.table.lock_words()
    }
    /// Returns true if words may be trusted now. The order matters: see [`ControlView::trusted_until`].
    #[inline]
    fn in_time(&self) -> bool {
        let until = self.table.trusted_until();
        if until == 0 {
            return false;
        }
        let tick = tick();
        if self.looked_at.load(Ordering::Acquire) == tick {
            return true; // in this very tick it was, and times are only moved on
        }
        let is_so = boot_ns() < until;
        if is_so {
            self.looked_at.store(tick, Ordering::Release);
        }
        is_so
    }
    /// Announces a read. Load version words only after this.
    #[inline]
    pub fn enter(&self) -> ReadAnnouncement<'_> {
        loop {
            if let Some(slot) = self.file.slots().announce(self.table.epoch()) {
                return ReadAnnouncement { file: &self.file, slot, counting: self.counting };
            }
            std::thread::sleep(std::time::Duration::from_micros(50)); // more than 64 threads read at once
        }
    }
    /// Counts the time of an answered message with writes, if it is one of those that are timed.
    #[inline]
    pub fn count_write(&self, number: u64, begin: Instant, device: impl FnOnce() -> Option<DeviceId>) {
        if self.counting
            && number.is_multiple_of(u64::from(WRITES_TIMED_IN))
            && let Some(device) = device()
        {
            self.file.counters().took(Timed::Put, device, begin.elapsed().as_nanos() as u64);
        }
    }
    /// Announces a view. Load version words only after this.
    pub fn hold(attachment: &Arc<Attachment>) -> ViewAnnouncement {
        let readers = &attachment.readers;
        let mut groups = lock(&readers.groups);
        let epoch = readers.table.epoch();
        let full = groups.len() >= GROUPS_MAX;
        let slot = match groups.last_mut() {
            Some(group) if full || epoch - group.epoch.min(epoch) < GROUP_EPOCHS => {
                group.views += 1;
                group.slot
            }
            _ => {
                let slot = readers.enter();
                let number = slot.slot;
                std::mem::forget(slot); // cleared with the last view of the group
                groups.push(Group { slot: number, epoch, views: 1 });
                number
            }
        };
        drop(groups);
        ViewAnnouncement { attachment: attachment.clone(), slot, generation: fork::generation() }
    }
    /// Returns true if both use the same table, so that cached versions still hold.
    pub fn same_table(&self, other: &Self) -> bool {
        self.table_is == other.table_is && self.table.store() == other.table.store()
    }
}
