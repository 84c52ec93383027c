//! A home whose changes another node carries out: at each moment the copy there can be opened, and has all that was
//! confirmed.

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_device::Devices;
use cenote_device::mem::{MemDevices, MemMetaDir};
use cenote_device::mirror::{MirroredDevices, MirroredFiles, Replica, Source, Stream, Twins};
use cenote_model::*;
use cenote_store::{Engine, Seams, file_kind};
use world::{Rng, STORE, World, crc, object, three_tiers};

const NODE: NodeId = NodeId(2);

type Content = BTreeMap<ObjectKey, Vec<u8>>;

/// A home, its mirror, and what its objects had after each request.
struct Pair {
    world: World,
    stream: Arc<Stream>,
    source: Source,
    replica: Replica,
    there: (MemMetaDir, MemDevices),
    states: Vec<(u64, Content)>,
}

fn pair() -> Pair {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let plain = world.seams();
    world.engine().close().unwrap();
    let stream = Arc::<Stream>::default();
    let devices = MirroredDevices::new(plain.devices.clone(), stream.clone());
    let source = Source::new(plain.meta.clone(), &devices, stream.clone(), file_kind);
    let files = MirroredFiles::new(plain.meta.clone(), stream.clone(), file_kind);
    let seams = Seams { meta: Arc::new(files), devices: Arc::new(devices), ..plain };
    world.engine = Some(Engine::open_tuned(seams, world.tuning).unwrap().0);
    world.attach();
    let there = (MemMetaDir::default(), MemDevices::new(16 << 20));
    let replica = Replica::new(STORE, Arc::new(there.0.clone()), Arc::new(there.1.clone()), file_kind);
    Pair { world, stream, source, replica, there, states: vec![(0, Content::new())] }
}

impl Pair {
    fn copy(&mut self) {
        self.stream.attach(NODE, Box::new(|| ()));
        let engine = self.world.engine();
        let ranges: BTreeMap<DeviceId, _> =
            engine.device_infos().iter().map(|info| (info.id, engine.used_ranges(info.id))).collect();
        self.source.copy_to(NODE, &|id| ranges[&id].clone(), &|_, _| ()).unwrap();
        self.stream.complete(NODE);
        self.stream.require(&[NODE]);
    }
    /// Carries out what waits, some `limit` bytes.
    fn carry(&mut self, limit: usize) {
        for chunk in self.stream.take(NODE, limit).unwrap() {
            self.replica.apply(chunk.number, &chunk.bytes).unwrap();
            self.stream.confirm(NODE, chunk.number);
        }
    }
    /// Writes as a client does that maps the device: no call of the engine's sees the bytes.
    fn write(&mut self, key: ObjectKey, offset: u64, bytes: &[u8]) {
        let Ok(run) = self.world.room(key.container, bytes.len() as u32) else { return };
        let info = self.world.engine().device_infos().into_iter().find(|info| info.id == run.device).unwrap();
        let behind = self.world.devices.open(STORE, run.device, &info.spec, false).unwrap().device;
        behind.write_at(run.offset, bytes).unwrap();
        let sums: Vec<u32> = bytes.chunks(65536).map(crc).collect();
        let extent = Extent::whole(run.device, run.offset, bytes.len() as u32, Sums::from_slice(&sums));
        self.world.must(vec![Update::Write { key, offset, extent }]);
        let mut content = self.states.last().unwrap().1.clone();
        let object = content.get_mut(&key).unwrap();
        object.resize(object.len().max(offset as usize + bytes.len()), 0);
        object[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        self.note(content);
    }
    fn note(&mut self, content: Content) {
        self.states.push((self.stream.end(), content));
    }
    fn create(&mut self, key: ObjectKey) {
        self.world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        let mut content = self.states.last().unwrap().1.clone();
        content.insert(key, Vec::new());
        self.note(content);
    }
    fn delete(&mut self, key: ObjectKey) {
        self.world.must(vec![Update::ObjectDelete { key }]);
        let mut content = self.states.last().unwrap().1.clone();
        content.remove(&key);
        self.note(content);
    }
    fn step(&mut self, rng: &mut Rng, container: ContainerId) {
        let content = &self.states.last().unwrap().1;
        let keys: Vec<ObjectKey> = content.keys().copied().collect();
        match rng.below(12) {
            0 => self.create(object(container, 1 + u128::from(rng.below(1 << 40)))),
            1 if keys.len() > 4 => self.delete(keys[rng.below(keys.len() as u64) as usize]),
            2 => self.world.settle(),
            3 if rng.below(4) == 0 => drop(self.world.flush(FlushTarget::Store)),
            _ if keys.is_empty() => self.create(object(container, 1)),
            _ => {
                let key = keys[rng.below(keys.len() as u64) as usize];
                let bytes = vec![rng.next() as u8; 1 + rng.below(60_000) as usize];
                self.write(key, rng.below(100_000), &bytes);
            }
        }
    }
    /// The host is lost: opens the home from what the mirror has.
    fn take_over(self) -> (World, Vec<Content>) {
        let kept = self.stream.kept();
        let at_least = self.states.iter().rposition(|(end, _)| *end <= kept).unwrap_or(0);
        let allowed = self.states[at_least..].iter().map(|(_, content)| content.clone()).collect();
        assert!(self.replica.is_complete());
        drop(self.replica);
        let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
        (world.meta, world.devices, world.control) = (self.there.0, self.there.1, Arc::default());
        world.open().unwrap();
        assert!(!world.report.power_lost, "{:?}", world.report);
        world.seq = 1 << 20; // its session has recorded lower ones
        (world, allowed)
    }
}

fn contents(world: &mut World, container: ContainerId, keys: impl Iterator<Item = ObjectKey>) -> Content {
    let mut content = Content::new();
    for key in keys.filter(|key| key.container == container) {
        if let Ok(bytes) = world.read(key) {
            content.insert(key, bytes);
        }
    }
    content
}

#[test]
fn the_copy_has_all_that_was_confirmed_at_each_moment() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_126);
    println!("CENOTE_SEED={seed}");
    let mut rng = Rng::new(seed);
    for round in 0..30 {
        let mut pair = pair();
        let container = pair.world.container("runs", Durability::Async);
        let first = pair.stream.end();
        pair.states[0].0 = first;
        (0..rng.below(30)).for_each(|_| pair.step(&mut rng, container));
        pair.copy();
        (0..rng.below(10)).for_each(|_| pair.step(&mut rng, container));
        pair.carry(usize::MAX);
        for _ in 0..rng.below(60) {
            pair.step(&mut rng, container);
            if rng.below(3) == 0 {
                pair.carry(1 + rng.below(200_000) as usize);
            }
        }
        let keys: Vec<ObjectKey> = pair.states.iter().flat_map(|(_, content)| content.keys().copied()).collect();
        let (mut world, allowed) = pair.take_over();
        let found = contents(&mut world, container, keys.into_iter());
        assert!(
            allowed.contains(&found),
            "round {round}: not the state after any request since the last confirmed one"
        );
        world.verify();
        // The home goes on where it is now.
        let key = object(container, 1 << 50);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, b"and on").unwrap();
        assert_eq!(world.read(key).unwrap(), b"and on");
    }
}

