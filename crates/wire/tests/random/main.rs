//! Every value survives the round trip; no bytes make the decoder panic or allocate without bound.
//! `CENOTE_SEED` replays a run.

mod answers;
#[path = "../common/mod.rs"]
mod common;

use cenote_model::*;
use cenote_wire::*;
use common::Random;

impl Random {
    fn list<T>(&mut self, max: u64, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| make(self)).collect()
    }
    fn bytes(&mut self) -> Vec<u8> {
        self.list(40, |r| r.next() as u8)
    }
    fn text(&mut self) -> String {
        self.list(12, |r| char::from_u32(r.below(0x11_0000) as u32).unwrap_or('ß')).into_iter().collect()
    }
    fn option<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.below(2) == 0 { None } else { Some(make(self)) }
    }
    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }
    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
    fn key(&mut self) -> ObjectKey {
        ObjectKey { container: ContainerId(self.next()), object: ObjectId(self.wide()) }
    }
    fn index(&mut self) -> IndexKey {
        IndexKey { container: ContainerId(self.next()), index: IndexId(self.wide()) }
    }
    fn extent(&mut self) -> Extent {
        Extent {
            node: NodeId(self.next() as u16),
            device: DeviceId(self.next() as u16),
            birth: Birth(self.next()),
            encoding: if self.flag() { Encoding::Plain } else { self.packed() },
            run_offset: self.next(),
            run_len: self.next() as u32,
            skip: self.next() as u32,
            len: self.next() as u32,
            sums: Sums::from_slice(&self.list(5, |r| r.next() as u32)),
        }
    }
    fn packed(&mut self) -> Encoding {
        let codec = Codec::ALL[self.below(2) as usize];
        let lens: Vec<u32> = (0..=self.below(4)).map(|_| 1 + self.below(65_536) as u32).collect();
        let run_len = (lens.len() as u32) << 16;
        let packed = Packed::new(codec, self.below(4) as u8, 9 + self.below(8) as u8, run_len, &lens);
        Encoding::Packed(packed.expect("it makes sense").into())
    }
    fn spec(&mut self) -> ContainerSpec {
        let durability = [Durability::Sync, Durability::Async, Durability::Scratch, Durability::Bypass];
        ContainerSpec {
            block_shift: self.next() as u8,
            durability: durability[self.below(4) as usize],
            quota_bytes: self.next(),
            policy: self.text(),
            owner_uid: self.option(|r| r.next() as u32),
            owner_gid: self.option(|r| r.next() as u32),
            mode: self.next() as u16 & 0o777,
            weight: self.next() as u16,
        }
    }
    fn info(&mut self) -> ContainerInfo {
        ContainerInfo {
            id: ContainerId(self.next()),
            label: self.text(),
            spec: self.spec(),
            objects: self.next(),
            indices: self.next(),
            records: self.next(),
            stored_bytes: self.next(),
        }
    }
    fn snapshot(&mut self) -> SnapshotInfo {
        SnapshotInfo {
            id: ContainerId(self.next()),
            of: ContainerId(self.next()),
            name: self.text(),
            epoch: self.next(),
            unix_ms: self.next(),
            objects: self.next(),
            indices: self.next(),
            records: self.next(),
            stored_bytes: self.next(),
        }
    }
    fn device_spec(&mut self) -> DeviceSpec {
        DeviceSpec {
            name: self.text(),
            kind: DeviceKind::ALL[self.below(DeviceKind::ALL.len() as u64) as usize],
            path: self.text().into(),
            capacity_bytes: self.next(),
            watermark_high_permille: self.next() as u16,
            watermark_low_permille: self.next() as u16,
            options: [("budget".to_owned(), "1MiB".to_owned())].into_iter().collect(),
        }
    }
    fn device(&mut self) -> DeviceInfo {
        DeviceInfo {
            id: DeviceId(self.next() as u16),
            spec: self.device_spec(),
            state: [DeviceState::Online, DeviceState::Draining, DeviceState::Failed][self.below(3) as usize],
            used_bytes: self.next(),
            reserved_bytes: self.next(),
            leased_bytes: self.next(),
            evictable_bytes: self.next(),
            unit_bytes: self.next() as u32,
            segment_bytes: self.next(),
            speed: self.option(Self::speed),
            note: self.text(),
            packed_bytes: self.next(),
            unpacked_bytes: self.next(),
        }
    }
    fn figure(&mut self) -> f64 {
        1.0 + (self.next() >> 11) as f64 / 1e3
    }
    fn speed(&mut self) -> Speed {
        Speed {
            read_latency_ns: self.figure(),
            write_latency_ns: self.figure(),
            read_bandwidth: self.figure(),
            write_bandwidth: self.figure(),
        }
    }
    fn point(&mut self) -> ProfilePoint {
        ProfilePoint {
            is_write: self.flag(),
            bytes: self.next() as u32,
            parallel: self.next() as u16,
            p50_ns: self.next(),
            p99_ns: self.next(),
            bandwidth: self.figure(),
        }
    }
    fn target(&mut self) -> FlushTarget {
        match self.below(3) {
            0 => FlushTarget::Store,
            1 => FlushTarget::Container(ContainerId(self.next())),
            _ => FlushTarget::Object(self.key()),
        }
    }
    fn run(&mut self) -> Run {
        Run { device: DeviceId(self.next() as u16), offset: self.next(), len: self.next() }
    }
    fn update(&mut self) -> Update {
        let id = ContainerId(self.next());
        match self.below(19) {
            17 => Update::ObjectKeep { key: self.key(), device: DeviceId(self.next() as u16) },
            0 => Update::ContainerCreate { id, label: self.text(), spec: self.spec() },
            1 => Update::ContainerRename { id, label: self.text() },
            2 => Update::ContainerSet { id, spec: self.spec() },
            3 => Update::ContainerDelete { id },
            4 => Update::ObjectCreate { key: self.key(), block_shift: self.next() as u8 },
            5 => Update::ObjectDelete { key: self.key() },
            6 => Update::Write { key: self.key(), offset: self.next(), extent: self.extent() },
            7 => Update::Punch { key: self.key(), offset: self.next(), len: self.next() },
            8 => Update::Truncate { key: self.key(), size: self.next() },
            9 => Update::IndexCreate { key: self.index() },
            10 => Update::IndexDelete { key: self.index() },
            11 => Update::Put { index: self.index(), key: self.bytes(), value: self.bytes(), only_new: self.flag() },
            12 => {
                let (of, id, unix_ms) = (id, ContainerId(self.next()), self.next());
                Update::SnapshotCreate { of, id, name: self.text(), replace: self.flag(), unix_ms }
            }
            13 => Update::SnapshotDelete { of: id, name: self.text() },
            14 => Update::SnapshotRollback { of: id, name: self.text() },
            15 => {
                let (to, from) = (self.key(), self.key());
                Update::Share { to, at: self.next(), from, offset: self.next(), len: self.next() }
            }
            16 => Update::Fill { container: id, run: self.run(), bytes: self.bytes() },
            _ => Update::Del { index: self.index(), key: self.bytes() },
        }
    }
    fn check(&mut self) -> Check {
        match self.below(5) {
            0 => Check::Object { key: self.key(), epoch: self.next() },
            3 => Check::NoKeys { index: self.index(), prefix: self.bytes() },
            4 => Check::Size { key: self.key(), size: self.next() },
            1 => Check::Record { index: self.index(), key: self.bytes(), epoch: self.next() },
            _ => {
                let value = self.flag().then(|| self.bytes());
                Check::Value { index: self.index(), key: self.bytes(), value }
            }
        }
    }
    fn request(&mut self) -> Request {
        let container = ContainerId(self.next());
        let limit = self.next() as u32;
        match self.below(41) {
            0 => Request::Apply {
                checks: self.list(3, Self::check),
                updates: self.list(20, Self::update),
                atomic: self.flag(),
            },
            1 => Request::Lookup { key: self.key(), offset: self.next(), len: self.next(), limit },
            2 => Request::ObjectStat { key: self.key() },
            3 => Request::ObjectList { container, after: self.option(|r| ObjectId(r.wide())), limit },
            4 => Request::Get { index: self.index(), keys: self.list(5, Self::bytes) },
            5 => {
                let from = match self.below(3) {
                    0 => NextFrom::Start,
                    1 => NextFrom::At(self.bytes()),
                    _ => NextFrom::After(self.bytes()),
                };
                Request::Next { index: self.index(), from, prefix: self.bytes(), limit, bytes_max: limit }
            }
            6 => Request::IndexExists { key: self.index() },
            7 => Request::IndexList { container, after: self.option(|r| IndexId(r.wide())), limit },
            8 => Request::ContainerByLabel { label: self.text() },
            9 => Request::ContainerById { id: container },
            10 => Request::ContainerList { after: self.option(Self::text), limit },
            11 => Request::Lease {
                container,
                bytes: self.next(),
                run_min: limit,
                avoid: self.list(3, |r| DeviceId(r.next() as u16)),
                durability: self.option(|r| r.spec().durability),
            },
            12 => Request::Unlease { runs: self.list(4, Self::run) },
            13 => Request::Flush { target: self.target() },
            14 => Request::Devices,
            15 => Request::DeviceAdd { spec: self.device_spec() },
            16 => Request::DeviceDrain { name: self.text() },
            17 => Request::DeviceRemove { name: self.text() },
            18 => Request::Explain { key: self.key() },
            19 => Request::Verify { target: self.target() },
            20 => Request::Stats,
            21 => Request::Checkpoint,
            22 => Request::SnapshotList { container, after: self.option(Self::text), limit },
            23 => Request::SnapshotByName { container, name: self.text(), pin: self.flag() },
            24 => Request::SnapshotUnpin { id: container },
            25 => Request::Profile { name: self.text(), measure_ms: limit },
            26 => Request::Telemetry { hot: limit },
            27 => Request::Fetch {
                key: self.key(),
                ranges: self.list(4, |r| (r.next(), r.next())),
                ahead: self.flag(),
                must: self.flag(),
            },
            31 => Request::Habit { container, program: self.text() },
            32 => Request::HabitLearned { container, program: self.text(), learned: self.list(9, |r| r.next() as u8) },
            28 => {
                Request::Touched { reads: self.list(4, |r| Touch { key: r.key(), offset: r.next(), bytes: r.next() }) }
            }
            29 => {
                let target = match self.below(4) {
                    0 => ArrangeTarget::Object(self.key()),
                    1 => ArrangeTarget::Range { key: self.key(), offset: self.next(), len: self.next() },
                    2 => ArrangeTarget::Query { container: self.option(|r| ContainerId(r.next())), text: self.text() },
                    _ => ArrangeTarget::Container(container),
                };
                let to = self.option(Self::text);
                let what = match self.below(7) {
                    0 => Arrange::Promote { to },
                    1 => Arrange::Demote { to },
                    2 => Arrange::Pin { to },
                    3 => Arrange::Unpin,
                    4 => Arrange::Archive { to },
                    5 => Arrange::Release { to },
                    _ => Arrange::Evict,
                };
                Request::Arrange { target: Box::new(target), what, dry_run: self.flag() }
            }
            34 => Request::PolicySet { text: self.option(Self::text), dry_run: self.flag() },
            35 => Request::PolicyShow,
            36 => Request::RulesTry,
            30 => Request::Progress,
            33 => Request::Unreadable { key: self.key(), ranges: self.list(4, |r| (r.next(), r.next())) },
            38 => Request::Moved,
            39 => Request::Weights { ask: self.weights_ask() },
            37 => Request::ContainerContent { id: container, limit, bytes_max: limit },
            _ => Request::Shutdown { cluster: self.below(2) == 0 },
        }
    }
    fn stat(&mut self) -> ObjectStat {
        ObjectStat {
            size: self.next(),
            block_shift: self.next() as u8,
            extents: self.next(),
            mapped_bytes: self.next(),
            epoch: self.next(),
            pinned_bytes: self.next(),
            taken_bytes: self.next(),
        }
    }
    fn policy(&mut self) -> PolicyState {
        PolicyState {
            text: self.text(),
            faults: self.list(3, Self::text),
            refused: self.text(),
            followers: self.list(3, Self::text),
            plugins: self.list(2, |r| PluginState { name: r.text(), about: r.text(), failure: r.text() }),
            rules: self.list(3, |r| RuleState {
                name: r.text(),
                line: r.next() as u32,
                what: r.text(),
                ranges: r.next(),
                bytes: r.next(),
                deleted: r.next(),
                last_error: r.text(),
            }),
            deletes_held: self.text(),
        }
    }
    fn map(&mut self) -> Lookup {
        Lookup {
            version: self.next(),
            epoch: self.next(),
            size: self.next(),
            block_shift: self.next() as u8,
            extents: self.list(9, |r| (r.next(), r.extent())),
            covered_to: self.next(),
        }
    }
    fn greeting(&mut self) -> Greeting {
        match self.below(7) {
            0 => Greeting::Hello { nonce: self.wide(), read_only: self.flag(), home: HomeId(self.next() as u16) },
            1 => {
                let (home, homes, host) = (HomeId(self.next() as u16), vec![HomeId(1); 3], self.text());
                let place = ClusterPlace { home, far: self.flag(), leased: self.flag(), homes, host };
                let (store, instance) = (StoreId(self.wide()), self.next());
                Greeting::Welcome { store, instance, write: self.flag(), bound: self.flag(), engines: home.0, place }
            }
            2 => Greeting::Moving,
            3 => Greeting::Refused(Error::new(ErrorKind::Busy, self.text())),
            4 => Greeting::Segment { device: DeviceId(self.next() as u16), number: self.next() },
            5 => Greeting::SegmentIs {
                data_offset: self.next(),
                len: self.next(),
                mode: self.next() as u8,
                write: self.flag(),
            },
            _ => Greeting::Bye,
        }
    }
}

