//! Pages in the kernel's cache, of files whose bytes the kernel otherwise reads and writes past its cache (`strict`):
//! pages of mappings and of `sendfile`.
//!
//! Before a write past the cache the kernel discards the pages of its range, but not after it. A thread that touches a
//! mapping during the write gets the old page, shows it from then on, and writes it back whole, over the bytes that
//! were acknowledged meanwhile. So
//!
//! - a page is read only before a write of its bytes begins here, or after that is in the store;
//! - the write-back of a page that was read before leaves out the bytes of the write. Until the program hears that its
//!   write is done, concurrent stores to the same bytes count as if they came first;
//! - the program hears of it when the kernel has discarded the pages of the range once more.
//!
//! Threads here wait for the store and never for the kernel, which waits for this process: only [`Settler`] calls the
//! kernel, on its own thread.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, mpsc};

use cenote_posix::Ino;
use fuser::{INodeNo, Notifier};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Number of locks, so that threads seldom meet.
const PARTS: usize = 16;
/// Least size of a kernel page.
pub const PAGE_BYTES: u64 = 4096;

/// A range of bytes; `end` is exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    pub first: u64,
    pub end: u64,
}

impl Span {
    pub fn new(first: u64, len: u64) -> Self {
        Self { first, end: first.saturating_add(len) }
    }
    fn meets(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }
    /// Extends the range to whole pages.
    fn pages(self) -> Self {
        let end = self.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
        Self { first: self.first - self.first % PAGE_BYTES, end }
    }
}

/// The files of which the kernel has pages, and the writes in progress.
#[derive(Default)]
pub struct Pages {
    parts: [Part; PARTS],
}

#[derive(Default)]
struct Part {
    files: Mutex<HashMap<Ino, FilePages>>,
    changed: Condvar,
}

/// The state of one file.
#[derive(Default)]
struct FilePages {
    /// True if the kernel may have pages.
    has_pages: bool,
    writes: Vec<Write>,
    /// Ranges of pages being written back.
    coming_back: Vec<Span>,
    numbers: u64,
}

/// A write past the kernel's cache, from its begin until the program hears of it.
struct Write {
    number: u64,
    span: Span,
    is_applied: bool,
    /// Pages that were read after the bytes were in the store.
    fresh: Vec<Span>,
}

impl FilePages {
    fn is_idle(&self) -> bool {
        !self.has_pages && self.writes.is_empty() && self.coming_back.is_empty()
    }
    /// The parts of a page range to write back: all but the bytes of writes that began after the pages were read.
    fn pieces(&self, span: Span) -> Vec<Span> {
        let mut pieces = vec![span];
        for write in self.writes.iter().filter(|write| write.span.meets(span)) {
            let mut stale = vec![write.span];
            for fresh in &write.fresh {
                stale = stale.into_iter().flat_map(|part| without(part, *fresh)).collect();
            }
            for part in stale {
                pieces = pieces.into_iter().flat_map(|piece| without(piece, part)).collect();
            }
        }
        pieces
    }
}

/// The parts of `span` outside of `part`.
fn without(span: Span, part: Span) -> impl Iterator<Item = Span> {
    let before = Span { first: span.first, end: span.end.min(part.first) };
    let behind = Span { first: span.first.max(part.end), end: span.end };
    [before, behind].into_iter().filter(|piece| piece.first < piece.end)
}

