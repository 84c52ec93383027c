//! How the store knows whether a file's stub still exists, under whatever name: the directory [`DIR`] in the store's own.
//!
//! The directory holds a second hard link of each file's stub: when that is the only link, the stub is gone. Where a link
//! cannot be made (another file system, rights), a *note* records where the stub was last seen; a stub missing from there may
//! have been renamed. A file whose stub is certainly gone is freed. If that is uncertain, or if the stub was read since this
//! connector last had it (so that `mv` to another file system, `cp`, `git` or a backup may have put the stub elsewhere), the
//! file is *waiting*: it stays for a grace period, or until `cenote clean --waiting`. The stub's times tell whether it was
//! read: the connector sets both to the same, and reading moves one of them.
//!
//! Names are `CONTAINER-INODE-FILEID`, in hexadecimal digits, so that a copied directory is not believed: its links have other
//! inodes. This module must not know the content of containers, except for their superblock record.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use cenote::{ContainerId, ErrorKind, Store};
use parking_lot::Mutex;

use super::locks::{self, LockByte};
use super::stub::{self, Seen, Stub};
use super::superblock::Super;
use super::{checkpoint, path};
use crate::Result;

/// The directory's name within the store's directory.
pub const DIR: &str = "hdf5-stubs";
/// The environment variable with the grace period of uncertain files, in seconds.
pub const GRACE_ENV: &str = "CENOTE_HDF5_GRACE_S";
const GRACE: Duration = Duration::from_hours(7 * 24);
const NOTE: &str = ".note";
/// Suffix of a note's name once the stub was missing at its path; the note's modification time is that of the first such look.
const LOST: &str = ".lost";
/// Entries looked at by each creation of a file.
const SLICE: usize = 64;
/// Creations that follow each other faster than this do not look, since a look takes some 50 µs.
const LOOKS_EVERY: Duration = Duration::from_millis(10);
/// Age at which a listing is renewed.
const LISTING_HOLDS: Duration = Duration::from_secs(1);
/// Where the exclusive lock cannot be taken, a stub that lost its last name more recently than this may be about to be opened.
const OPENING_MAX: Duration = Duration::from_mins(1);

/// A file whose stub may be gone.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The file's container.
    pub container: ContainerId,
    /// The time since when it waits.
    pub since: SystemTime,
    /// Why it is not certain.
    pub why: &'static str,
}

/// Result of a look at all stubs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Number of files whose stubs exist.
    pub there: usize,
    /// Number of files that are gone but open in some program.
    pub open: usize,
    /// Files that are certainly gone; freed if that was asked for.
    pub gone: Vec<ContainerId>,
    /// Files that may be gone.
    pub waiting: Vec<Waiting>,
}

/// An entry of the directory.
#[derive(Clone)]
struct Entry {
    container: ContainerId,
    ino: u64,
    uuid: u128,
    name: String,
}

impl Entry {
    fn parse(name: &str) -> Option<Self> {
        let plain = name.strip_suffix(NOTE).or(name.strip_suffix(LOST)).unwrap_or(name);
        let mut parts = plain.split('-');
        let entry = Self {
            container: ContainerId(u64::from_str_radix(parts.next()?, 16).ok()?),
            ino: u64::from_str_radix(parts.next()?, 16).ok()?,
            uuid: u128::from_str_radix(parts.next()?, 16).ok()?,
            name: name.to_owned(),
        };
        parts.next().is_none().then_some(entry)
    }
    fn is_note(&self) -> bool {
        self.name.ends_with(NOTE) || self.name.ends_with(LOST)
    }
}

fn plain_name(container: ContainerId, ino: u64, uuid: u128) -> String {
    format!("{:x}-{ino:x}-{uuid:032x}", container.0)
}

fn entries(dir: &Path) -> Vec<Entry> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    all.filter_map(|entry| Entry::parse(entry.file_name().to_str()?)).collect()
}

fn entries_of(dir: &Path, container: ContainerId) -> Vec<Entry> {
    entries(dir).into_iter().filter(|entry| entry.container == container).collect()
}

/// What a stub is, by where the file's own stub was seen.
#[derive(PartialEq, Eq, Debug)]
pub enum Judged {
    /// The file's own stub, of which the store has a hard link.
    Linked,
    /// The file's own stub, or another hard link of it.
    Own,
    /// A copy: the file's own stub is at this path, if the path is known.
    Copy(Option<PathBuf>),
    /// The successor of the file's own stub, which is gone or was never seen.
    Heir,
}

