//! Creation of a store.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use cenote_device::MetaDir;
use cenote_model::{DeviceId, Error, ErrorKind, Result, StoreConfig, StoreId, UserWeights};

use super::Engine;
use super::activity::{Activities, Asks};
use super::core::{Answers, Core, Identity, Jobs, Observed, check_spec, make_device, slot_of_tenant};
use super::homes::seams_of;
use crate::apply::Txn;
use crate::checkpoint::{self, Head, encode};
use crate::home::{Home, SHARED, check_count, name_within, split};
use crate::journal::{self, HEADER_BYTES, Journal};
use crate::space::{DEVICES_MAX, DeviceSlot};
use crate::state::EngineState;
use crate::superblock::{SUPERBLOCK, Superblock, SuperblockDevice};
use crate::{Seams, StoreSummary, Tuning};

impl Engine {
    /// Creates a store with a random id.
    pub fn create(seams: Seams, config: &StoreConfig) -> Result<Engine> {
        Self::create_with(seams, config, Tuning::default())
    }

    /// Creates a store with a random id and a given tuning.
    pub fn create_with(seams: Seams, config: &StoreConfig, tuning: Tuning) -> Result<Engine> {
        let id = Self::draw_id(&seams);
        Self::create_tuned(seams, id, config, tuning)
    }

    /// Returns a random id for a store.
    pub fn draw_id(seams: &Seams) -> StoreId {
        // The standard library seeds its hash maps from the system's source of randomness.
        let random = |n: u64| {
            let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
            hasher.write_u64(n);
            hasher.finish()
        };
        let time = seams.clock.unix_ms() ^ seams.clock.now_ns().rotate_left(32);
        StoreId((u128::from(random(time)) << 64) | u128::from(random(!time)))
    }

    /// Creates a store with a given id (for simulation, where nothing is random).
    pub fn create_with_id(seams: Seams, id: StoreId, config: &StoreConfig) -> Result<Engine> {
        Self::create_tuned(seams, id, config, Tuning::default())
    }

