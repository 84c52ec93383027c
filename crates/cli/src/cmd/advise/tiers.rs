//! The tiers that are advised on: a store's, or what `cenote init` would make of this machine.

use std::path::{Path, PathBuf};

use cenote::model::DeviceInfo;
use cenote::{Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_policy::{DeviceView, speed_preset};

use super::super::{Access, Context, tiers};
use super::policy_file;

/// Tiers, and whose they are.
pub struct Known {
    /// As policies see them.
    pub tiers: Vec<DeviceView>,
    /// The store's directory; `None`: there is no store, this machine was measured.
    pub store: Option<PathBuf>,
}

impl Known {
    /// Where the store reads its policy `user` from, if it is to be written.
    pub fn policy_file(&self, apply: bool) -> Option<PathBuf> {
        self.store.as_deref().filter(|_| apply).map(policy_file::of_store)
    }
}

/// The tiers of the store that is meant; without one, and none asked for, those of this machine.
pub fn known(context: &Context<'_>, must_be_a_store: bool) -> cenote::Result<Known> {
    let dir = context.dir()?;
    // Open for no longer than it takes: the program may want the store for itself.
    let devices = context.open(Access::Read).and_then(|store| store.devices());
    match devices {
        Ok(devices) => Ok(Known { tiers: devices.iter().map(view).collect(), store: Some(dir) }),
        Err(error) if error.kind() == ErrorKind::NotFound && context.cli.store.is_none() && !must_be_a_store => {
            Ok(Known { tiers: measured()?, store: None })
        }
        Err(error) => Err(error),
    }
}

fn view(device: &DeviceInfo) -> DeviceView {
    let spec = &device.spec;
    DeviceView {
        state: device.state,
        used_bytes: device.used_bytes,
        reserved_bytes: device.reserved_bytes,
        watermark_high_permille: spec.watermark_high_permille,
        watermark_low_permille: spec.watermark_low_permille,
        speed: device.speed.unwrap_or_else(|| speed_preset(spec.kind)),
        is_cache: spec.options.get("use") == Some("cache"),
        ..DeviceView::new(device.id, &spec.name, spec.kind, spec.capacity_bytes)
    }
}

/// What `cenote init` would make and measure, in a store that is gone at once.
fn measured() -> cenote::Result<Vec<DeviceView>> {
    struct Gone<'a>(&'a Path);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            let _ = Store::destroy(self.0, true);
            let _ = std::fs::remove_dir_all(self.0);
        }
    }
    let dir = std::env::temp_dir().join(format!("cenote-advise-{}", std::process::id()));
    let _gone = Gone(&dir);
    let options = OpenOptions { mode: Mode::InProcess, create: true, create_new: true, ..OpenOptions::default() };
    let open = || {
        let store = Store::open_with(&dir, &options)?;
        tiers::measure_new(&store)?;
        store.devices()
    };
    let devices = open().map_err(|error| {
        Error::new(error.kind(), "measuring this machine's memory and disk")
            .because(error.to_string())
            .try_next("make a store (cenote init) and name it with --store")
    })?;
    Ok(devices.iter().map(view).collect())
}