/// Returns true if a stub of that file is at `path` with an inode other than `ino`.
fn stands_at(path: &Path, stub: &Stub, ino: u64) -> bool {
    path.metadata().is_ok_and(|seen| seen.ino() != ino)
        && matches!(stub::look(path), Ok(Seen::Stub(other)) if other.uuid == stub.uuid)
}

/// Judges a stub with the file status `seen`. `label`: where the file was, as the store was last told.
pub fn judge(
    store_path: &Path,
    container: ContainerId,
    stub: &Stub,
    seen: &Metadata,
    label: impl FnOnce() -> PathBuf,
) -> Judged {
    let dir = store_path.join(DIR);
    let name = plain_name(container, seen.ino(), stub.uuid);
    if let Ok(kept) = dir.join(&name).symlink_metadata()
        && (kept.dev(), kept.ino()) == (seen.dev(), seen.ino())
    {
        return Judged::Linked;
    }
    if dir.join(format!("{name}{NOTE}")).exists() {
        return Judged::Own;
    }
    let label = label();
    let copy_at = |place: &Path| stands_at(place, stub, seen.ino());
    for entry in entries_of(&dir, container) {
        if entry.is_note() {
            if let Some(place) = read_note(&dir, &entry).filter(|place| copy_at(place)) {
                return Judged::Copy(Some(place));
            }
        } else if let Ok(kept) = dir.join(&entry.name).symlink_metadata()
            && kept.ino() == entry.ino
            && kept.nlink() > 1
        {
            return Judged::Copy(Some(label).filter(|place| copy_at(place)));
        }
    }
    if copy_at(&label) { Judged::Copy(Some(label)) } else { Judged::Heir }
}

fn read_note(dir: &Path, entry: &Entry) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(&entry.name)).ok()?;
    text.lines().find_map(|line| line.strip_prefix("path: ")).map(path::of_label)
}

/// Marks the link of a file as lost: another file's stub has overwritten the stub in place, so the link says nothing about the
/// file any more.
fn disown(dir: &Path, entry: &Entry, path: &Path) {
    let lost = dir.join(format!("{}{LOST}", plain_name(entry.container, entry.ino, entry.uuid)));
    let text = format!("path: {}\n", path::line(&path::label(path)));
    // If removing the link fails, both entries stand for the file.
    if fs::write(lost, text).is_ok() {
        let _ = fs::remove_file(dir.join(&entry.name));
    }
}

/// Tells the store which stub is the file's, and where it is. A file that cannot be recorded is not freed either.
/// `is_just_made`: neither the container nor the stub existed before.
pub fn keep(store_path: &Path, container: ContainerId, uuid: u128, (file, path): (&File, &Path), is_just_made: bool) {
    let Ok(seen) = file.metadata() else { return };
    let dir = store_path.join(DIR);
    let name = plain_name(container, seen.ino(), uuid);
    // The common case: no other entry of container or stub can exist.
    if is_just_made && seen.nlink() <= 1 && link(file, &dir.join(&name)).is_ok() {
        return;
    }
    if dir.join(&name).symlink_metadata().is_ok() {
        return;
    }
    let note = dir.join(format!("{name}{NOTE}"));
    let text = format!("path: {}\n", path::line(&path::label(path)));
    if fs::read_to_string(&note).is_ok_and(|old| old == text) {
        return;
    }
    let is_new = make_dir(store_path, &dir) || seen.nlink() <= 1 && is_just_made;
    let others = if is_new { Vec::new() } else { entries(&dir) };
    for old in others.iter().filter(|old| old.ino == seen.ino() && old.container != container && !old.is_note()) {
        disown(&dir, old, path);
    }
    if link(file, &dir.join(&name)).is_err() {
        // Write beside, then rename: a truncated note would lead nowhere.
        let part = dir.join(format!("{name}.part"));
        if fs::write(&part, text).and_then(|()| fs::rename(&part, &note)).is_err() {
            return;
        }
    }
    let of_it = others.iter().filter(|old| old.container == container);
    for old in of_it.filter(|old| old.name != name && dir.join(&old.name) != note) {
        // It records an earlier place. If removing it fails, it is looked at again.
        let _ = fs::remove_file(dir.join(&old.name));
    }
}