    /// Creates a store with one engine, and a given id and tuning. Fails if the directory holds a store, a
    /// specification is invalid or a device cannot be made; what it made is removed then.
    #[allow(clippy::needless_pass_by_value, reason = "the seams are the engine's, as in every other way to make one")]
    pub fn create_tuned(seams: Seams, id: StoreId, config: &StoreConfig, tuning: Tuning) -> Result<Engine> {
        let config = StoreConfig { engines: 1, ..config.clone() };
        let made = Self::create_all(&seams, id, &config, tuning)?;
        made.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "a store without engines"))
    }

    /// Creates a store with as many engines as `config` says, in the order of their homes. Fails as
    /// [`Engine::create_tuned`], or if a device is too small or of a kind that several engines cannot share.
    pub fn create_all(seams: &Seams, id: StoreId, config: &StoreConfig, tuning: Tuning) -> Result<Vec<Engine>> {
        if seams.meta.list()?.iter().any(|name| name == SUPERBLOCK) {
            return Err(Error::new(ErrorKind::Exists, "a store")
                .because("the directory holds one already")
                .try_next("open it, or choose another directory"));
        }
        if config.devices.is_empty() || config.devices.len() > DEVICES_MAX {
            return Err(Error::new(ErrorKind::InvalidInput, "a new store")
                .because(format!("{} devices", config.devices.len()))
                .try_next(format!("give it 1 to {DEVICES_MAX}")));
        }
        for (i, spec) in config.devices.iter().enumerate() {
            check_spec(spec, config.devices[..i].iter().map(|other| other.name.as_str()))?;
        }
        check_count(config.engines, config.home, &config.devices)?;
        remove_leftovers(seams.meta.as_ref())?;
        let mut slots: Vec<DeviceSlot> = Vec::new();
        let incarnation = seams.clock.unix_ms();
        for (i, spec) in config.devices.iter().enumerate() {
            match make_device(seams, id, DeviceId(i as u16 + 1), spec, incarnation) {
                Ok(slot) => slots.push(slot),
                Err(error) => {
                    unmake(seams, id, &slots);
                    return Err(error);
                }
            }
        }
        let made = Self::begin(seams, id, config, slots, tuning);
        if made.is_err() {
            for (i, spec) in config.devices.iter().enumerate() {
                let _ = seams.devices.remove(id, DeviceId(i as u16 + 1), spec); // the first error is the one to tell
            }
            let _ = remove_leftovers(seams.meta.as_ref());
        }
        made
    }

    fn begin(
        seams: &Seams,
        id: StoreId,
        config: &StoreConfig,
        slots: Vec<DeviceSlot>,
        settings: Tuning,
    ) -> Result<Vec<Engine>> {
        seams.control.attach(id)?;
        let homes = split(&slots, config.engines)?;
        let devices = slots.iter().map(SuperblockDevice::of).collect();
        let count = config.engines.max(1);
        let settings = settings.shared(count);
        let mut tenants: Vec<Vec<DeviceSlot>> =
            (1..count).map(|_| slots.iter().map(slot_of_tenant).collect()).collect();
        tenants.insert(0, slots);
        let mut begun = Vec::new();
        for (index, mut slots) in (0..count).zip(tenants) {
            let home = Home { index, count, of_cluster: config.home };
            if let Some(loans) = homes.get(usize::from(index)) {
                for slot in &mut slots {
                    slot.restrict(loans);
                }
            }
            let mut state = EngineState::default();
            state.space.slots = slots;
            let seams = seams_of(seams, home);
            let head = Head { store: id, sequence: 1, journal_from: 1, position: HEADER_BYTES, epoch: 0 };
            let bytes = encode(&state, &head, 4096);
            seams.meta.write_file(&checkpoint::file_name(1), &bytes)?;
            let journal = Journal::begin(Arc::clone(&seams.meta), id, 1, (0, 0), HEADER_BYTES, settings.log_bytes)?;
            begun.push((home, seams, state, journal));
        }
        // The store exists once its superblock is written.
        let (writers, readers) = (config.writers.clone(), config.readers.clone());
        let superblock = Superblock { id, writers, readers, devices, homes, home: config.home };
        superblock.write(seams.meta.as_ref())?;
        seams.control.instance_raise();
        let engines = begun.into_iter().map(|(home, seams, state, journal)| {
            let mut engine = Self::assemble(seams, &superblock, home, settings, state, journal);
            engine.activities.journaling.last.sequence = 1;
            engine.activities.journaling.last.on_media = 1;
            engine.activities.journaling.last.position = engine.core.journal.position();
            engine
        });
        Ok(engines.collect())
    }

    pub(in crate::engine) fn assemble(
        seams: Seams,
        superblock: &Superblock,
        home: Home,
        settings: Tuning,
        state: EngineState,
        journal: Journal,
    ) -> Engine {
        let core = Core {
            store: Identity {
                id: superblock.id,
                writers: superblock.writers.clone(),
                readers: superblock.readers.clone(),
                opened_ns: seams.clock.now_ns(),
                resumed_below: state.sessions.next_id,
                home,
                homes: superblock.homes.clone(),
            },
            seams,
            settings,
            state,
            journal,
            txn: Txn::default(),
            jobs: Jobs::default(),
            answers: Answers::default(),
            observed: Observed::default(),
            weights: UserWeights::default(),
            asks: Asks::default(),
            abandoned: Vec::new(),
        };
        let mut engine = Engine { core, activities: Activities::default() };
        engine.core.update_clock();
        engine.activities.devices.read_profiles(&mut engine.core);
        engine.activities.tiering.read_policy(&mut engine.core);
        engine.core.read_weights();
        engine
    }

    /// Returns what the superblock says; `NotFound` if there is no store.
    pub fn peek(meta: &dyn MetaDir) -> Result<StoreSummary> {
        let superblock = Superblock::read(meta)?;
        let engines = superblock.homes.len().max(1) as u16;
        let devices = superblock.devices.into_iter().filter(|device| !device.removed);
        let (ids, devices) = devices.map(|device| (device.id, device.spec)).unzip();
        Ok(StoreSummary {
            id: superblock.id,
            devices,
            ids,
            writers: superblock.writers,
            readers: superblock.readers,
            engines,
            home: superblock.home,
        })
    }
}

/// Removes the files of an incomplete creation.
fn remove_leftovers(meta: &dyn MetaDir) -> Result<()> {
    for name in meta.list()? {
        let within = name_within(&name);
        if journal::sequence_of(within).is_some()
            || checkpoint::sequence_of(within).is_some()
            || SHARED.contains(&name.as_str())
        {
            meta.remove(&name)?;
        }
    }
    Ok(())
}

fn unmake(seams: &Seams, id: StoreId, slots: &[DeviceSlot]) {
    for slot in slots {
        let _ = seams.devices.remove(id, slot.id, &slot.spec); // the first error is the one to tell
    }
}
