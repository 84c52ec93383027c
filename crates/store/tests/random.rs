//! Random work compared with a model of plain bytes, across kills and power losses.

mod world;

use std::collections::BTreeMap;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

/// What the store should hold: for each container its objects and records.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    objects: BTreeMap<ObjectKey, Vec<u8>>,
    records: BTreeMap<(IndexKey, Vec<u8>), Vec<u8>>,
}

impl Model {
    fn of(&self, container: ContainerId) -> Model {
        Model {
            objects: self
                .objects
                .iter()
                .filter(|(k, _)| k.container == container)
                .map(|(k, v)| (*k, v.clone()))
                .collect(),
            records: self
                .records
                .iter()
                .filter(|((i, _), _)| i.container == container)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        }
    }
}

fn actual(world: &mut World, container: ContainerId, indices: &[IndexKey]) -> Model {
    let mut model = Model::default();
    let Response::Objects(ids) = world.ask(Request::ObjectList { container, after: None, limit: 10_000 }) else {
        panic!()
    };
    for id in ids {
        let key = ObjectKey { container, object: id };
        let bytes = world.read(key).unwrap();
        model.objects.insert(key, bytes);
    }
    for key in indices.iter().filter(|key| key.container == container) {
        let request =
            Request::Next { index: *key, from: NextFrom::Start, prefix: vec![], limit: 60_000, bytes_max: 1 << 30 };
        if let Response::Records { records, .. } = world.ask(request) {
            model.records.extend(records.iter().map(|(k, v)| ((*key, k.to_vec()), v.to_vec())));
        }
    }
    model
}

struct Run {
    world: World,
    rng: Rng,
    containers: Vec<(ContainerId, Durability)>,
    indices: Vec<IndexKey>,
    model: Model,
    /// Every state since the last flush that covered it, by container: after power loss the store must be in one
    /// of them.
    history: BTreeMap<ContainerId, Vec<(u64, Model)>>,
}

impl Run {
    fn new(seed: u64, config: impl Fn(u64) -> StoreConfig, durabilities: &[Durability]) -> Self {
        let mut rng = Rng::new(seed);
        let memory = [256 << 10, 1 << 20, 8 << 20][rng.below(3) as usize];
        let mut world = World::new(&config(memory));
        let mut containers = Vec::new();
        for (i, durability) in durabilities.iter().enumerate() {
            containers.push((world.container(&format!("c{i}"), *durability), *durability));
        }
        let indices: Vec<_> = containers.iter().map(|(c, _)| index(*c, 1)).collect();
        for key in &indices {
            world.must(vec![Update::IndexCreate { key: *key }]);
        }
        world.flush(FlushTarget::Store).unwrap();
        let history = containers.iter().map(|(c, _)| (*c, vec![(0, Model::default())])).collect();
        Self { world, rng, containers, indices, model: Model::default(), history }
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        let salt = self.rng.next();
        (0..len).map(|i| (salt.wrapping_add(i.wrapping_mul(0x9e37_79b9)) >> 7) as u8).collect()
    }

    fn some_update(&mut self, container: ContainerId, model: &mut Model) -> Option<Update> {
        let key = object(container, u128::from(self.rng.below(6)));
        let exists = model.objects.contains_key(&key);
        let grain = [1, 512, 4096, 65536][self.rng.below(4) as usize];
        let offset = self.rng.below(200_000 / grain + 1) * grain;
        let longest = [100, 4096, 150_000][self.rng.below(3) as usize];
        let len = (1 + self.rng.below(longest)).next_multiple_of(grain);
        match self.rng.below(12) {
            _ if !exists => {
                model.objects.insert(key, Vec::new());
                Some(Update::ObjectCreate { key, block_shift: 12 })
            }
            0 => {
                model.objects.remove(&key);
                Some(Update::ObjectDelete { key })
            }
            1 => {
                let it = model.objects.get_mut(&key).unwrap();
                let end = (offset + len).min(it.len() as u64);
                if offset < end {
                    it[offset as usize..end as usize].fill(0);
                }
                Some(Update::Punch { key, offset, len })
            }
            2 => {
                model.objects.get_mut(&key).unwrap().resize(offset as usize, 0);
                Some(Update::Truncate { key, size: offset })
            }
            3 | 4 => {
                let index = index(container, 1);
                let name = vec![b'k'; 1 + self.rng.below(40) as usize];
                if self.rng.below(3) == 0 {
                    model.records.remove(&(index, name.clone()));
                    Some(Update::Del { index, key: name })
                } else {
                    let value = self.bytes(offset % 50);
                    model.records.insert((index, name.clone()), value.clone());
                    Some(Update::Put { index, key: name, value, only_new: false })
                }
            }
            _ => {
                let bytes = self.bytes(len);
                let update = self.world.stage(key, offset, &bytes).ok()?;
                let it = model.objects.get_mut(&key).unwrap();
                let end = (offset + len) as usize;
                if it.len() < end {
                    it.resize(end, 0);
                }
                it[offset as usize..end].copy_from_slice(&bytes);
                Some(update)
            }
        }
    }

