//! The engine's side: the writable table, and the files of all clients.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use cenote_host::home::shm_base;
use cenote_host::process::{program_of, started_of};
use cenote_model::{Error, ErrorKind, Result, StoreId};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::client::{map_with_header, word_at};
use super::layout::{CONTROL_BYTES, EPOCH_AT, INSTANCE_AT, WORDS, WORDS_AT};
use super::{ClientCounts, ClientFile, ClientHeader, ControlHeader};
use crate::Control;
use crate::header::boot_id;
use crate::holder::Lease;
use crate::io::fail;
use crate::map::Mapping;
use crate::shared_memory::{give_as, open_store_dir};

/// Name of the table in a store's directory in shared memory.
pub(crate) const TABLE_FILE: &str = "control";
const CLIENT_PREFIX: &str = "client-";
/// Upper bound of the time until the slots of a process that died during a read stop counting.
const LIVENESS_EVERY: Duration = Duration::from_millis(50);

struct Table {
    map: Mapping,
    fd: OwnedFd,
    dir: OwnedFd,
    path: PathBuf,
    store: StoreId,
    /// Guarantees that no other engine has this store, from whatever directory.
    lease: Mutex<Option<Lease>>,
}

struct Client {
    file: ClientFile,
    /// The session, from the file's name: the client can change the file's content.
    session: u64,
    program: String,
    checked: Mutex<Instant>,
}

impl Client {
    fn new(file: ClientFile, session: u64) -> Self {
        let program = program_of(file.pid()).unwrap_or_default();
        Self { file, session, program, checked: Mutex::new(Instant::now()) }
    }
}

/// The parts that a new client's file has space for, and its session.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientRoom {
    /// The session; 0 means none: nothing in the file is needed once the process is dead.
    pub session: u64,
    /// Bytes of each of two rings; 0 for none.
    pub ring_bytes: u64,
    /// Bytes of the log of pipelined changes; 0 for none.
    pub log_bytes: u64,
}

/// The shared control table, owned by the process that runs the engine.
pub struct SharedControl {
    base: PathBuf,
    table: OnceLock<Table>,
    clients: RwLock<BTreeMap<u64, Client>>,
    next_client: AtomicU64,
    /// Summed counts of the clients that left.
    departed: Mutex<ClientCounts>,
    /// What the store's last engine acknowledged is there, although its table is not.
    has_what_survived: bool,
}

impl Default for SharedControl {
    fn default() -> Self {
        Self::new(shm_base())
    }
}