/// Makes the directory if it does not exist, with the write permissions of the store's directory.
fn make_dir(store_path: &Path, dir: &Path) -> bool {
    if fs::create_dir(dir).is_err() {
        return false;
    }
    if let Ok(home) = store_path.metadata() {
        // If that is not permitted, the user's mask decides.
        let _ = fs::set_permissions(dir, fs::Permissions::from_mode(home.mode() & 0o777));
    }
    true
}

/// Makes a hard link of an open file.
fn link(file: &File, to: &Path) -> io::Result<()> {
    link_named(&format!("/proc/self/fd/{}", file.as_raw_fd()), to)
}

fn link_named(from: &str, to: &Path) -> io::Result<()> {
    let text = |bytes: &[u8]| std::ffi::CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
    let (from, to) = (text(from.as_bytes())?, text(to.as_os_str().as_encoded_bytes())?);
    // SAFETY: both names end in NUL and live across the call.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Marks a stub that the connector has opened as unread: earlier reads of it mean nothing any more.
pub fn mark(file: &File) {
    if let Ok(seen) = file.metadata() {
        mark_seen(file, &seen);
    }
}

/// Marks a stub as unread, given its file status from before the connector read it without a trace.
pub fn mark_seen(file: &File, seen: &Metadata) {
    if is_unread(seen) {
        return;
    }
    let times = [
        libc::timespec { tv_sec: seen.mtime(), tv_nsec: seen.mtime_nsec() },
        libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
    ];
    // SAFETY: the descriptor is open, the two times exist. Only the owner may set them; otherwise the file will be waiting one
    // day.
    let _ = unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) };
}

fn is_unread(seen: &Metadata) -> bool {
    (seen.atime(), seen.atime_nsec()) == (seen.mtime(), seen.mtime_nsec())
}

/// Returns true if the file system does not record when a file was read.
fn hides_reading(file: &File) -> bool {
    // SAFETY: all zeros are valid, and the call fills it in.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open, the place is valid.
    let done = unsafe { libc::fstatvfs(file.as_raw_fd(), &raw mut about) };
    done != 0 || about.f_flag & libc::ST_NOATIME != 0
}

enum Standing {
    There,
    Open,
    Gone,
    Waiting(SystemTime, &'static str),
}

fn grace() -> Duration {
    let said = std::env::var(GRACE_ENV).ok().and_then(|text| text.parse().ok());
    said.map_or(GRACE, Duration::from_secs)
}

fn look_at(dir: &Path, entry: &Entry) -> Standing {
    let place = dir.join(&entry.name);
    let Ok(seen) = place.symlink_metadata() else { return Standing::There };
    if entry.is_note() {
        return look_at_note(dir, entry, &seen);
    }
    if !seen.is_file() || seen.ino() != entry.ino {
        // Not the link that was made: the directory is a copy.
        return Standing::Waiting(seen.modified().unwrap_or(SystemTime::now()), "the store's directory was copied");
    }
    if seen.nlink() > 1 {
        return Standing::There;
    }
    let Ok(file) = open_kept(&place, false) else {
        return Standing::Waiting(changed(&seen), "its stub cannot be looked at");
    };
    if locks::is_taken(&file, LockByte::Open) {
        Standing::Open
    } else if hides_reading(&file) {
        Standing::Waiting(changed(&seen), "its file system (noatime) does not tell whether the stub was copied")
    } else if !is_unread(&seen) {
        Standing::Waiting(changed(&seen), "its stub was read before it was removed: it may have been copied or moved")
    } else {
        Standing::Gone
    }
}

fn changed(seen: &Metadata) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::new(seen.ctime().max(0) as u64, seen.ctime_nsec() as u32)
}

fn open_kept(place: &Path, writable: bool) -> io::Result<File> {
    let open = |extra| File::options().read(true).write(writable).custom_flags(libc::O_NOFOLLOW | extra).open(place);
    open(libc::O_NOATIME).or_else(|_| open(0))
}

