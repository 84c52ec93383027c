//! Devices that failed of late are no place for new bytes while others take them: a copy that cannot be made there is made
//! elsewhere, and not tried there again and again.

use cenote_model::{DeviceId, Error};

use super::Engine;

/// For so long after a failure.
const AVOIDED_NS: u64 = 30_000_000_000;

/// What a device did of late.
pub(crate) struct Trouble {
    /// For a person.
    pub why: String,
    until_ns: u64,
}

impl Engine {
    /// A device failed.
    pub(super) fn note_trouble(&mut self, dev: u8, error: &Error) {
        let why = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        let until_ns = self.state.now_ns.saturating_add(AVOIDED_NS);
        self.state.space.get_mut(dev).trouble = Some(Trouble { why, until_ns });
    }

    /// What lies long enough behind is forgotten: the device is given another try.
    pub(super) fn forget_trouble(&mut self) {
        let now = self.state.now_ns;
        for slot in &mut self.state.space.slots {
            // A clock that went back must not keep a device out for ever.
            slot.trouble.take_if(|trouble| !(now..=now.saturating_add(AVOIDED_NS)).contains(&trouble.until_ns));
        }
    }

    /// Devices to be avoided if there are others.
    pub(super) fn troubled(&self) -> Vec<DeviceId> {
        self.state.space.present().filter(|slot| slot.trouble.is_some()).map(|slot| slot.id).collect()
    }
}