impl SharedControl {
    /// A table below the given directory for shared memory files; creates nothing before [`Control::attach`].
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self {
            base: base.into(),
            table: OnceLock::new(),
            clients: RwLock::default(),
            next_client: AtomicU64::new(1),
            departed: Mutex::default(),
            has_what_survived: false,
        }
    }
    /// For a store that comes from a copy on this node, which has all that was acknowledged: no power loss is concluded
    /// from a missing table.
    #[must_use]
    pub fn with_what_survived(self) -> Self {
        Self { has_what_survived: true, ..self }
    }
    fn table(&self) -> &Table {
        self.table.get().expect("the engine attaches the control table before it uses it")
    }
    pub(super) fn map(&self) -> &Mapping {
        &self.table().map
    }
    /// Releases the store after the engine has closed: another engine may take it, though this table is still mapped
    /// here.
    pub fn let_go(&self) {
        if let Some(table) = self.table.get() {
            drop(table.lease.lock().take());
        }
    }
    /// The instance word.
    pub fn instance(&self) -> u64 {
        word_at(&self.table().map, INSTANCE_AT).load(Ordering::SeqCst)
    }
    /// A read-only descriptor of the table, for clients.
    pub fn read_only(&self) -> Result<OwnedFd> {
        let table = self.table();
        rustix::fs::openat(&table.dir, TABLE_FILE, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| fail(&table.path.join(TABLE_FILE).display().to_string(), errno))
    }
    /// Creates the file of a new client of process `pid` (0: not visible from here). Its slots count in
    /// [`Control::slots_min`] from now on, as long as the lock is held that is the second part of the result. The lock
    /// is for the client's process ([`ClientFile::map_held`]); drop it in this one.
    pub fn client_create(&self, pid: u32, room: &ClientRoom) -> Result<(ClientFile, OwnedFd)> {
        let table = self.table();
        let subject = format!("client file of process {pid}");
        let started = started_of(pid).unwrap_or(0);
        let [ring_bytes, log_bytes] = [room.ring_bytes, room.log_bytes].map(|bytes| bytes.next_multiple_of(4096));
        let number = self.next_client.fetch_add(1, Ordering::Relaxed);
        let (store, boot_id, is_locked) = (table.store, boot_id(), true);
        let header = ClientHeader { store, boot_id, number, pid, started, ring_bytes, log_bytes, is_locked };
        let name = file_name(number, room.session);
        let made = make_file(&table.dir, &name, header.file_bytes(), &header.encode());
        let fd = made.map_err(|errno| if errno == Errno::NOENT { deleted(&subject) } else { fail(&subject, errno) })?;
        // A full tmpfs later would raise SIGBUS in both processes: reserve the space of rings and slots now.
        let reserved = rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, header.file_bytes());
        if let Err(errno) = reserved
            && errno != Errno::OPNOTSUPP
        {
            let _ = rustix::fs::unlinkat(&table.dir, &name, AtFlags::empty());
            return Err(fail(&subject, errno));
        }
        // An open file description of its own: the lock ends with its last holder.
        let lock = rustix::fs::openat(&table.dir, &name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|lock| rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map(|()| lock))
            .map_err(|errno| fail(&subject, errno))?;
        let file = ClientFile::map(fd)?;
        file.slots().clear_all();
        self.clients.write().insert(number, Client::new(file.clone(), room.session));
        Ok((file, lock))
    }
    /// Forgets a client that left or died: its slots no longer count.
    pub fn client_remove(&self, number: u64) {
        let removed = self.clients.write().remove(&number);
        if let Some(client) = removed {
            self.departed.lock().add(&client.file.counters().counts());
            let _ = rustix::fs::unlinkat(&self.table().dir, file_name(number, client.session), AtFlags::empty());
        }
    }
    /// The files of all clients with their sessions, oldest first; dead clients are included until they are removed.
    pub fn clients(&self) -> Vec<(u64, ClientFile)> {
        self.clients.read().values().map(|client| (client.session, client.file.clone())).collect()
    }
    /// Deletes the table, if one is attached, and all client files from shared memory, because the store is being
    /// deleted.
    pub fn delete(&self) -> Result<()> {
        let Some(table) = self.table.get() else { return Ok(()) };
        for name in file_names(&table.dir).map_err(|e| fail(&table.path.display().to_string(), e))? {
            if name == TABLE_FILE || name.starts_with(CLIENT_PREFIX) {
                let _ = rustix::fs::unlinkat(&table.dir, &name, AtFlags::empty());
            }
        }
        let _ = rustix::fs::rmdir(&table.path); // fails if devices still have files there
        Ok(())
    }
    fn open_table(&self, store: StoreId) -> Result<(Table, bool)> {
        let (dir, path) = open_store_dir(&self.base, store, None)?;
        let subject = path.join(TABLE_FILE).display().to_string();
        let lease = Lease::acquire(&path, &format!("memory of store {store}"))?;
        let boot_id = boot_id();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let found = match rustix::fs::openat(&dir, TABLE_FILE, flags, Mode::empty()) {
            Ok(fd) => {
                let (map, header) = map_with_header(&fd, CONTROL_BYTES, true, &subject)?;
                let header = ControlHeader::decode(&header, &subject)?;
                if header.store != store {
                    return Err(Error::new(ErrorKind::Corrupt, subject)
                        .because(format!("it belongs to store {}", header.store))
                        .try_next("delete this file if no process uses it"));
                }
                (header.boot_id == boot_id).then_some((fd, map))
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(fail(&subject, errno)),
        };
        let survived = found.is_some();
        let (fd, map) = match found {
            Some(found) => found,
            None => make_table(&dir, &ControlHeader { store, boot_id }, &subject)?,
        };
        Ok((Table { map, fd, dir, path, store, lease: Mutex::new(lease) }, survived))
    }
    /// Takes over the clients of an engine that died: live clients may be reading, dead ones may have left changes.
    fn adopt_clients(&self, table: &Table, survived: bool) -> Result<()> {
        let subject = table.path.display().to_string();
        let mut clients = self.clients.write();
        for name in file_names(&table.dir).map_err(|errno| fail(&subject, errno))? {
            let Some((number, session)) = name.strip_prefix(CLIENT_PREFIX).map(number_and_session) else { continue };
            let open = || rustix::fs::openat(&table.dir, &name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
            let file = open().filter(|_| survived).and_then(|fd| ClientFile::map(fd).ok()).filter(|file| {
                let is_its = number == Some(file.number()) && file.header.store == table.store;
                is_its && (file.is_held() || session != 0 && file.header.boot_id == boot_id())
            });
            match file {
                Some(file) => {
                    self.next_client.fetch_max(file.number() + 1, Ordering::Relaxed);
                    clients.insert(file.number(), Client::new(file, session));
                }
                None => drop(rustix::fs::unlinkat(&table.dir, &name, AtFlags::empty())),
            }
        }
        Ok(())
    }
}

fn file_name(number: u64, session: u64) -> String {
    match session {
        0 => format!("{CLIENT_PREFIX}{number}"),
        session => format!("{CLIENT_PREFIX}{number}-{session}"),
    }
}

/// Parses the part of a file name behind its prefix. Earlier versions wrote no session.
fn number_and_session(name: &str) -> (Option<u64>, u64) {
    let (number, session) = name.split_once('-').unwrap_or((name, "0"));
    session.parse().map_or((None, 0), |session| (number.parse().ok(), session))
}

fn file_names(dir: impl AsFd) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        names.extend(entry?.file_name().to_str().map(str::to_owned));
    }
    Ok(names)
}

