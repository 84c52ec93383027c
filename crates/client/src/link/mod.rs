//! Everything that belongs to one engine of a store: the channel to it, the queue of pipelined updates, leased space,
//! and the history of reads.
//!
//! A file imports only files before it in this order; those in one group import each other: `transport`; `readers`,
//! `attachment`; `local`, `remote`, `start`; `callbacks`, `workers`, `shared`; `precondition`, `redo_log`; (`channel`,
//! `attach`, `handover`), `direct`; the crate's `records`; `subject`, (`queue`, `building`); `keeper`, `segments`; (`space`,
//! `arena`, `leaving`); `history`; this file. This room must not know the meaning of objects and indices, nor how bytes are
//! copied.

pub(crate) mod arena;
pub(crate) mod attach;
pub(crate) mod attachment;
mod building;
mod callbacks;
pub(crate) mod channel;
pub(crate) mod direct;
mod far;
mod handover;
pub(crate) mod history;
mod keeper;
pub(crate) mod leaving;
mod local;
pub(crate) mod precondition;
pub(crate) mod queue;
pub(crate) mod readers;
mod redo_log;
mod remote;
pub(crate) mod segments;
pub(crate) mod shared;
pub(crate) mod space;
mod start;
pub(crate) mod subject;
mod transport;
mod workers;

use std::path::Path;
use std::sync::{Arc, Weak};

use cenote_model::{ContainerId, HomeId, Request, Response, Result};

use crate::OpenOptions;
use crate::map::kept::Keeping;
use attachment::Attachment;
use channel::Channel;
use direct::Direct;
use history::ReadHistory;
use keeper::{Keeper, LooksAfter};
use queue::Queue;
use shared::Shared;
use space::Space;
pub(crate) use start::find_program;

/// A link; see the module.
pub(crate) struct Link {
    myself: Weak<Link>,
    pub channel: Arc<Channel>,
    pub queue: Arc<Queue>,
    pub space: Space,
    pub history: ReadHistory,
    /// Bytes of a home on another node.
    pub keeping: Keeping,
    /// Reads of a home on another node without the daemon of this one.
    pub direct: Direct,
    keeper: Arc<Keeper>,
}

impl Link {
    /// Attaches to the store in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions, shared: &Arc<Shared>) -> Result<Arc<Self>> {
        Channel::open(dir, options, shared).map(Self::of)
    }
    /// A link to another home of the cluster, which its first request attaches; `nowhere` until then.
    pub fn to_home(&self, home: HomeId, nowhere: &Arc<Attachment>) -> Arc<Self> {
        Self::of(Channel::to_home(home, &self.channel, nowhere))
    }
    fn of(channel: Arc<Channel>) -> Arc<Self> {
        Arc::new_cyclic(|myself: &Weak<Self>| {
            let keeper = Arc::new(Keeper::new(myself.clone()));
            Self {
                myself: myself.clone(),
                queue: Queue::new(&channel),
                space: Space::new(&channel, &keeper),
                history: ReadHistory::default(),
                keeping: Keeping::new(),
                direct: Direct::default(),
                channel,
                keeper,
            }
        })
    }
    /// Returns a weak handle for callbacks that may outlive the link.
    pub fn myself(&self) -> Weak<Self> {
        self.myself.clone()
    }
    /// Returns true if another node has the home, so that this process maps nothing of it.
    pub fn is_far(&self) -> bool {
        self.channel.attachment().place.far
    }
    /// Number of the engine that has a container, among those of the store.
    pub fn engine_of(&self, container: ContainerId) -> u16 {
        container.engine(self.channel.attachment().engines)
    }
    /// Sends a request after all earlier pipelined updates, and waits for its response.
    pub fn request(&self, request: Request) -> Result<Response> {
        self.queue.send_all();
        self.channel.ask(request)
    }
    /// Runs `task` soon on a thread for I/O.
    pub fn run_aside(&self, task: Box<dyn FnOnce() + Send>) {
        self.channel.shared.workers.run(task);
    }
    /// Calls `call` soon on the thread for users' callbacks.
    pub fn call_back(&self, call: Box<dyn FnOnce() + Send>) {
        self.channel.shared.callbacks.call(call);
    }
    /// Wakes the keeper, which looks after pipelined operations while no thread waits.
    #[inline]
    pub fn keep(&self) {
        self.keeper.wake();
    }
    /// Finishes pipelined operations, gives everything back, and detaches.
    pub fn close(&self) -> Result<()> {
        let settled = self.queue.settle_all();
        let left = self.channel.close(|| self.space.arenas.take(|_| true));
        self.keeper.stop();
        settled.and(left)
    }
}

impl LooksAfter for Link {
    fn look_after(&self) -> bool {
        self.queue.seal_stale();
        self.channel.unlease_now();
        self.channel.take_in();
        self.queue.is_idle()
    }
    fn look_at_devices(&self) {
        if leaving::is_due(&self.space) {
            self.look_aside();
        }
    }
}

impl Link {
    /// Leaves devices that are being emptied, on a separate thread, since reserved space may have to wait for room
    /// elsewhere.
    fn look_aside(&self) {
        let link = self.myself();
        let look = move || {
            if let Some(link) = link.upgrade() {
                leaving::look(&link.space);
            }
        };
        // Without a thread the next look does it.
        let _ = std::thread::Builder::new().name("cenote-leaving".into()).spawn(look);
    }
}
