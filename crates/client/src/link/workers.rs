//! Threads for I/O on file tiers, for several concurrent transfers.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::sync::lock;

type Task = Box<dyn FnOnce() + Send>;

/// Enough to keep an SSD busy with 1 MiB transfers.
const THREADS: usize = 4;

/// Worker threads that start at first use, and end with the drop.
#[derive(Default)]
pub(crate) struct Workers(Mutex<Option<Sender<Task>>>);

impl Workers {
    /// Runs `task` soon on one of the threads, or here if there is no thread.
    pub fn run(&self, task: Task) {
        let mut sender = lock(&self.0);
        if sender.is_none() {
            *sender = start();
        }
        let unsent = match sender.as_ref() {
            Some(sender) => sender.send(task).map_err(|unsent| unsent.0).err(),
            None => Some(task),
        };
        drop(sender);
        if let Some(task) = unsent {
            task();
        }
    }
}

fn start() -> Option<Sender<Task>> {
    let (send, receive) = channel::<Task>();
    let receive = Arc::new(Mutex::new(receive));
    let mut started = 0;
    for _ in 0..THREADS {
        let receive = receive.clone();
        let spawned = std::thread::Builder::new().name("cenote-io".into()).spawn(move || work(&receive));
        started += usize::from(spawned.is_ok());
    }
    (started > 0).then_some(send)
}

fn work(receive: &Mutex<Receiver<Task>>) {
    loop {
        let task = lock(receive).recv();
        match task {
            Ok(task) => drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(task))),
            Err(_) => return,
        }
    }
}
