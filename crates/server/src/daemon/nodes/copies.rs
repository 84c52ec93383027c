//! Copies of other nodes' homes on this node: kept by their hosts' changes, opened here when this node becomes the host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_cluster::Members;
use cenote_device::mirror::{Rehomed, Replica, Unsynced};
use cenote_device::rados_dir::Address;
use cenote_device::{FsMetaDir, StoreDir, StoreLock, SystemDevices};
use cenote_model::{DeviceId, Error, ErrorKind, HomeId, Result, StoreId};
use cenote_rpc::net::TcpConnection;
use cenote_store::file_kind;
use cenote_wire::{Between, NodeMessage, decode_between};

use super::super::location::CopyPlace;
use super::losses::Losses;
use super::places::Reach;
use super::talk::{next, say};
use crate::Host;
use crate::host::Rehoming;
use crate::service::lock;

/// A connection without any sign of life for this long has ended.
const SILENCE: Duration = Duration::from_secs(10);
const SLEEP: Duration = Duration::from_millis(250);
/// Confirmed at the latest after so many bytes, so that the host goes on sending.
const CONFIRM_BYTES: usize = 4 << 20;

/// What this node has of a home.
enum Holding {
    /// A copy that its host's changes keep, by the number of the host's opening; when it was begun.
    Kept(u64, Box<Replica>, CopyPlace, Instant),
    /// A copy that may be complete, from an earlier process.
    Left,
    /// It is being opened here.
    Opening,
    /// This node is its host.
    Hosted(Arc<Host>),
}

/// See the module.
pub(super) struct Copies {
    /// The directory of this node.
    dir: PathBuf,
    /// The directory of this node's shared memory.
    memory: PathBuf,
    /// How places of tiers on other nodes are reached.
    reach: Arc<Reach>,
    /// Where homes lie, if all nodes reach them.
    homes_on: Option<Address>,
    losses: Arc<Losses>,
    /// Held while copies are synced.
    syncing: Mutex<()>,
    held: Mutex<BTreeMap<HomeId, Holding>>,
}

/// Who sends the changes of a home.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub home: HomeId,
    pub store: StoreId,
    /// The number of its opening.
    pub stream: u64,
}

