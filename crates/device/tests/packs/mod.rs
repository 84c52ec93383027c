//! Random writes, syncs, discards and garbage collection, with the process dying before or after every request in
//! turn: synced bytes are there, unsynced bytes have their old or their new value, and nothing else.

use cenote_device::Device;
use cenote_device::conformance::seed;
use cenote_device::mem::SplitMix;
use cenote_device::object::fake::{FakeService, Trouble};
use cenote_device::object::{ObjectDevice, ObjectDevices, Patience};
use cenote_model::{DeviceKind, DeviceSpec, Result};

use super::{ID, STORE, spec};

const UNITS: u64 = 64;
const UNIT: u64 = 4096;

fn open(service: &FakeService, create: bool) -> Result<ObjectDevice> {
    let service = service.clone();
    let patience = Patience { tries: 1, ..super::QUICK };
    let devices = ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), false, patience);
    devices.open_one(STORE, ID, &spec(DeviceKind::S3, UNITS * UNIT, "64KiB"), create)
}

/// Possible contents of each unit: the last entry is the current one while the process lives. Empty: anything.
struct Model(Vec<Vec<u32>>);

impl Model {
    fn write(&mut self, unit: u64, tag: u32) {
        let may = &mut self.0[unit as usize];
        // Discarded and written, but not synced: after a crash anything may be there, so no value can be checked.
        may.push(tag);
    }
    fn synced(&mut self) {
        for may in &mut self.0 {
            may.drain(..may.len().saturating_sub(1));
        }
    }
}

fn bytes_of(tag: u32) -> Vec<u8> {
    tag.to_le_bytes().repeat(UNIT as usize / 4)
}

/// The tag of a unit, which must hold one whole write.
fn tag_of(device: &dyn Device, unit: u64) -> Result<u32> {
    let mut bytes = vec![0; UNIT as usize];
    device.read_at(unit * UNIT, &mut bytes)?;
    let tag = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert!(bytes == bytes_of(tag), "a unit of two writes");
    Ok(tag)
}

struct Run {
    service: FakeService,
    model: Model,
    /// Units that were discarded and not synced since: a crash may leave anything there.
    open: Vec<bool>,
    rng: SplitMix,
    tag: u32,
}

impl Run {
    /// Runs until the process is dead or the steps are done.
    fn live(&mut self, device: &ObjectDevice, steps: u32, what: &str) {
        for _ in 0..steps {
            let unit = self.rng.below(UNITS);
            let units = (1 + self.rng.below(12)).min(UNITS - unit);
            match self.rng.below(16) {
                0..8 => {
                    let mut bytes = Vec::new();
                    for unit in unit..unit + units {
                        self.tag += 1;
                        self.model.write(unit, self.tag);
                        bytes.extend(bytes_of(self.tag));
                    }
                    if device.write_at(unit * UNIT, &bytes).is_err() {
                        return;
                    }
                }
                8..11 => {
                    if device.sync().is_err() {
                        return;
                    }
                    self.model.synced();
                    for (open, may) in self.open.iter_mut().zip(&self.model.0) {
                        *open &= may.is_empty();
                    }
                }
                11..13 => {
                    device.discard(unit * UNIT, units * UNIT).unwrap();
                    for unit in unit..unit + units {
                        self.model.0[unit as usize].clear();
                        self.open[unit as usize] = true;
                    }
                }
                13 => {
                    if device.tidy().is_err() {
                        return;
                    }
                }
                _ => {
                    for unit in unit..unit + units {
                        let Ok(found) = tag_of(device, unit) else { return };
                        let wanted = self.model.0[unit as usize].last().copied();
                        assert!(
                            wanted.is_none_or(|tag| tag == found),
                            "{what}: unit {unit} has {found}, not {wanted:?}"
                        );
                    }
                }
            }
        }
    }
    /// Checks what a new process finds, and tells the device what is in use.
    fn recover(&mut self, what: &str) -> ObjectDevice {
        self.service.revive();
        let device = open(&self.service, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        for unit in 0..UNITS {
            let found = tag_of(&device, unit).unwrap_or_else(|error| panic!("{what}, unit {unit}: {error}"));
            let may = &mut self.model.0[unit as usize];
            let fine = self.open[unit as usize] || may.is_empty() || may.contains(&found);
            assert!(fine, "{what}: unit {unit} has {found}, it may have {may:?}");
            *may = vec![found];
            self.open[unit as usize] = false;
        }
        if self.rng.below(2) == 0 {
            let live: Vec<u64> = (0..UNITS).filter(|_| self.rng.below(3) > 0).collect();
            let untouched = |tags: &Vec<u32>| tags.as_slice() == [0];
            let live: Vec<u64> = live.into_iter().filter(|unit| !untouched(&self.model.0[*unit as usize])).collect();
            device.retain(&mut live.iter().map(|unit| (unit * UNIT, UNIT))).unwrap();
            for unit in (0..UNITS).filter(|unit| !live.contains(unit)) {
                self.model.0[unit as usize].clear();
                self.open[unit as usize] = true;
            }
        }
        device
    }
}

fn one_life_and_death(seed: u64, death: u64, trouble: Trouble, lives: u32) -> bool {
    let service = FakeService::default();
    let device = open(&service, true).unwrap();
    service.revive();
    let model = Model((0..UNITS).map(|_| vec![0]).collect());
    let mut run = Run { service, model, open: vec![false; UNITS as usize], rng: SplitMix::new(seed), tag: 0 };
    let what = format!("CENOTE_SEED={seed}, {trouble:?} at request {death}");
    run.service.trouble_at(death, trouble);
    run.live(&device, 60, &what);
    let mut died = run.service.calls() > death;
    drop(device);
    for life in 0..lives {
        let what = format!("{what}, life {life}");
        let device = run.recover(&what);
        run.service.trouble_at(run.service.calls() + run.rng.below(20), trouble);
        run.live(&device, 30, &what);
        died |= true;
    }
    run.recover(&what);
    died
}

#[test]
fn death_at_every_request() {
    let seed = seed();
    for round in 0..6 {
        for trouble in [Trouble::Dead, Trouble::DeadAfter, Trouble::AnswerLost, Trouble::Passing] {
            let mut death = 0;
            while one_life_and_death(seed.wrapping_add(round), death, trouble, 0) {
                death += 1;
            }
            assert!(death > 10, "the workload makes requests: {death}");
        }
    }
}

#[test]
fn many_lives() {
    let seed = seed();
    for round in 0..150_u64 {
        let trouble = if round % 2 == 0 { Trouble::Dead } else { Trouble::DeadAfter };
        one_life_and_death(seed.wrapping_add(round), round % 23, trouble, 8);
    }
}