    fn transaction(&mut self) {
        let mut model = self.model.clone();
        let mut updates = Vec::new();
        let mut touched = Vec::new();
        let across = self.rng.below(5) == 0;
        let one = self.rng.below(self.containers.len() as u64) as usize;
        for _ in 0..=self.rng.below(5) {
            let pick = if across { self.rng.below(2) as usize } else { one };
            let container = self.containers[pick].0;
            if let Some(update) = self.some_update(container, &mut model) {
                updates.push(update);
                touched.push(container);
            }
        }
        let fails = self.rng.below(6) == 0;
        if fails {
            let key = object(self.containers[one].0, 999);
            updates.push(Update::ObjectDelete { key });
        }
        if updates.is_empty() {
            return;
        }
        match self.world.apply(updates, true) {
            Response::Applied { epoch, .. } => {
                assert!(!fails);
                self.model = model;
                for container in touched {
                    let now = self.model.of(container);
                    let states = self.history.get_mut(&container).unwrap();
                    let sync = self.containers.contains(&(container, Durability::Sync));
                    if sync {
                        states.clear();
                    }
                    states.push((epoch, now));
                }
            }
            Response::Failed(error) => {
                assert!(fails || matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }

    fn check(&mut self) {
        for (container, _) in self.containers.clone() {
            let found = actual(&mut self.world, container, &self.indices);
            assert!(found == self.model.of(container), "container {container} differs");
        }
        let report = self.world.verify();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }

    /// After power loss: checks that each container is in one of its possible states, which becomes the model.
    fn settle(&mut self) {
        let mut model = Model::default();
        for (container, durability) in self.containers.clone() {
            let found = actual(&mut self.world, container, &self.indices);
            let states = &self.history[&container];
            let at = states.iter().rposition(|(_, state)| *state == found);
            assert!(at.is_some(), "container {container} ({durability:?}) is in none of its {} states", states.len());
            model.objects.extend(found.objects.clone());
            model.records.extend(found.records.clone());
            self.history.insert(container, vec![(0, found)]);
        }
        self.model = model;
        self.check();
    }

    fn go(&mut self, steps: u32) {
        for _ in 0..steps {
            match self.rng.below(100) {
                0..=69 => self.transaction(),
                70..=84 => {
                    self.world.step();
                }
                85..=89 => {
                    let ns = self.rng.below(3_000_000_000);
                    self.world.clock.advance_ns(ns);
                    self.world.work();
                }
                90..=92 => {
                    let (container, _) = self.containers[self.rng.below(4) as usize];
                    if self.world.flush(FlushTarget::Container(container)).is_ok() {
                        let now = self.model.of(container);
                        self.history.insert(container, vec![(0, now)]);
                    }
                }
                93 => {
                    let Response::Done = self.world.ask(Request::Checkpoint) else { panic!() };
                }
                94 => {
                    self.world.engine().close().unwrap();
                    self.world.kill();
                    self.world.open().unwrap();
                    assert_eq!(self.world.report.records_replayed, 0);
                    self.check();
                }
                95..=97 => {
                    self.world.kill();
                    self.world.open().unwrap();
                    assert!(!self.world.report.power_lost);
                    self.check();
                }
                98 => {
                    let seed = self.rng.next();
                    let keep = [Keep::Nothing, Keep::Everything, Keep::Random(seed)][self.rng.below(3) as usize];
                    self.world.power_loss(keep);
                    self.world.open().unwrap();
                    assert!(self.world.report.power_lost);
                    self.settle();
                }
                _ => self.check(),
            }
        }
        self.check();
    }
}

#[test]
fn agrees_with_plain_bytes() {
    let durabilities = [Durability::Async, Durability::Async, Durability::Sync, Durability::Bypass];
    agrees(|memory| three_tiers(memory, 24 << 20, 48 << 20), &durabilities);
}

#[test]
fn agrees_with_plain_bytes_on_an_object_service() {
    // Room for all of it in memory: clients cannot write to a bucket.
    agrees(|memory| memory_and_bucket(memory + (48 << 20), 64 << 20), &[Durability::Async; 4]);
}

fn agrees(config: impl Fn(u64) -> StoreConfig, durabilities: &[Durability]) {
    let given = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("CENOTE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    let seeds: Vec<u64> = given.map_or_else(|| (1..=count).collect(), |seed| vec![seed]);
    for seed in seeds {
        println!("CENOTE_SEED={seed}");
        Run::new(seed, &config, durabilities).go(150);
    }
}