impl Copies {
    /// The copies in the directory of a node, whose shared memory is in `memory`.
    pub fn open(dir: &Path, memory: &Path, members: &Members, reach: Arc<Reach>, losses: Arc<Losses>) -> Result<Self> {
        let (dir, memory) = (dir.to_path_buf(), memory.to_path_buf());
        let homes_on = members.homes_on.clone();
        let (syncing, held) = (Mutex::default(), Mutex::default());
        let this = Self { dir, memory, reach, homes_on, losses, syncing, held };
        for home in members.homes() {
            if this.complete(home)?.is_some() {
                lock(&this.held).insert(home, Holding::Left);
            }
        }
        Ok(this)
    }
    /// The complete copy of a home.
    pub fn complete(&self, home: HomeId) -> Result<Option<CopyPlace>> {
        CopyPlace::complete(&self.dir, &self.memory, home)
    }
    /// A home of another node whose host this node is.
    pub fn hosted(&self, home: HomeId) -> Option<Arc<Host>> {
        match lock(&self.held).get(&home) {
            Some(Holding::Hosted(host)) => Some(host.clone()),
            _ => None,
        }
    }
    /// All of them.
    pub fn all_hosted(&self) -> Vec<(HomeId, Arc<Host>)> {
        let held = lock(&self.held);
        held.iter()
            .filter_map(|(home, holding)| match holding {
                Holding::Hosted(host) => Some((*home, host.clone())),
                _ => None,
            })
            .collect()
    }
    /// Takes changes of a home from its host, until the connection ends, `is_over`, or this node opens the home.
    pub fn keep(&self, connection: &mut TcpConnection, from: Sender, is_over: &dyn Fn() -> bool) -> Result<()> {
        let has = self.begin(from)?;
        say(connection, &NodeMessage::Has { chunk: has })?;
        let (mut heard_at, mut beat_at) = (Instant::now(), Instant::now());
        let (mut unconfirmed, mut last) = (0, 0);
        while !is_over() {
            let is_busy = connection.turn()?;
            while unconfirmed < CONFIRM_BYTES
                && let Some(message) = next(connection, &mut heard_at)?
            {
                if let Between::Changes { chunk, changes } = decode_between(&message.bytes)? {
                    unconfirmed += changes.len().max(1);
                    last = chunk;
                    self.apply(from, chunk, changes)?;
                }
                connection.endpoint().release(message);
            }
            if unconfirmed > 0 {
                unconfirmed = 0;
                say(connection, &NodeMessage::Has { chunk: last })?;
                continue;
            }
            if beat_at.elapsed() > SILENCE / 10 {
                beat_at = Instant::now();
                connection.endpoint().beat();
            }
            if heard_at.elapsed() > SILENCE {
                return Err(Error::new(ErrorKind::Disconnected, format!("host of home {}", from.home))
                    .because(format!("it was silent for {} s", SILENCE.as_secs())));
            }
            if !is_busy {
                connection.wait(SLEEP)?;
            }
        }
        Ok(())
    }
    /// Prepares for changes. Returns the number of the last chunk that is here; 0 if a copy of everything is due.
    fn begin(&self, from: Sender) -> Result<u64> {
        let mut held = lock(&self.held);
        match held.get(&from.home) {
            Some(Holding::Kept(stream, replica, ..)) if *stream == from.stream => return Ok(replica.has()),
            Some(Holding::Opening | Holding::Hosted(_)) => return Err(taken(from.home)),
            _ => {}
        }
        held.remove(&from.home); // closes what it has open
        let place = CopyPlace::spare(&self.dir, &self.memory, from.home)?;
        place.make_anew(from.store)?;
        let store_dir = StoreDir::open(&place.dir)?;
        let devices = SystemDevices::with_shm_base(&place.base).of_owner(store_dir.owner());
        let files = Arc::new(FsMetaDir::open(&place.dir)?);
        let replica = Replica::new(from.store, files, Arc::new(Rehomed::new(devices, &place.dir)), file_kind);
        held.insert(from.home, Holding::Kept(from.stream, Box::new(replica), place, Instant::now()));
        Ok(0)
    }
    /// Reads from the copy of a home that is kept by this opening of its host: (offset, bytes) of a device.
    pub fn read(&self, home: HomeId, opening: u64, device: DeviceId, (offset, len): (u64, u32)) -> Result<Vec<u8>> {
        let found = match lock(&self.held).get(&home) {
            Some(Holding::Kept(stream, replica, ..)) if *stream == opening => replica.device(device),
            _ => None,
        };
        let Some(found) = found.filter(|_| super::twins::may_ask(len)) else { return Err(taken(home)) };
        let mut bytes = vec![0; len as usize];
        found.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
    fn apply(&self, from: Sender, chunk: u64, changes: &[u8]) -> Result<()> {
        let mut held = lock(&self.held);
        let Some(Holding::Kept(stream, replica, place, _)) = held.get_mut(&from.home) else {
            return Err(taken(from.home));
        };
        if *stream != from.stream {
            return Err(taken(from.home));
        }
        let was_complete = replica.is_complete();
        if let Err(error) = replica.apply(chunk, changes) {
            held.remove(&from.home);
            return Err(error);
        }
        if replica.is_complete() && !was_complete {
            place.note_complete(&self.dir, &self.memory, from.home)?;
            self.losses.forget(from.home);
        }
        Ok(())
    }
    /// Syncs what the copies here got since the last call: little is left to be synced then when a home is taken over.
    pub fn sync(&self) {
        let _syncing = lock(&self.syncing);
        let unsynced: Vec<((HomeId, u64, CopyPlace), Unsynced)> = {
            let mut held = lock(&self.held);
            let kept = held.iter_mut().filter_map(|(home, holding)| match holding {
                Holding::Kept(stream, replica, place, _) => {
                    Some(((*home, *stream, place.clone()), replica.take_unsynced()?))
                }
                _ => None,
            });
            kept.collect()
        };
        for ((home, stream, place), unsynced) in unsynced {
            if let Err(error) = unsynced.sync() {
                tracing::warn!(%error, %home, "a copy of a home could not be synced: its host sends it anew");
                self.lose(home, stream, &place);
            }
        }
    }
    /// What was told to a copy may be missing from its disks, whatever is synced later: a system reports that once. The copy
    /// counts no more, and others are told so if it did.
    fn lose(&self, home: HomeId, stream: u64, place: &CopyPlace) {
        let mut held = lock(&self.held);
        match held.get(&home) {
            Some(Holding::Kept(of, ..)) if *of != stream => return, // another copy comes
            Some(Holding::Kept(..)) => drop(held.remove(&home)),
            _ => {} // this node takes the home over, and waits for what is being synced
        }
        let marked = self.complete(home).and_then(|complete| {
            if complete.as_ref() == Some(place) {
                self.losses.note(home);
            }
            place.note_incomplete()
        });
        if let Err(error) = marked {
            tracing::error!(%error, %home, "a bad copy of a home could not be marked as one");
        }
    }
    /// Opens a home from its copy here. From now on no changes are taken from its former host. It is not served before
    /// [`Copies::serve`].
    pub fn open_home(&self, home: HomeId, term: u64) -> Result<Arc<Host>> {
        {
            let mut held = lock(&self.held);
            match held.get(&home) {
                Some(Holding::Opening | Holding::Hosted(_)) => return Err(taken(home)),
                _ => drop(held.insert(home, Holding::Opening)), // closes what it has open
            }
        }
        let opened = match &self.homes_on {
            Some(on) => self.open_shared(home, &on.of(&home.to_string())),
            None => self.open_copy(home, term),
        };
        opened.map(Arc::new).inspect_err(|_| self.give_up(home))
    }
    fn open_copy(&self, home: HomeId, term: u64) -> Result<Host> {
        let syncing = lock(&self.syncing); // what is being synced counts
        let place = self.complete(home)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("home {home}"))
                .because("this node has no complete copy of it")
                .try_next("see `cenote ha`; what there is may be on the node that was its host before")
        })?;
        place.prepare(term)?;
        drop(syncing);
        Host::open_copy(&place.dir, &place.base, None, Some(self.reach.maker(home)))
    }
    fn open_shared(&self, home: HomeId, address: &Address) -> Result<Host> {
        let place = CopyPlace::of_shared(&self.dir, &self.memory, home);
        let places = self.reach.maker(home);
        Host::open_shared(home, address, &Rehoming { dir: &place.dir, base: &place.base, places })
    }
    /// Deletes what is here of a home in a pool whose host another node is, its memory above all, unless it is open.
    pub fn clear_shared(&self, home: HomeId) {
        let place = CopyPlace::of_shared(&self.dir, &self.memory, home);
        let held = lock(&self.held);
        if !place.dir.exists() || matches!(held.get(&home), Some(Holding::Opening | Holding::Hosted(_))) {
            return;
        }
        // Whoever closes it deletes it then.
        let cleared = StoreLock::acquire(&place.dir).and_then(|lock| lock.map_or(Ok(()), |_free| place.remove()));
        if let Err(error) = cleared {
            tracing::warn!(%error, %home, "what this node had of a home stays");
        }
    }
    /// Deletes the copy of a home that this node mirrors no more, on a thread of its own. `listed_at`: when the view named this
    /// node as its mirror. A copy that was begun later is another one: its host has chosen this node again.
    pub fn delete(self: &Arc<Self>, home: HomeId, listed_at: Instant) {
        {
            let mut held = lock(&self.held);
            match held.get(&home) {
                Some(Holding::Kept(.., begun_at)) if *begun_at >= listed_at => return,
                Some(Holding::Opening | Holding::Hosted(_)) => return,
                _ => drop(held.insert(home, Holding::Opening)), // closes what it has open, and refuses changes meanwhile
            }
        }
        let this = self.clone();
        let delete = move || {
            let deleted = CopyPlace::all(&this.dir, &this.memory, home)
                .and_then(|all| all.into_iter().try_for_each(|place| place.remove()));
            match deleted {
                Ok(()) => tracing::info!(%home, "the copy of a home that another node mirrors by now is deleted"),
                Err(error) => tracing::warn!(%error, %home, "what this node had of a home stays"),
            }
            lock(&this.held).remove(&home);
        };
        if let Err(error) = std::thread::Builder::new().name("cenote-delete".into()).spawn(delete) {
            tracing::warn!(%error, %home, "what this node had of a home stays");
            lock(&self.held).remove(&home);
        }
    }
    /// Another node is the host of a home that was opened here, or it could not be opened.
    pub fn give_up(&self, home: HomeId) {
        let mut held = lock(&self.held);
        if matches!(held.get(&home), Some(Holding::Opening)) {
            held.insert(home, Holding::Left);
        }
    }
    /// Serves an opened home from now on.
    pub fn serve(&self, home: HomeId, host: Arc<Host>) {
        lock(&self.held).insert(home, Holding::Hosted(host));
    }
    /// Lets a home go that another node has by now. Its files stay until its new host sends a copy, and count no more unless this
    /// node `is_mirror`: then they are all that was told until the new host tells anything.
    pub fn let_go(&self, home: HomeId, is_mirror: bool) -> Option<Arc<Host>> {
        let mut held = lock(&self.held);
        let Some(Holding::Hosted(host)) = held.get(&home) else { return None };
        let host = host.clone();
        held.remove(&home);
        if is_mirror {
            return Some(host);
        }
        let place = self.complete(home);
        if let Err(error) = place.and_then(|place| place.map_or(Ok(()), |place| place.note_incomplete())) {
            tracing::warn!(%error, %home, "an old copy could not be marked as one");
        }
        Some(host)
    }
}

#[cold]
fn taken(home: HomeId) -> Error {
    Error::new(ErrorKind::Conflict, format!("home {home}"))
        .because("this node has it by now: the sender's view is an old one")
        .try_next("see `cenote ha`")
}