fn look_at_note(dir: &Path, entry: &Entry, seen: &Metadata) -> Standing {
    let why = "its stub is not where it was, on another file system: it may have been renamed";
    let Some(place) = read_note(dir, entry) else { return Standing::There };
    let is_there = matches!(stub::look(&place), Ok(Seen::Stub(stub)) if stub.uuid == entry.uuid);
    let plain = plain_name(entry.container, entry.ino, entry.uuid);
    let (from, to) = (dir.join(&entry.name), dir.join(format!("{plain}{}", if is_there { NOTE } else { LOST })));
    let since = seen.modified().unwrap_or(SystemTime::now());
    if from == to {
        return if is_there { Standing::There } else { Standing::Waiting(since, why) };
    }
    // The note's time is that of the first look that missed the stub. If it cannot be set, the stub is missed anew later.
    let _ = File::options().write(true).open(&from).and_then(|note| note.set_modified(SystemTime::now()));
    let _ = fs::rename(&from, &to);
    if is_there { Standing::There } else { Standing::Waiting(SystemTime::now(), why) }
}

/// Returns true if the store in `store_path` has files to free. Looks at links and notes only; asks the store nothing.
pub fn has_removed(store_path: &Path) -> bool {
    let dir = store_path.join(DIR);
    entries(&dir).iter().any(|entry| match look_at(&dir, entry) {
        Standing::Gone => true,
        Standing::Waiting(since, _) => since.elapsed().is_ok_and(|waited| waited >= grace()),
        Standing::There | Standing::Open => false,
    })
}

/// Looks at all stubs. With `frees`, frees files that are gone or have waited out their grace period; `also_waiting`: all
/// waiting ones.
pub fn look_at_all(store: &Store, frees: bool, also_waiting: bool) -> Result<Report> {
    let dir = path::absolute(store.dir())?.join(DIR);
    let mut report = Report::default();
    for entry in entries(&dir) {
        look_and_free(store, &dir, &entry, (frees, also_waiting), &mut report)?;
    }
    Ok(report)
}

fn look_and_free(
    store: &Store,
    dir: &Path,
    entry: &Entry,
    (frees, also_waiting): (bool, bool),
    report: &mut Report,
) -> Result<()> {
    let standing = match look_at(dir, entry) {
        Standing::Waiting(since, _) if also_waiting || since.elapsed().is_ok_and(|waited| waited >= grace()) => {
            Standing::Gone
        }
        other => other,
    };
    match standing {
        Standing::There => report.there += 1,
        Standing::Open => report.open += 1,
        Standing::Waiting(since, why) => report.waiting.push(Waiting { container: entry.container, since, why }),
        Standing::Gone if frees => match free(store, dir, entry, also_waiting)? {
            Freed::Yes => report.gone.push(entry.container),
            Freed::Open => report.open += 1,
            Freed::Snapshots => {
                let (since, why) = (SystemTime::now(), "it has snapshots");
                report.waiting.push(Waiting { container: entry.container, since, why });
            }
        },
        Standing::Gone => report.gone.push(entry.container),
    }
    Ok(())
}

enum Freed {
    Yes,
    Open,
    /// Not freed: people made snapshots of it, which would be deleted with it.
    Snapshots,
}

/// Frees a file whose stub is gone. `also_snapshots`: even if people made snapshots of it.
fn free(store: &Store, dir: &Path, entry: &Entry, also_snapshots: bool) -> Result<Freed> {
    let place = dir.join(&entry.name);
    let is_link = !entry.is_note() && place.symlink_metadata().is_ok_and(|seen| seen.ino() == entry.ino);
    // Held until the container is deleted: nobody starts to use it meanwhile.
    let held = if is_link { claim_lone(&place) } else { None };
    if is_link && held.is_none() {
        return Ok(Freed::Open);
    }
    match store.container_by_id(entry.container) {
        Ok(container) => {
            // A file whose making failed has no superblock. With any other superblock, the container is not this entry's.
            if Super::read(&container)?.is_none_or(|sup| sup.uuid == entry.uuid) {
                // Snapshots of states are for copies of the stub.
                if !also_snapshots && container.snapshots()?.iter().any(|other| other.name != checkpoint::PUBLISHED) {
                    return Ok(Freed::Snapshots);
                }
                gone_already(store.delete_container_by_id(entry.container))?;
            }
        }
        Err(error) => gone_already(Err(error))?,
    }
    // An entry that stays is looked at again.
    let _ = fs::remove_file(&place);
    Ok(Freed::Yes)
}

