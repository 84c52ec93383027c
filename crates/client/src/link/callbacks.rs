//! The thread for the callbacks of `Op::on_done`, which never holds a lock of the client.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use crate::sync::lock;

type Call = Box<dyn FnOnce() + Send>;

/// Starts its thread at first use.
#[derive(Default)]
pub(crate) struct Callbacks(Mutex<Option<Sender<Call>>>);

impl Callbacks {
    /// Schedules `call`, in order with earlier ones.
    pub fn call(&self, call: Call) {
        let mut sender = lock(&self.0);
        let call = match sender.as_ref() {
            None => call,
            Some(sender) => match sender.send(call) {
                Ok(()) => return,
                Err(unsent) => unsent.0,
            },
        };
        let (send, receive) = channel::<Call>();
        let loop_ = move || {
            while let Ok(call) = receive.recv() {
                // A panic in a user's callback is the user's; later callbacks still run.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call));
            }
        };
        match std::thread::Builder::new().name("cenote-callback".into()).spawn(loop_) {
            Ok(_) => {
                let _ = send.send(call);
                *sender = Some(send);
            }
            Err(_) => call(), // without a thread: run it here rather than never
        }
    }
}