#[test]
fn every_value_survives_the_round_trip() {
    let mut random = Random::new();
    let mut bytes = Vec::new();
    for _ in 0..4000 {
        let seq = random.next();
        let request = random.request();
        bytes.clear();
        encode_request(seq, &request, &mut bytes);
        assert_eq!(decode_request(&bytes).unwrap(), (seq, request));
        let response = random.response();
        bytes.clear();
        encode_response(seq, &response, &mut bytes);
        assert_eq!(decode_response(&bytes).unwrap(), (seq, response));
        let greeting = random.greeting();
        bytes.clear();
        encode_greeting(&greeting, &mut bytes);
        assert_eq!(decode_greeting(&bytes).unwrap(), greeting);
    }
}

#[test]
fn hostile_bytes_are_refused() {
    let (mut random, mut bytes) = (Random::new(), Vec::new());
    for _ in 0..4000 {
        bytes.clear();
        encode_request(random.next(), &random.request(), &mut bytes);
        // Truncated anywhere: always an error.
        let cut = random.below(bytes.len() as u64) as usize;
        assert!(decode_request(&bytes[..cut]).is_err());
        // Bytes after the end: always an error.
        bytes.push(0);
        assert!(decode_request(&bytes).is_err());
        bytes.pop();
        // Some bytes changed: an error or another message, which then survives its own round trip.
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = if random.flag() { random.next() as u8 } else { 0xff };
        }
        if let Ok((seq, request)) = decode_request(&bytes) {
            let mut again = Vec::new();
            encode_request(seq, &request, &mut again);
            assert_eq!(decode_request(&again).unwrap(), (seq, request));
        }
        let noise: Vec<u8> = std::iter::once(WIRE_VERSION).chain(random.bytes()).collect();
        let _ = decode_request(&noise);
        let _ = decode_response(&noise);
        let _ = decode_greeting(&noise);
        bytes.clear();
        encode_response(random.next(), &random.response(), &mut bytes);
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        let _ = decode_response(&bytes);
    }
}

