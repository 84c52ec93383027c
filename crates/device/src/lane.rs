//! Direct I/O in pieces, several in flight, so that copying and checking overlap with the device's work.
//!
//! Each thread has its own `io_uring`, created at first use. Without one (old kernels, containers that forbid it), and
//! for I/O that is not direct, pieces are processed one after the other. Knows nothing of objects.
#![allow(unsafe_code, reason = "the kernel reads and writes buffers on its own")]

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_host::fork;
use cenote_model::Result;
use io_uring::{IoUring, cqueue, opcode, squeue, types::Fd};

use crate::aligned::{ALIGN_BYTES, AlignedBuf};
use crate::{SegmentIo, SegmentMode};

/// Bytes of a piece: whole checksum units, and enough to keep a device busy.
pub const PIECE_BYTES: usize = 256 << 10;
/// Pieces in flight at once. While one piece is copied, the device works on the others.
const DEPTH: usize = 4;

/// Set if no ring could be created: this process works without one.
static UNAVAILABLE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RING: RefCell<Option<Owned>> = const { RefCell::new(None) };
}

struct Owned {
    ring: IoUring,
    /// Fork generation of the process that created it: a forked child must not touch its parent's ring.
    generation: u64,
}

/// One piece in its buffer.
#[derive(Clone, Copy)]
struct Piece {
    /// Offset in the segment.
    offset: u64,
    len: usize,
    /// `len` rounded up to the alignment of direct I/O.
    span: usize,
}

/// Pieces in flight, with the memory that they are read into or written from. Waits for all of them when dropped, also
/// on a panic.
struct TransfersInFlight<'a> {
    io: &'a SegmentIo,
    ring: Option<IoUring>,
    _buffer: AlignedBuf,
    base: *mut u8,
    pieces: [Option<Piece>; DEPTH],
    results: [i32; DEPTH],
}

impl<'a> TransfersInFlight<'a> {
    fn new(io: &'a SegmentIo) -> Option<Self> {
        if io.mode() != SegmentMode::Direct || UNAVAILABLE.load(Ordering::Relaxed) {
            return None;
        }
        let ring = take_ring()?;
        let mut buffer = AlignedBuf::reused(DEPTH * PIECE_BYTES);
        let base = buffer.as_mut_ptr();
        Some(Self { io, ring: Some(ring), _buffer: buffer, base, pieces: [None; DEPTH], results: [0; DEPTH] })
    }
    /// The memory of a slot whose piece is not in flight.
    fn memory(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < DEPTH && self.results[slot] != UNDER_WAY, "the kernel is done with the memory");
        // SAFETY: within the buffer, which lives as long as `self`. Not a slice of the whole buffer, since the kernel
        // may hold other parts of it; it does not hold this part, and `&mut self` keeps it so while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.add(slot * PIECE_BYTES), PIECE_BYTES) }
    }
    /// Starts a piece. If the kernel does not accept it, `land` does the I/O.
    fn start(&mut self, slot: usize, piece: Piece, is_write: bool) {
        let fd = Fd(self.io.file().fd.as_raw_fd());
        let at = self.io.file().data_offset + piece.offset;
        let base = self.memory(slot).as_mut_ptr();
        self.pieces[slot] = Some(piece);
        self.results[slot] = -1;
        let Some(ring) = &mut self.ring else { return };
        let entry: squeue::Entry = if is_write {
            opcode::Write::new(fd, base, piece.span as u32).offset(at).build()
        } else {
            opcode::Read::new(fd, base, piece.span as u32).offset(at).build()
        };
        // SAFETY: `self` owns the descriptor and the buffer and waits for the piece before either is dropped; `memory`
        // is not called for this slot before that.
        if unsafe { ring.submission().push(&entry.user_data(slot as u64)) }.is_err() {
            return;
        }
        loop {
            match ring.submit() {
                Ok(1) => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                _ => {
                    // The entry stays in the ring and must not be submitted later: drop the ring.
                    self.wait_all();
                    self.ring = None;
                    return;
                }
            }
        }
        self.results[slot] = UNDER_WAY;
    }
    /// Collects completions; waits until `slot` has completed.
    fn wait(&mut self, slot: usize) {
        while self.results[slot] == UNDER_WAY {
            let Some(ring) = &mut self.ring else { return };
            let done: Option<cqueue::Entry> = ring.completion().next();
            match done {
                Some(done) => self.results[done.user_data() as usize % DEPTH] = done.result().max(-1),
                // An error here says nothing about the pieces: they stay in flight, so the wait goes on.
                None => drop(ring.submit_and_wait(1)),
            }
        }
    }
    fn wait_all(&mut self) {
        (0..DEPTH).for_each(|slot| self.wait(slot));
    }
    /// Waits for the piece of a slot. A failed or partial piece is repeated with blocking I/O, which reports the cause
    /// of an error.
    fn land(&mut self, slot: usize, is_write: bool) -> Result<Option<Piece>> {
        self.wait(slot);
        let Some(piece) = self.pieces[slot].take() else { return Ok(None) };
        if usize::try_from(self.results[slot]).is_ok_and(|done| done >= piece.span) {
            return Ok(Some(piece));
        }
        let io = self.io;
        let memory = &mut self.memory(slot)[..piece.len];
        if is_write {
            io.write_padded(piece.offset, memory)?;
        } else {
            io.read_at(piece.offset, memory)?;
        }
        Ok(Some(piece))
    }
}