impl Pages {
    fn part(&self, ino: Ino) -> &Part {
        &self.parts[ino.0 as usize % PARTS]
    }
    /// Returns true if the kernel may have pages of the file.
    pub fn are_there(&self, ino: Ino) -> bool {
        self.part(ino).files.lock().get(&ino).is_some_and(|state| state.has_pages)
    }
    /// Registers that the kernel reads pages; call it before looking up the bytes.
    pub fn read(&self, ino: Ino, span: Span) {
        let part = self.part(ino);
        let mut files = part.files.lock();
        files.entry(ino).or_default().has_pages = true;
        loop {
            let Some(state) = files.get_mut(&ino) else { return };
            let mut met = state.writes.iter_mut().filter(|write| write.span.pages().meets(span));
            if met.all(|write| write.is_applied) {
                for write in state.writes.iter_mut().filter(|write| write.span.pages().meets(span)) {
                    write.fresh.push(span);
                }
                return;
            }
            part.changed.wait(&mut files);
        }
    }
    /// Registers the begin of a write past the kernel's cache.
    pub fn write(self: &Arc<Self>, ino: Ino, span: Span) -> Writing {
        let part = self.part(ino);
        let mut files = part.files.lock();
        while files.get(&ino).is_some_and(|state| state.coming_back.iter().any(|back| back.meets(span))) {
            part.changed.wait(&mut files);
        }
        let state = files.entry(ino).or_default();
        state.numbers += 1;
        state.writes.push(Write { number: state.numbers, span, is_applied: false, fresh: Vec::new() });
        Writing { pages: self.clone(), ino, number: state.numbers, span, meets_pages: state.has_pages }
    }
    /// Registers a write-back of pages; returns a guard for its duration, and the parts to write.
    pub fn write_back(&self, ino: Ino, span: Span) -> (ComingBack<'_>, Vec<Span>) {
        let mut files = self.part(ino).files.lock();
        let state = files.entry(ino).or_default();
        state.has_pages = true;
        let pieces = state.pieces(span);
        state.coming_back.push(span);
        (ComingBack { pages: self, ino, span }, pieces)
    }
    /// Handles a closing; `is_last`: nobody else has the file open, so that it has no mappings.
    pub fn close(&self, ino: Ino, is_last: impl FnOnce() -> bool) {
        let mut files = self.part(ino).files.lock();
        let has_pages = files.get(&ino).is_some_and(|state| state.has_pages);
        if has_pages && is_last() {
            Self::change(&mut files, ino, |state| state.has_pages = false);
        }
    }
    fn change(files: &mut MutexGuard<'_, HashMap<Ino, FilePages>>, ino: Ino, change: impl FnOnce(&mut FilePages)) {
        if let Some(state) = files.get_mut(&ino) {
            change(state);
            if state.is_idle() {
                files.remove(&ino);
            }
        }
    }
}

/// A write in progress, which ends when dropped.
pub struct Writing {
    pages: Arc<Pages>,
    ino: Ino,
    number: u64,
    span: Span,
    meets_pages: bool,
}

impl Writing {
    /// Records that the bytes are in the store at `span`. Returns true if the kernel must discard pages before the
    /// program hears of it.
    pub fn applied(&mut self, span: Span) -> bool {
        self.span = span;
        let (number, part) = (self.number, self.pages.part(self.ino));
        let mut files = part.files.lock();
        let state = files.get_mut(&self.ino);
        if let Some(write) = state.and_then(|state| state.writes.iter_mut().find(|write| write.number == number)) {
            (write.span, write.is_applied) = (span, true);
        }
        part.changed.notify_all();
        self.meets_pages
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let (number, part) = (self.number, self.pages.part(self.ino));
        Pages::change(&mut part.files.lock(), self.ino, |state| state.writes.retain(|write| write.number != number));
        part.changed.notify_all();
    }
}

/// A write-back in progress, which ends when dropped.
pub struct ComingBack<'a> {
    pages: &'a Pages,
    ino: Ino,
    span: Span,
}

impl Drop for ComingBack<'_> {
    fn drop(&mut self) {
        let (span, part) = (self.span, self.pages.part(self.ino));
        Pages::change(&mut part.files.lock(), self.ino, |state| {
            if let Some(at) = state.coming_back.iter().position(|back| *back == span) {
                state.coming_back.swap_remove(at);
            }
        });
        part.changed.notify_all();
    }
}

/// The thread that makes the kernel discard pages of written ranges.
#[derive(Default)]
pub struct Settler(OnceLock<Option<mpsc::Sender<Settle>>>);

/// A write that is in the store: the kernel's number of its file, and the answer.
pub struct Settle {
    pub number: u64,
    pub writing: Writing,
    pub answer: Box<dyn FnOnce() + Send>,
}

impl Settler {
    /// Answers when the kernel has no old pages any more.
    pub fn settle(&self, settle: Settle, notifier: Option<&Notifier>) {
        let Some(notifier) = notifier else { return settle.now(None) };
        let queue = self.0.get_or_init(|| {
            let ((sender, receiver), notifier) = (mpsc::channel::<Settle>(), notifier.clone());
            let work = move || receiver.into_iter().for_each(|settle| settle.now(Some(&notifier)));
            let thread = std::thread::Builder::new().name("cenote-pages".into()).stack_size(256 << 10).spawn(work);
            thread.is_ok().then_some(sender)
        });
        let left = match queue {
            Some(queue) => queue.send(settle).map_err(|left| left.0).err(),
            None => Some(settle),
        };
        if let Some(settle) = left {
            tracing::warn!("no thread for the kernel's pages: writes beside mappings may wait for one another");
            settle.now(Some(notifier));
        }
    }
}