#[test]
fn huge_counts_allocate_nothing() {
    // An Apply whose list of updates claims four billion entries.
    let mut bytes = vec![WIRE_VERSION];
    bytes.extend_from_slice(&7u64.to_le_bytes());
    bytes.push(1);
    bytes.extend_from_slice(&0u32.to_le_bytes());
    bytes.extend_from_slice(&u32::MAX.to_le_bytes());
    bytes.extend_from_slice(&[0; 64]);
    assert_eq!(decode_request(&bytes).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn histograms_have_their_buckets_in_order() {
    let latency = |counts: Vec<(u8, u64)>| Latency {
        what: Timed::Get,
        tier: None,
        sampled_in: 64,
        histogram: Histogram { counts, sum_ns: 5 },
    };
    for counts in [vec![(3, 1), (3, 1)], vec![(9, 1), (2, 1)], vec![(HISTOGRAM_BUCKETS as u8, 1)]] {
        let telemetry = Telemetry { latencies: vec![latency(counts)], ..Telemetry::default() };
        let mut bytes = Vec::new();
        encode_response(1, &Response::Telemetry(Box::new(telemetry)), &mut bytes);
        assert_eq!(decode_response(&bytes).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn another_version_is_named() {
    let mut bytes = Vec::new();
    encode_request(1, &Request::Stats, &mut bytes);
    bytes[0] = WIRE_VERSION + 1;
    let error = decode_request(&bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::VersionMismatch);
    assert!(error.to_string().contains(&format!("version {WIRE_VERSION}")), "{error}");
}

/// Figures that are not numbers, or impossible for a device, are refused: policies calculate with
/// them.
#[test]
fn figures_are_numbers() {
    let good = Speed { read_latency_ns: 1.0, write_latency_ns: 0.0, read_bandwidth: 1.0, write_bandwidth: 1.0 };
    let message = |speed| {
        let info = DeviceInfo { speed: Some(speed), ..Random(5).device() };
        let mut bytes = Vec::new();
        encode_response(1, &Response::Devices(vec![info]), &mut bytes);
        decode_response(&bytes).map(drop)
    };
    message(good).unwrap();
    for bad in [f64::NAN, f64::INFINITY, -1.0] {
        assert!(message(Speed { read_latency_ns: bad, ..good }).is_err(), "{bad}");
        assert!(message(Speed { write_bandwidth: bad, ..good }).is_err(), "{bad}");
    }
    assert!(message(Speed { read_bandwidth: 0.0, ..good }).is_err());
}
