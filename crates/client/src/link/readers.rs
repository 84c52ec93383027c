//! The reader's side of the shared control table: announcements, version words, and long-lived pins of views.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cenote_device::control::{ClientFile, ControlView, WRITES_TIMED_IN, is_counting};
use cenote_host::fork;
use cenote_model::{DeviceId, Result, Timed};

use super::attachment::Attachment;
use crate::map::pieces::{Part, Source};
use crate::sync::lock;

/// A group of views takes in new members while the reader epoch is within so much of the group's.
const GROUP_EPOCHS: u64 = 256;
/// Slots that views may take; the rest are for reads.
const GROUPS_MAX: usize = 24;

/// The table, and this client's slots.
pub(crate) struct Readers {
    table: ControlView,
    file: ClientFile,
    /// Which file the table is: device and inode.
    table_is: (u64, u64),
    counting: bool,
    groups: Mutex<Vec<Group>>,
}

/// Views that share a slot. The slot says when the first of them began, which protects the later ones too.
struct Group {
    slot: usize,
    epoch: u64,
    views: usize,
}

/// An announcement for the time of one read.
pub(crate) struct Reading<'a> {
    file: &'a ClientFile,
    slot: usize,
    counting: bool,
}

/// The beginning of a read.
pub(crate) struct Begin {
    /// It stands for [`cenote_device::control::READS_SAMPLED_IN`] reads of this thread.
    pub is_sampled: bool,
    /// When, if it is timed.
    timed: Option<Instant>,
}

impl Reading<'_> {
    /// The read begins. `sampling`: the caller needs to know whether it stands for others, though nothing be counted.
    #[inline]
    pub fn begin(&self, sampling: bool) -> Begin {
        let is_sampled = (self.counting || sampling) && self.file.counters().is_sampled(self.slot);
        Begin { is_sampled, timed: (self.counting && is_sampled).then(Instant::now) }
    }
    /// The read is done: counts what came from which tier.
    #[inline]
    pub fn count(&self, parts: &[Part], begin: &Begin) {
        if !self.counting {
            return;
        }
        let mut slowest = None;
        for part in parts {
            let device = match &part.source {
                Source::Hole | Source::ThroughLink => continue,
                Source::Mapped(_, device) => *device,
                Source::File { extent, .. } => extent.device,
            };
            self.file.counters().read(self.slot, device, part.len as u64);
            // A read from several tiers took as long as it did because of what is a file.
            if slowest.is_none() || matches!(part.source, Source::File { .. }) {
                slowest = Some(device);
            }
        }
        if let (Some(begin), Some(device)) = (begin.timed, slowest) {
            self.file.counters().took(Timed::Get, device, begin.elapsed().as_nanos() as u64);
        }
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.file.slots().clear(self.slot);
    }
}

/// An announcement for the life of a view.
pub(crate) struct Held {
    attachment: Arc<Attachment>,
    slot: usize,
    generation: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // a forked child's copy of a view: the announcement is the parent's, who may still look
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
    pub fn new(table: OwnedFd, file: ClientFile) -> Result<Self> {
        let table_is = rustix::fs::fstat(&table).map_or((0, 0), |stat| (stat.st_dev, stat.st_ino));
        let table = ControlView::map(table)?;
        Ok(Self { table, file, table_is, counting: is_counting(), groups: Mutex::default() })
    }
    /// This client's file.
    pub fn file(&self) -> &ClientFile {
        &self.file
    }
    /// Value of the instance word now.
    #[inline]
    pub fn instance(&self) -> u64 {
        self.table.instance()
    }
    /// The version word for objects of this hash.
    #[inline]
    pub fn word(&self, hash: u64) -> u64 {
        self.table.word(hash)
    }
    /// Announces a read. Look at words only after this.
    #[inline]
    pub fn enter(&self) -> Reading<'_> {
        loop {
            if let Some(slot) = self.file.slots().announce(self.table.epoch()) {
                return Reading { file: &self.file, slot, counting: self.counting };
            }
            std::thread::sleep(std::time::Duration::from_micros(50)); // more than 64 threads read at once
        }
    }
    /// A message with writes of this number, sent when it was, was answered: counts how long that took, if it is one of
    /// those that are timed.
    #[inline]
    pub fn count_write(&self, number: u64, begin: Instant, device: impl FnOnce() -> Option<DeviceId>) {
        if self.counting
            && number.is_multiple_of(u64::from(WRITES_TIMED_IN))
            && let Some(device) = device()
        {
            self.file.counters().took(Timed::Put, device, begin.elapsed().as_nanos() as u64);
        }
    }
    /// Announces a view. Look at words only after this.
    pub fn hold(attachment: &Arc<Attachment>) -> Held {
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
                std::mem::forget(slot); // cleared when the last view of the group goes
                groups.push(Group { slot: number, epoch, views: 1 });
                number
            }
        };
        drop(groups);
        Held { attachment: attachment.clone(), slot, generation: fork::generation() }
    }
    /// True if both look at one table, so that cached versions go on holding.
    pub fn same_table(&self, other: &Self) -> bool {
        self.table_is == other.table_is && self.table.store() == other.table.store()
    }
}