/// Stands for a pending result; the kernel's results are at least -4095.
const UNDER_WAY: i32 = i32::MIN;

impl Drop for TransfersInFlight<'_> {
    fn drop(&mut self) {
        self.wait_all();
        if let Some(ring) = self.ring.take() {
            let owned = Owned { ring, generation: fork::generation() };
            let _ = RING.try_with(|mine| *mine.borrow_mut() = Some(owned));
        }
    }
}

fn take_ring() -> Option<IoUring> {
    let owned = RING.try_with(|mine| mine.borrow_mut().take()).ok()?;
    match owned {
        Some(owned) if owned.generation == fork::generation() => return Some(owned.ring),
        Some(parents) => std::mem::forget(parents),
        None => {}
    }
    let entries = DEPTH as u32;
    let quick = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(entries);
    match quick.or_else(|_| IoUring::new(entries)) {
        Ok(ring) => Some(ring),
        Err(error) => {
            no_ring(&error);
            None
        }
    }
}

#[cold]
fn no_ring(error: &std::io::Error) {
    // A lack of memory may pass; any other error is permanent.
    if error.kind() != std::io::ErrorKind::OutOfMemory {
        UNAVAILABLE.store(true, Ordering::Relaxed);
    }
}

fn piece_at(io: &SegmentIo, offset: u64, len: usize, from: usize) -> Piece {
    let n = (len - from).min(PIECE_BYTES);
    let offset = offset + from as u64;
    let padded = n.next_multiple_of(ALIGN_BYTES);
    let fits = offset + padded as u64 <= io.len();
    Piece { offset, len: n, span: if fits { padded } else { n } }
}

/// A flight for several pieces, if there are several and a ring is available.
fn flight_for(io: &SegmentIo, offset: u64, len: usize) -> Option<TransfersInFlight<'_>> {
    let is_worth_it = len > PIECE_BYTES && offset.is_multiple_of(ALIGN_BYTES as u64);
    is_worth_it.then(|| TransfersInFlight::new(io)).flatten()
}

/// Writes `len` bytes from `offset`, a multiple of 4096. The rest of the last 4096 bytes also belongs to the caller and
/// becomes zeros. Calls `fill` for each piece with the memory to fill and the piece's offset in the `len` bytes.
pub fn write_filled(io: &SegmentIo, offset: u64, len: usize, mut fill: impl FnMut(&mut [u8], usize)) -> Result<()> {
    let mut flight = flight_for(io, offset, len);
    let Some(flight) = &mut flight else {
        let mut buffer = AlignedBuf::reused(len.min(PIECE_BYTES));
        return (0..len).step_by(PIECE_BYTES).try_for_each(|from| {
            let piece = piece_at(io, offset, len, from);
            fill(&mut buffer[..piece.len], from);
            io.write_padded(piece.offset, &buffer[..piece.len])
        });
    };
    io.check_writable(offset, len)?;
    for (number, from) in (0..len).step_by(PIECE_BYTES).enumerate() {
        let slot = number % DEPTH;
        flight.land(slot, true)?;
        let piece = piece_at(io, offset, len, from);
        let memory = flight.memory(slot);
        fill(&mut memory[..piece.len], from);
        memory[piece.len..piece.span].fill(0);
        flight.start(slot, piece, true);
    }
    (0..DEPTH).try_for_each(|slot| flight.land(slot, true).map(drop))
}