/// What the mirror has, for jobs of the host.
struct There(MemDevices, std::sync::Mutex<Vec<DeviceSpec>>);

impl Twins for There {
    fn read(&self, device: DeviceId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let spec = self.1.lock().unwrap()[usize::from(device.0)].clone();
        self.0.open(STORE, device, &spec, false)?.device.read_at(offset, buf)
    }
}

/// Bytes that went bad on a device without another copy in the home.
#[test]
fn bad_bytes_are_written_again_from_the_mirror() {
    for is_mirrored in [true, false] {
        let mut pair = pair();
        let container = pair.world.container("runs", Durability::Async);
        let key = object(container, 1);
        pair.create(key);
        pair.write(key, 0, &vec![7; 200_000]);
        pair.write(key, 300_000, &vec![9; 1000]);
        pair.copy();
        pair.carry(usize::MAX);
        let infos = pair.world.engine().device_infos();
        let specs = infos.iter().map(|info| info.spec.clone()).collect();
        pair.stream.read_twins_by(Box::new(There(pair.there.1.clone(), std::sync::Mutex::new(specs))));
        if !is_mirrored {
            pair.stream.require(&[]);
        }
        // Each byte of the first tier, wherever the extents lie.
        let info = &infos[0];
        let behind = pair.world.devices.open(STORE, info.id, &info.spec, false).unwrap().device;
        let mut bytes = vec![0; 1 << 20];
        behind.read_at(0, &mut bytes).unwrap();
        let good = bytes.clone();
        bytes.iter_mut().filter(|byte| **byte == 7 || **byte == 9).for_each(|byte| *byte ^= 1);
        assert_ne!(bytes, good);
        behind.write_at(0, &bytes).unwrap();
        let report = pair.world.verify();
        assert_eq!(report.findings.is_empty(), is_mirrored, "{report:?}");
        let content = pair.states.last().unwrap().1[&key].clone();
        if is_mirrored {
            assert!(pair.world.read(key).unwrap() == content);
            behind.read_at(0, &mut bytes).unwrap();
            assert!(bytes == good, "they are good where they were");
        }
        // A reader that meets them first says so, and reads again.
        bytes[..].copy_from_slice(&good);
        bytes.iter_mut().filter(|byte| **byte == 9).for_each(|byte| *byte ^= 1);
        behind.write_at(0, &bytes).unwrap();
        let said = pair.world.ask(Request::Unreadable { key, ranges: vec![(300_000, 10)] });
        match said {
            Response::Done => assert!(is_mirrored),
            Response::Failed(error) => assert!(!is_mirrored && error.cause().contains("no copy"), "{error}"),
            other => panic!("{other:?}"),
        }
        behind.read_at(0, &mut bytes).unwrap();
        assert_eq!(bytes == good, is_mirrored);
    }
}
