//! Tiers for the advice: a store's, or what `cenote init` would create on this machine.

use std::path::{Path, PathBuf};

use cenote::model::DeviceInfo;
use cenote::{Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_policy::{DeviceView, speed_preset};

use super::super::{Access, Context, tiers};
use super::policy_file;

/// Tiers and their owner.
pub struct TierSet {
    /// As policies see them.
    pub tiers: Vec<DeviceView>,
    /// The store's directory; `None`: there is no store, this machine was measured.
    pub store: Option<PathBuf>,
}

impl TierSet {
    /// Returns the file with the store's policy `user`, if it is to be written.
    pub fn policy_file(&self, apply: bool) -> Option<PathBuf> {
        self.store.as_deref().filter(|_| apply).map(policy_file::of_store)
    }
}

/// Returns the tiers of the selected store; if there is none, and none was named, those of this machine.
pub fn known(context: &Context<'_>, must_be_a_store: bool) -> cenote::Result<TierSet> {
    let dir = context.dir()?;
    // Open only as long as needed: the program may want the store for itself.
    let devices = context.open(Access::Read).and_then(|store| store.devices());
    match devices {
        Ok(devices) => Ok(TierSet { tiers: devices.iter().map(view).collect(), store: Some(dir) }),
        Err(error) if error.kind() == ErrorKind::NotFound && context.cli.store.is_none() && !must_be_a_store => {
            Ok(TierSet { tiers: measured()?, store: None })
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

/// Measures what `cenote init` would create, in a temporary store.
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