/// Reads `len` bytes from `offset`, a multiple of 4096, and passes each piece to `take` with its offset in the `len`
/// bytes.
pub fn read_taken(
    io: &SegmentIo,
    offset: u64,
    len: usize,
    mut take: impl FnMut(&[u8], usize) -> Result<()>,
) -> Result<()> {
    let mut flight = flight_for(io, offset, len);
    let Some(flight) = &mut flight else {
        let mut buffer = AlignedBuf::reused(len.min(PIECE_BYTES));
        return (0..len).step_by(PIECE_BYTES).try_for_each(|from| {
            let piece = piece_at(io, offset, len, from);
            io.read_at(piece.offset, &mut buffer[..piece.span])?;
            take(&buffer[..piece.len], from)
        });
    };
    io.check_inside(offset, len)?;
    let mut starts = (0..len).step_by(PIECE_BYTES).enumerate();
    for (number, from) in starts.by_ref().take(DEPTH) {
        flight.start(number, piece_at(io, offset, len, from), false);
    }
    for (number, from) in (0..len).step_by(PIECE_BYTES).enumerate() {
        let slot = number % DEPTH;
        if let Some(piece) = flight.land(slot, false)? {
            take(&flight.memory(slot)[..piece.len], from)?;
        }
        if let Some((_, from)) = starts.next() {
            flight.start(slot, piece_at(io, offset, len, from), false);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::SegmentFile;

    fn segment(name: &str, len: u64) -> SegmentIo {
        let path = std::env::temp_dir().join(format!("cenote-lane-{name}-{}", std::process::id()));
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE | rustix::fs::OFlags::TRUNC;
        let (fd, mode) = crate::io::open_direct(rustix::fs::CWD, &path, flags).expect("a file");
        rustix::fs::ftruncate(&fd, len + 4096).expect("its size");
        let _ = std::fs::remove_file(&path);
        SegmentIo::new(SegmentFile { fd: Arc::new(fd), data_offset: 4096, len, mode }, true, "a test")
            .expect("a segment")
    }

    #[test]
    fn writes_and_reads_whatever_the_length() {
        let io = segment("lengths", 8 << 20);
        for (len, offset) in
            [(1, 0), (4096, 4096), (PIECE_BYTES, 0), (PIECE_BYTES + 1, 8192), (5 * PIECE_BYTES - 77, 0)]
        {
            let data: Vec<u8> = (0..len).map(|i| (i / 251 + i + len) as u8).collect();
            let mut asked = 0;
            write_filled(&io, offset, len, |memory, from| {
                assert_eq!(from, asked);
                asked += memory.len();
                memory.copy_from_slice(&data[from..from + memory.len()]);
            })
            .expect("written");
            assert_eq!(asked, len);
            let mut back = Vec::new();
            read_taken(&io, offset, len, |memory, from| {
                assert_eq!(from, back.len());
                back.extend_from_slice(memory);
                Ok(())
            })
            .expect("read");
            assert!(back == data, "{len} bytes at {offset}");
        }
    }

    #[test]
    fn what_lies_outside_is_refused_and_a_file_cut_short_is_an_error() {
        let io = segment("outside", 1 << 20);
        assert!(write_filled(&io, 4096, 1 << 20, |memory, _| memory.fill(1)).is_err());
        assert!(read_taken(&io, 4096, 1 << 20, |_, _| Ok(())).is_err());
        rustix::fs::ftruncate(&*io.file().fd, 4096 + PIECE_BYTES as u64).expect("shorter");
        assert!(read_taken(&io, 0, 1 << 20, |_, _| Ok(())).is_err());
    }

    #[test]
    fn whoever_takes_may_stop() {
        let io = segment("stop", 4 << 20);
        let mut seen = 0;
        let stopped = read_taken(&io, 0, 4 << 20, |_, _| {
            seen += 1;
            if seen == 3 { Err(cenote_model::Error::new(cenote_model::ErrorKind::Corrupt, "a piece")) } else { Ok(()) }
        });
        assert!(stopped.is_err() && seen == 3);
        assert!(read_taken(&io, 0, 4 << 20, |_, _| Ok(())).is_ok());
    }
}