impl Settle {
    fn now(self, notifier: Option<&Notifier>) {
        let Span { first, end } = self.writing.span;
        if let Some(notifier) = notifier {
            let len = (end - first).min(i64::MAX as u64);
            // This waits for page I/O in both directions. A file unknown to the kernel has no pages.
            let _ = notifier.inval_inode(INodeNo(self.number), first.cast_signed(), len.cast_signed());
        }
        drop(self.writing);
        (self.answer)();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    const INO: Ino = Ino(7);

    fn span(first: u64, end: u64) -> Span {
        Span { first, end }
    }
    fn back(pages: &Pages, first: u64, end: u64) -> Vec<Span> {
        pages.write_back(INO, span(first, end)).1
    }

    #[test]
    fn a_page_that_was_read_before_a_write_does_not_undo_it() {
        let pages = Arc::new(Pages::default());
        pages.read(INO, span(0, 8192));
        let mut writing = pages.write(INO, span(512, 520));
        assert_eq!(back(&pages, 0, 8192), [span(0, 512), span(520, 8192)]);
        assert!(writing.applied(span(512, 520)));
        assert_eq!(back(&pages, 0, 8192), [span(0, 512), span(520, 8192)]);
        assert_eq!(back(&pages, 4096, 8192), [span(4096, 8192)]);
        assert_eq!(back(&pages, 514, 516), []);
        // Read again: it has the bytes of the write, and later stores.
        pages.read(INO, span(0, 4096));
        assert_eq!(back(&pages, 0, 8192), [span(0, 8192)]);
        drop(writing);
        assert_eq!(back(&pages, 0, 8192), [span(0, 8192)]);
    }
    #[test]
    fn of_a_write_over_many_pages_those_count_that_were_read_anew() {
        let pages = Arc::new(Pages::default());
        pages.read(INO, span(0, 4096));
        let mut writing = pages.write(INO, span(100, 12_000));
        writing.applied(span(100, 12_000));
        pages.read(INO, span(4096, 8192));
        assert_eq!(back(&pages, 0, 16_384), [span(0, 100), span(4096, 8192), span(12_000, 16_384)]);
    }
    #[test]
    fn a_page_is_read_when_the_write_is_in_the_store() {
        let pages = Arc::new(Pages::default());
        let mut writing = pages.write(INO, span(512, 520));
        let is_applied = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                pages.read(INO, span(0, 4096));
                assert!(is_applied.load(Ordering::SeqCst));
            });
            pages.read(INO, span(4096, 8192));
            std::thread::sleep(Duration::from_millis(20));
            is_applied.store(true, Ordering::SeqCst);
            // Nothing was read before: the kernel has no old page.
            assert!(!writing.applied(span(512, 520)));
            reading.join().unwrap();
        });
    }
    #[test]
    fn a_write_begins_when_older_pages_are_in_the_store() {
        let pages = Arc::new(Pages::default());
        let (coming, pieces) = pages.write_back(INO, span(0, 4096));
        assert_eq!(pieces, [span(0, 4096)]);
        let is_back = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                drop(pages.write(INO, span(512, 520)));
                assert!(is_back.load(Ordering::SeqCst));
            });
            drop(pages.write(INO, span(4096, 4100)));
            std::thread::sleep(Duration::from_millis(20));
            is_back.store(true, Ordering::SeqCst);
            drop(coming);
            writing.join().unwrap();
        });
    }
    #[test]
    fn nothing_is_kept_of_files_that_are_closed() {
        let pages = Arc::new(Pages::default());
        drop(pages.write(INO, span(0, 8)));
        assert!(pages.part(INO).files.lock().is_empty());
        pages.read(INO, span(0, 4096));
        drop(pages.write(INO, span(0, 8)));
        pages.close(INO, || false);
        assert!(pages.are_there(INO));
        pages.close(INO, || true);
        assert!(!pages.are_there(INO) && pages.part(INO).files.lock().is_empty());
    }
}