/// Creates a file atomically with its header in place.
fn make_file(dir: impl AsFd, name: &str, bytes: u64, header: &[u8]) -> Result<OwnedFd, Errno> {
    let temporary = format!(".new-{name}");
    let _ = rustix::fs::unlinkat(&dir, &temporary, AtFlags::empty());
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    give_as(&fd, &dir)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    rustix::io::pwrite(&fd, header, 0)?;
    rustix::fs::renameat(&dir, &temporary, &dir, name)?;
    Ok(fd)
}

fn make_table(dir: &OwnedFd, header: &ControlHeader, subject: &str) -> Result<(OwnedFd, Mapping)> {
    let make = || {
        let fd = make_file(dir, ".control-half", CONTROL_BYTES, &header.encode())?;
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, CONTROL_BYTES)?;
        let map = Mapping::new(&fd, 0, CONTROL_BYTES as usize, true)?;
        word_at(&map, EPOCH_AT).store(1, Ordering::SeqCst);
        rustix::fs::renameat(dir, ".control-half", dir, TABLE_FILE)?;
        Ok((fd, map))
    };
    make().map_err(|errno| fail(subject, errno))
}

impl Control for SharedControl {
    fn attach(&self, store: StoreId) -> Result<bool> {
        if let Some(table) = self.table.get() {
            if table.store == store {
                return Ok(self.has_what_survived || word_at(&table.map, INSTANCE_AT).load(Ordering::SeqCst) > 0);
            }
            return Err(Error::new(ErrorKind::Internal, "control table")
                .because(format!("attached to store {}, asked for {store}", table.store)));
        }
        let (table, found) = self.open_table(store)?;
        let survived = found && word_at(&table.map, INSTANCE_AT).load(Ordering::SeqCst) > 0;
        self.adopt_clients(&table, survived)?;
        let _ = self.table.set(table);
        Ok(survived || self.has_what_survived)
    }
    fn instance_raise(&self) -> u64 {
        word_at(&self.table().map, INSTANCE_AT).fetch_add(1, Ordering::SeqCst) + 1
    }
    fn word(&self, hash: u64) -> u64 {
        word_at(&self.table().map, WORDS_AT + (hash % WORDS) * 8).load(Ordering::SeqCst)
    }
    fn word_raise(&self, hash: u64) -> u64 {
        word_at(&self.table().map, WORDS_AT + (hash % WORDS) * 8).fetch_add(1, Ordering::SeqCst) + 1
    }
    fn epoch(&self) -> u64 {
        word_at(&self.table().map, EPOCH_AT).load(Ordering::SeqCst)
    }
    fn epoch_raise(&self) -> u64 {
        word_at(&self.table().map, EPOCH_AT).fetch_add(1, Ordering::SeqCst) + 1
    }
    fn client_counts(&self) -> Vec<ClientCounts> {
        let counts = |client: &Client| {
            let counts = client.file.counters().counts();
            ClientCounts { pid: client.file.pid(), program: client.program.clone(), ..counts }
        };
        // One lock for both, so that a client that leaves meanwhile is counted once.
        let clients = self.clients.read();
        let departed = ClientCounts { session: 0, ..self.departed.lock().clone() };
        clients.values().map(counts).chain([departed]).collect()
    }
    fn slots_min(&self) -> u64 {
        fence(Ordering::SeqCst);
        let (mut min, mut dead) = (u64::MAX, Vec::new());
        for (number, client) in &*self.clients.read() {
            let announced = client.file.slots().min();
            if announced == u64::MAX {
                continue;
            }
            let mut checked = client.checked.lock();
            if checked.elapsed() >= LIVENESS_EVERY {
                *checked = Instant::now();
                if !client.file.is_held() {
                    // A client with a session stays: it may hold changes that nobody has applied yet.
                    client.file.slots().clear_all();
                    dead.extend((client.session == 0).then_some(*number));
                    continue;
                }
            }
            min = min.min(announced);
        }
        for number in dead {
            self.client_remove(number);
        }
        min
    }
}

impl std::fmt::Debug for SharedControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fd = self.table.get().map(|table| &table.fd);
        f.debug_struct("SharedControl").field("base", &self.base).field("fd", &fd).finish_non_exhaustive()
    }
}

/// The error for a table whose directory is gone. Not `NotFound`: that would mean that nobody serves the store.
#[cold]
fn deleted(subject: &str) -> Error {
    Error::new(ErrorKind::Io, subject)
        .because("the store's directory in shared memory was deleted while it was in use")
        .try_next("end the store's process (`kill PID`), which writes what it has, and open the store again")
}