/// Opens a stub that has no other name and that nobody has open; nobody can start to use it while the result is held.
fn claim_lone(place: &Path) -> Option<File> {
    let is_lone = |file: &File| file.metadata().is_ok_and(|seen| seen.nlink() == 1);
    if let Ok(file) = open_kept(place, true) {
        let is_free = is_lone(&file) && locks::take(&file, LockByte::Open, true).unwrap_or(false) && is_lone(&file);
        return Some(file).filter(|_| is_free);
    }
    // Another user's stub: leave it alone if it may be about to be opened.
    let file = open_kept(place, false).ok()?;
    let is_old = changed(&file.metadata().ok()?).elapsed().is_ok_and(|since| since > OPENING_MAX);
    Some(file).filter(|file| is_lone(file) && is_old && !locks::is_taken(file, LockByte::Open))
}

fn gone_already(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Frees this container's file if its stub is certainly gone.
pub fn free_if_gone(store: &Store, store_path: &Path, container: ContainerId) -> Result<()> {
    let (dir, mut report) = (store_path.join(DIR), Report::default());
    for entry in entries_of(&dir, container) {
        look_and_free(store, &dir, &entry, (true, false), &mut report)?;
    }
    Ok(())
}

/// A listing of stubs, with the progress through it.
struct Listing {
    taken: Instant,
    entries: Vec<Entry>,
    /// Index of the next entry to look at.
    at: usize,
    looked: Instant,
}

impl Listing {
    fn new(dir: &Path) -> Self {
        let now = Instant::now();
        Self { taken: now, entries: entries(dir), at: 0, looked: now }
    }
    /// The next entries to look at.
    fn slice(&mut self, dir: &Path) -> Vec<Entry> {
        if self.taken.elapsed() > LISTING_HOLDS || self.entries.len() <= SLICE {
            *self = Self { at: self.at, ..Self::new(dir) };
        }
        let from = if self.at < self.entries.len() { self.at } else { 0 };
        self.at = (from + SLICE).min(self.entries.len());
        self.looked = Instant::now();
        self.entries[from..self.at].to_vec()
    }
}

/// Looks at some stubs, others each time, and frees what is gone. Called whenever a file is made, so that space comes back
/// without anybody asking. Programs that make very many small files look only now and then.
pub fn free_some(store: &Store, store_path: &Path) -> Result<()> {
    static LISTINGS: LazyLock<Mutex<HashMap<PathBuf, Listing>>> = LazyLock::new(Mutex::default);
    let dir = store_path.join(DIR);
    let slice = {
        let mut listings = LISTINGS.lock();
        match listings.get_mut(&dir) {
            Some(listing) if listing.looked.elapsed() < LOOKS_EVERY => return Ok(()),
            Some(listing) => listing.slice(&dir),
            None => listings.entry(dir.clone()).or_insert_with(|| Listing::new(&dir)).slice(&dir),
        }
    };
    let mut report = Report::default();
    let mut first = Ok(());
    for entry in slice {
        // One that cannot be freed does not stop the others.
        first = first.and(look_and_free(store, &dir, &entry, (true, false), &mut report));
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_left_alone() {
        let name = plain_name(ContainerId(0x1f), 0xabc, 5 << 100);
        for (end, is_note) in [("", false), (NOTE, true), (LOST, true)] {
            let entry = Entry::parse(&format!("{name}{end}")).unwrap();
            assert_eq!((entry.container.0, entry.ino, entry.uuid), (0x1f, 0xabc, 5 << 100));
            assert_eq!(entry.is_note(), is_note);
        }
        for other in ["", "README", "1-2", "1-2-3-4", &format!("{name}.part")] {
            assert!(Entry::parse(other).is_none(), "{other}");
        }
    }

    #[test]
    fn whoever_reads_a_stub_is_noticed() {
        let path = std::env::temp_dir().join(format!("cenote-kept-{}", std::process::id()));
        fs::write(&path, "stub").unwrap();
        let file = stub::open_quietly(&path).unwrap();
        super::super::in_use::touch(&File::options().write(true).open(&path).unwrap());
        assert!(is_unread(&file.metadata().unwrap()));
        stub::look(&path).unwrap();
        assert!(is_unread(&file.metadata().unwrap()), "the connector leaves no trace");
        if !hides_reading(&file) {
            fs::read(&path).unwrap();
            assert!(!is_unread(&file.metadata().unwrap()));
        }
        mark(&file);
        assert!(is_unread(&file.metadata().unwrap()));
        fs::remove_file(&path).unwrap();
    }
}
