//! Tiers in an in-process object service: what they keep, what they delete, and what they report when the service, the
//! network or a third party fails or interferes.

mod packs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_device::conformance::{self, seed};
use cenote_device::mem::{MemMetaDir, SplitMix};
use cenote_device::object::fake::{FakeService, Trouble};
use cenote_device::object::{ClaimNotes, ObjectDevice, ObjectDevices, Patience};
use cenote_device::{Device, Devices, MetaDir};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, Result, StoreId, TierOptions};

const STORE: StoreId = StoreId(0x000b_1ec7);
const ID: DeviceId = DeviceId(3);

fn spec(kind: DeviceKind, capacity_bytes: u64, pack: &str) -> DeviceSpec {
    let mut options = TierOptions::default();
    options.set("pack", pack);
    DeviceSpec {
        name: "cold".into(),
        kind,
        path: if kind == DeviceKind::Rados { "pool/some" } else { "bucket/some/prefix" }.into(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options,
    }
}

fn small() -> DeviceSpec {
    spec(DeviceKind::S3, 1 << 20, "64KiB")
}

const QUICK: Patience = Patience { tries: 4, pause: Duration::from_millis(1), total: Duration::from_secs(5) };

fn devices(
    service: &FakeService,
    background: bool,
) -> ObjectDevices<impl Fn(&DeviceSpec) -> Result<FakeService> + Send + Sync + use<>> {
    let service = service.clone();
    ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), background, QUICK)
}

fn make(service: &FakeService) -> ObjectDevice {
    devices(service, false).open_one(STORE, ID, &small(), true).unwrap()
}

fn reopen(service: &FakeService) -> Result<ObjectDevice> {
    devices(service, false).open_one(STORE, ID, &small(), false)
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut bytes).map(|()| bytes)
}

fn packs(service: &FakeService) -> Vec<String> {
    service.keys().into_iter().filter(|key| key.contains("/pack-")).collect()
}

#[test]
fn suite() {
    for (kind, pack, background) in
        [(DeviceKind::S3, "64KiB", true), (DeviceKind::Swift, "1MiB", true), (DeviceKind::S3, "300KiB", false)]
    {
        let service = FakeService::default();
        conformance::devices(&devices(&service, background), &spec(kind, 20 << 20, pack), seed());
        assert_eq!(service.keys(), Vec::<String>::new(), "nothing is left behind");
    }
}

#[test]
fn suite_with_a_service_that_stumbles() {
    let service = FakeService::default();
    let mut rng = SplitMix::new(seed());
    let mut in_a_row = 0;
    for call in 0..20_000 {
        let trouble = match rng.below(8) {
            0 => Some(Trouble::Passing),
            1 => Some(Trouble::AnswerLost),
            _ => None,
        };
        // Few failures in a row, so that retries suffice.
        in_a_row = if trouble.is_some() && in_a_row < 4 { in_a_row + 1 } else { 0 };
        if let Some(trouble) = trouble.filter(|_| in_a_row > 0) {
            service.trouble_at(call, trouble);
        }
    }
    let patience = Patience { tries: 12, ..QUICK };
    let stumbling = {
        let service = service.clone();
        ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), true, patience)
    };
    conformance::devices(&stumbling, &spec(DeviceKind::S3, 9 << 20, "256KiB"), seed());
    assert_eq!(service.keys(), Vec::<String>::new());
}

#[test]
fn only_what_was_synced_survives_and_all_of_it() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(100, b"synced").unwrap();
    device.sync().unwrap();
    device.write_at(100, b"never!").unwrap();
    assert_eq!(read(&device, 100, 6).unwrap(), b"never!");
    drop(device);
    let device = reopen(&service).unwrap();
    assert_eq!(read(&device, 98, 10).unwrap(), b"\0\0synced\0\0");
}

#[test]
fn overwritten_and_discarded_space_comes_back() {
    let service = FakeService::default();
    let device = make(&service);
    for round in 0..40_u8 {
        device.write_at(0, &vec![round; 200_000]).unwrap();
        device.sync().unwrap();
    }
    assert!(packs(&service).len() <= 5, "{:?}", packs(&service));
    // A quarter of everything stays: packs are combined.
    for at in (0..200_000).step_by(16_384) {
        device.discard(at, 12_288).unwrap();
    }
    device.write_at(900_000, b"x").unwrap();
    device.sync().unwrap();
    let usage = device.usage();
    assert!(usage.packed_bytes < 2 * usage.live_bytes + 10_000, "{usage:?}");
    for at in (0..190_000).step_by(16_384) {
        assert_eq!(read(&device, at + 12_288, 4096).unwrap(), [39; 4096]);
    }
    device.discard(0, 1 << 20).unwrap();
    device.sync().unwrap();
    assert_eq!(packs(&service), Vec::<String>::new());
}

#[test]
fn what_was_discarded_before_a_crash_comes_back_by_what_the_engine_knows() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &vec![1; 300_000]).unwrap();
    device.sync().unwrap();
    device.discard(0, 299_008).unwrap();
    drop(device);
    let device = reopen(&service).unwrap();
    let before = packs(&service).len();
    device.retain(&mut [(0, 4096), (299_008, 4096)].into_iter()).unwrap();
    assert!(packs(&service).len() < before);
    assert_eq!(read(&device, 0, 4096).unwrap(), [1; 4096]);
    assert_eq!(read(&device, 8192, 4096).unwrap(), [0; 4096]);
}

#[test]
fn a_pack_that_somebody_deleted_is_named() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &[1; 4096]).unwrap();
    device.sync().unwrap();
    let gone = packs(&service).remove(0);
    device.write_at(8192, &[2; 4096]).unwrap();
    device.sync().unwrap();
    service.meddle(&gone, |_| None);
    let error = read(&device, 0, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.subject().contains(&gone) && error.subject().contains("`cold`"), "{error}");
    assert_eq!(read(&device, 8192, 4096).unwrap(), [2; 4096], "others are there");
    drop(device);
    let device = reopen(&service).unwrap();
    device.retain(&mut [(0, 4096), (8192, 4096)].into_iter()).unwrap();
    let error = read(&device, 4000, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "not zeros");
    assert!(error.next_step().contains("restore"), "{error}");
    device.write_at(0, &[3; 4096]).unwrap();
    assert_eq!(read(&device, 0, 4096).unwrap(), [3; 4096], "written again");
}

#[test]
fn a_pack_that_somebody_changed_is_never_believed() {
    let content: Vec<u8> = (0..200_000_u32).map(|i| (i * 7 % 251) as u8).collect();
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &content).unwrap();
    device.sync().unwrap();
    let (mut refused, mut opened) = (0, 0);
    let mut rng = SplitMix::new(seed());
    for key in packs(&service) {
        for kind in 0..40 {
            let mut before = Vec::new();
            service.meddle(&key, |object| {
                before = object.unwrap();
                let mut bytes = before.clone();
                match kind {
                    0 => bytes.truncate(bytes.len() - 1),
                    1 => bytes.push(0),
                    2 => bytes.clear(),
                    3 => bytes.fill(0),
                    _ => {
                        // Half of the flips hit the header and the table.
                        let within = if kind % 2 == 0 { 200 } else { bytes.len() as u64 };
                        bytes[rng.below(within) as usize] ^= 1 << rng.below(8);
                    }
                }
                Some(bytes)
            });
            let again = reopen(&service).unwrap();
            opened += 1;
            for (range, device) in [(0, &device), (0, &again), (100_000, &again)] {
                for at in (range..200_000).step_by(50_000) {
                    match read(device, at, 50_000) {
                        Ok(bytes) => assert!(bytes == content[at as usize..][..50_000], "{key} {kind}"),
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
                            assert!(error.subject().contains(&key), "{error}");
                            refused += 1;
                        }
                    }
                }
            }
            drop(again);
            service.meddle(&key, |_| Some(before));
        }
    }
    assert!(refused > opened, "{refused} of {opened}");
    assert!(read(&reopen(&service).unwrap(), 0, 200_000).unwrap() == content);
}

#[test]
fn damage_on_the_way_is_asked_for_again() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &[1; 4096]).unwrap();
    device.sync().unwrap();
    for trouble in [Trouble::Flipped, Trouble::Truncated, Trouble::Passing] {
        service.trouble_at(service.calls(), trouble);
        assert_eq!(read(&device, 0, 4096).unwrap(), [1; 4096], "{trouble:?}");
        service.trouble_always(Some(trouble));
        let error = read(&device, 0, 4096).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io), "{error}");
        service.trouble_always(None);
    }
}

#[test]
fn prefixes_belong_to_one_store_and_strangers_are_left_alone() {
    let service = FakeService::default();
    service.meddle("some/prefix/readme", |_| Some(b"mine".to_vec()));
    service.meddle(&format!("some/prefix/store-{STORE}/dev-3/notes.txt"), |_| Some(b"mine".to_vec()));
    let device = make(&service);
    device.write_at(0, b"x").unwrap();
    device.sync().unwrap();
    let other = devices(&service, false);
    for (store, id) in [(StoreId(9), ID), (STORE, DeviceId(4))] {
        let error = other.open_one(store, id, &small(), true).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert!(error.cause().contains(&STORE.to_string()), "{error}");
        assert_eq!(other.open_one(store, id, &small(), false).err().unwrap().kind(), ErrorKind::Corrupt);
        assert_eq!(other.remove(store, id, &small()).unwrap_err().kind(), ErrorKind::Exists);
    }
    service.meddle("some/prefix/cenote-owner", |_| None);
    assert_eq!(read(&reopen(&service).unwrap(), 0, 1).unwrap(), b"x", "its packs are there");
    other.remove(STORE, ID, &small()).unwrap();
    assert_eq!(service.keys().len(), 2, "{:?}", service.keys());
}

#[test]
fn refusals_are_reported_and_pass() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &[1; 4096]).unwrap();
    device.sync().unwrap();
    device.write_at(8192, &[2; 4096]).unwrap();
    for (kind, next) in [(ErrorKind::PermissionDenied, "renew"), (ErrorKind::Full, "quota")] {
        service.trouble_always(Some(Trouble::Refused(kind)));
        let error = device.sync().unwrap_err();
        assert_eq!(error.kind(), kind);
        assert!(error.next_step().contains(next) && error.subject().contains("`cold`"), "{error}");
        assert_eq!(read(&device, 0, 1).unwrap_err().kind(), kind);
        assert_eq!(read(&device, 8192, 1).unwrap(), [2], "it is in memory yet");
    }
    service.trouble_always(Some(Trouble::Passing));
    let begun = Instant::now();
    let error = device.sync().unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.cause().contains("tried 4 times"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5));
    service.trouble_always(None);
    device.sync().unwrap();
    drop(device);
    assert_eq!(read(&reopen(&service).unwrap(), 8192, 4096).unwrap(), [2; 4096]);
}

#[test]
fn memory_is_bounded_while_the_service_is_away() {
    for background in [false, true] {
        let service = FakeService::default();
        let device = devices(&service, background).open_one(STORE, ID, &small(), true).unwrap();
        service.trouble_always(Some(Trouble::Refused(ErrorKind::Io)));
        let error = (0..16).find_map(|i| device.write_at(i * 65_536, &vec![7; 65_536]).err());
        assert_eq!(error.expect("it must not take everything").kind(), ErrorKind::Io);
        service.trouble_always(None);
        (0..16).for_each(|i| device.write_at(i * 65_536, &vec![8; 65_536]).unwrap());
        device.sync().unwrap();
        assert!(read(&device, 0, 1 << 20).unwrap().iter().all(|byte| *byte == 8));
    }
}

#[test]
fn reads_go_on_while_packs_are_put_together() {
    let service = FakeService::default();
    let device = devices(&service, true).open_one(STORE, ID, &small(), true).unwrap();
    device.write_at(0, &vec![0; 1 << 20]).unwrap();
    device.sync().unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 1..=60_u8 {
                for unit in (0..256).filter(|unit| unit % 3 == u64::from(round % 3)) {
                    device.write_at(unit * 4096, &[round; 4096]).unwrap();
                }
                device.sync().unwrap();
            }
        });
        while !writer.is_finished() {
            let bytes = read(&device, 0, 1 << 20).unwrap();
            for unit in bytes.chunks(4096) {
                assert!(unit.iter().all(|byte| *byte == unit[0]), "torn");
            }
        }
        writer.join().unwrap();
    });
}

#[test]
fn many_packs_are_found_again_by_a_catalogue() {
    let service = FakeService::default();
    let device = devices(&service, false).open_one(STORE, ID, &spec(DeviceKind::S3, 64 << 20, "64KiB"), true).unwrap();
    for i in 0..600_u64 {
        device.write_at(i * 65_536, &vec![i as u8; 65_536]).unwrap();
    }
    device.sync().unwrap();
    assert_eq!(packs(&service).len(), 600);
    let maps = || service.keys().into_iter().filter(|key| key.contains("/map-")).collect::<Vec<_>>();
    assert_eq!(maps().len(), 1);
    drop(device);
    service.revive();
    let open = || devices(&service, false).open_one(STORE, ID, &spec(DeviceKind::S3, 64 << 20, "64KiB"), false);
    let device = open().unwrap();
    assert!(service.calls() < 10, "{} calls", service.calls());
    let check = |device: &ObjectDevice| {
        (0..600_u64).for_each(|i| {
            assert!(read(device, i * 65_536, 65_536).unwrap().iter().all(|byte| *byte == i as u8), "{i}");
        });
    };
    check(&device);
    drop(device);
    service.meddle(&maps()[0], |bytes| bytes.map(|bytes| bytes[..1000].to_vec()));
    service.revive();
    check(&open().unwrap());
    assert!(service.calls() > 600, "without it each pack is asked");
}

#[test]
fn a_pack_whose_answers_were_all_lost_is_there_for_the_next_sync() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &[5; 8192]).unwrap();
    service.trouble_always(Some(Trouble::AnswerLost));
    assert!(device.sync().is_err(), "nobody knows that it arrived");
    service.trouble_always(None);
    device.sync().unwrap();
    // A request in flight for so long that it arrives after all tries were abandoned.
    device.write_at(8192, &[6; 8192]).unwrap();
    service.trouble_always(Some(Trouble::Late));
    assert!(device.sync().is_err());
    assert!(service.land(100) > 0);
    service.trouble_always(None);
    device.sync().unwrap();
    drop(device);
    let device = reopen(&service).unwrap();
    assert_eq!(read(&device, 0, 16_384).unwrap(), [[5; 8192], [6; 8192]].concat());
}

#[test]
fn a_request_of_a_dead_process_that_arrives_late_is_no_loss() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, &[1; 4096]).unwrap();
    device.sync().unwrap();
    device.write_at(4096, &[2; 4096]).unwrap();
    service.trouble_always(Some(Trouble::Late));
    assert!(device.sync().is_err());
    drop(device);
    service.trouble_always(None);
    let device = reopen(&service).unwrap();
    device.write_at(8192, &[3; 4096]).unwrap();
    service.land(100);
    // It may have taken the number of the next pack: then the waiting caller gets an error.
    if let Err(error) = device.sync() {
        let (cause, next) = (error.cause(), error.next_step());
        assert!(cause.contains("arrived late") && next.contains("open the store again"), "{error}");
    }
    assert_eq!(read(&device, 8192, 4096).unwrap(), [3; 4096], "what could not be sent is read all the same");
    drop(device);
    let device = reopen(&service).unwrap();
    device.write_at(8192, &[3; 4096]).unwrap();
    device.sync().unwrap();
    assert_eq!(read(&device, 0, 4096).unwrap(), [1; 4096]);
    assert_eq!(read(&device, 8192, 4096).unwrap(), [3; 4096]);
}

fn noting(
    service: &FakeService,
    notes: &ClaimNotes,
) -> ObjectDevices<impl Fn(&DeviceSpec) -> Result<FakeService> + Send + Sync + use<>> {
    devices(service, false).noting(Some(notes.clone()))
}

fn notes_in(meta: &MemMetaDir, dir: &str) -> ClaimNotes {
    ClaimNotes::new(Arc::new(meta.clone()), dir)
}

/// A copy of a directory in its current state.
fn copy_of(meta: &MemMetaDir) -> MemMetaDir {
    let copy = MemMetaDir::default();
    for name in meta.list().unwrap() {
        copy.write_file(&name, &meta.read_file(&name).unwrap()).unwrap();
    }
    copy
}

#[test]
fn suite_with_claims() {
    let service = FakeService::default();
    let meta = MemMetaDir::default();
    conformance::devices(
        &noting(&service, &notes_in(&meta, "/store")),
        &spec(DeviceKind::S3, 20 << 20, "64KiB"),
        seed(),
    );
    assert_eq!(service.keys(), Vec::<String>::new(), "nothing is left behind");
    assert_eq!(meta.list().unwrap(), Vec::<String>::new());
}

/// Of a store and a copy of its directory, one has the tier, and the other gets an error.
#[test]
fn a_copy_of_a_store_does_not_get_its_tier() {
    for kind in [DeviceKind::S3, DeviceKind::Swift, DeviceKind::Rados] {
        copied(&spec(kind, 1 << 20, "64KiB"));
    }
}

fn copied(spec: &DeviceSpec) {
    let service = FakeService::default();
    let meta = MemMetaDir::default();
    let first = notes_in(&meta, "/first");
    let open = |notes: &ClaimNotes| noting(&service, notes).open_one(STORE, ID, spec, false);
    let device = noting(&service, &first).open_one(STORE, ID, spec, true).unwrap();
    device.write_at(0, b"first").unwrap();
    device.sync().unwrap();
    let before = copy_of(&meta);
    drop(device);
    let device = open(&first).unwrap();
    // The copy comes from an earlier opening than the last one.
    let copy = notes_in(&before, "/copy");
    let error = open(&copy).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists);
    let said = error.to_string();
    for word in ["`cold`", "for /first", "`cenote adopt /copy`", "`cenote clone`"] {
        assert!(said.contains(word), "no {word} in {said}");
    }
    assert!(noting(&service, &copy).remove(STORE, ID, spec).is_err(), "nor does it delete what is there");
    device.write_at(100, b"still the first's").unwrap();
    device.sync().unwrap();
    // A take-over although the first directory still exists.
    copy.take_over(ID).unwrap();
    let taken = open(&copy).unwrap();
    assert_eq!(read(&taken, 100, 17).unwrap(), b"still the first's");
    let packs_before = packs(&service);
    device.discard(0, 1 << 20).unwrap();
    let error = device.tidy().unwrap_err();
    assert!(error.kind() == ErrorKind::Exists && error.to_string().contains("for /copy"), "{error}");
    assert_eq!(packs(&service), packs_before, "it deletes nothing any more");
    device.write_at(200, b"too late").unwrap();
    assert_eq!(device.sync().unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(packs(&service), packs_before, "nor does it write");
    taken.write_at(100, b"now the copy's   ").unwrap();
    taken.sync().unwrap();
    drop((taken, device));
    assert_eq!(open(&first).err().unwrap().kind(), ErrorKind::Exists);
    let again = open(&copy).unwrap();
    assert_eq!(read(&again, 100, 17).unwrap(), b"now the copy's   ");
    drop(again);
    first.take_over(ID).unwrap();
    assert_eq!(read(&open(&first).unwrap(), 100, 17).unwrap(), b"now the copy's   ");
    assert_eq!(open(&copy).err().unwrap().kind(), ErrorKind::Exists, "once, and not for ever");
}

/// A copy that cannot be told from the store, such as one of a disk, opens the tier: then the other one loses it,
/// within seconds.
#[test]
fn of_two_that_know_the_same_the_later_one_has_the_tier() {
    let service = FakeService::default();
    let meta = MemMetaDir::default();
    let first = notes_in(&meta, "/store");
    let device = noting(&service, &first).open_one(STORE, ID, &small(), true).unwrap();
    let copy = notes_in(&copy_of(&meta), "/store");
    let taken = noting(&service, &copy).open_one(STORE, ID, &small(), false).unwrap();
    std::thread::sleep(Duration::from_millis(5100));
    device.write_at(0, b"late").unwrap();
    assert_eq!(device.sync().unwrap_err().kind(), ErrorKind::Exists);
    taken.write_at(0, b"mine").unwrap();
    taken.sync().unwrap();
    assert_eq!(noting(&service, &first).open_one(STORE, ID, &small(), false).err().unwrap().kind(), ErrorKind::Exists);
}

/// Whatever call an opening dies at, the store opens its tier again.
#[test]
fn an_opening_that_dies_leaves_the_tier_to_its_store() {
    for trouble in [Trouble::Dead, Trouble::DeadAfter, Trouble::AnswerLost, Trouble::Passing] {
        for takes_over in [false, true] {
            for call in 0.. {
                let service = FakeService::default();
                let meta = MemMetaDir::default();
                let notes = notes_in(&meta, "/store");
                let device = noting(&service, &notes).open_one(STORE, ID, &small(), true).unwrap();
                device.write_at(0, b"kept").unwrap();
                device.sync().unwrap();
                drop(device);
                let notes = if takes_over {
                    let other = notes_in(&MemMetaDir::default(), "/other");
                    other.take_over(ID).unwrap();
                    other
                } else {
                    notes
                };
                service.revive();
                service.trouble_at(call, trouble);
                let open = || noting(&service, &notes).open_one(STORE, ID, &small(), false);
                let is_whole = open().is_ok() && service.calls() <= call;
                service.revive();
                let device = open().unwrap();
                assert_eq!(read(&device, 0, 4).unwrap(), b"kept", "{trouble:?} at {call}");
                if is_whole {
                    break;
                }
            }
        }
    }
}

/// A tier without any claim: from an earlier version, or with the owner's object deleted.
#[test]
fn a_tier_without_a_claim_is_claimed_when_it_is_opened() {
    let service = FakeService::default();
    let device = make(&service);
    device.write_at(0, b"kept").unwrap();
    device.sync().unwrap();
    drop(device);
    service.meddle("some/prefix/cenote-owner", |_| None);
    let meta = MemMetaDir::default();
    let open = |meta: &MemMetaDir| noting(&service, &notes_in(meta, "/s")).open_one(STORE, ID, &small(), false);
    assert_eq!(read(&open(&meta).unwrap(), 0, 4).unwrap(), b"kept");
    assert_eq!(service.keys().iter().filter(|key| key.contains("/claims/claim-")).count(), 1);
    assert_eq!(open(&MemMetaDir::default()).err().unwrap().kind(), ErrorKind::Exists);
    // A damaged claim belongs to nobody and needs a take-over like a foreign one; who stored it knows its number.
    let damage = || {
        let claim = service.keys().into_iter().find(|key| key.contains("/claims/")).unwrap();
        service.meddle(&claim, |_| Some(b"noise".to_vec()));
    };
    damage();
    let other = MemMetaDir::default();
    assert!(open(&other).err().unwrap().to_string().contains("cannot be read"));
    assert_eq!(read(&open(&meta).unwrap(), 0, 4).unwrap(), b"kept");
    damage();
    notes_in(&other, "/s").take_over(ID).unwrap();
    assert_eq!(read(&open(&other).unwrap(), 0, 4).unwrap(), b"kept");
    // The same holds for a note.
    for name in other.list().unwrap() {
        other.write_file(&name, b"noise").unwrap();
    }
    assert_eq!(open(&other).err().unwrap().kind(), ErrorKind::Corrupt);
    notes_in(&other, "/s").take_over(ID).unwrap();
    assert_eq!(read(&open(&other).unwrap(), 0, 4).unwrap(), b"kept");
}

/// A former holder that has not noticed the loss of the tier yet: its later writes are not taken for the new holder's.
#[test]
fn what_comes_too_late_counts_for_nothing() {
    let service = FakeService::default();
    let meta = MemMetaDir::default();
    let first = notes_in(&meta, "/first");
    let device = noting(&service, &first).open_one(STORE, ID, &small(), true).unwrap();
    device.write_at(0, b"both have that").unwrap();
    device.sync().unwrap();
    let copy = notes_in(&MemMetaDir::default(), "/copy");
    copy.take_over(ID).unwrap();
    let open = || noting(&service, &copy).open_one(STORE, ID, &small(), false).unwrap();
    let taken = open();
    taken.write_at(100, b"the copy's").unwrap();
    taken.sync().unwrap();
    // However often the tier was opened since.
    drop(taken);
    drop(open());
    let taken = open();
    // Within the seconds without a check of the claims.
    device.write_at(0, b"the first's!!!").unwrap();
    device.sync().unwrap();
    drop((device, taken));
    let taken = open();
    assert_eq!(read(&taken, 0, 14).unwrap(), b"both have that");
    assert_eq!(read(&taken, 100, 10).unwrap(), b"the copy's");
    taken.sync().unwrap();
    taken.tidy().unwrap();
    assert_eq!(packs(&service).len(), 2, "and goes");
    drop(taken);
    let taken = open();
    assert_eq!(read(&taken, 0, 14).unwrap(), b"both have that");
    // Even an empty tier never reuses a number that is ignored.
    taken.discard(0, 1 << 20).unwrap();
    taken.tidy().unwrap();
    assert_eq!(packs(&service), Vec::<String>::new());
    drop(taken);
    for byte in [b"1", b"2", b"3"] {
        let taken = open();
        taken.write_at(0, byte).unwrap();
        taken.sync().unwrap();
        drop(taken);
        assert_eq!(read(&open(), 0, 1).unwrap(), byte);
    }
}

/// Two directories that know the same, or that both take the tier over, claim it at the same moment.
#[test]
fn of_two_who_claim_at_once_one_has_the_tier() {
    for (round, overwrites) in (0..60).map(|round| (round, round % 3 == 2)) {
        let service = FakeService::default();
        let meta = MemMetaDir::default();
        drop(noting(&service, &notes_in(&meta, "/store")).open_one(STORE, ID, &small(), true).unwrap());
        service.overwrites(overwrites);
        let takes_over = round % 2 == 1;
        let barrier = std::sync::Barrier::new(2);
        let claim = |dir: &str| {
            let notes = notes_in(&copy_of(&meta), dir);
            if takes_over {
                notes.take_over(ID).unwrap();
            }
            let devices = noting(&service, &notes);
            barrier.wait();
            devices.open_one(STORE, ID, &small(), false)
        };
        let opened = std::thread::scope(|scope| {
            let other = scope.spawn(|| claim("/other"));
            [claim("/one"), other.join().unwrap()]
        });
        let mut writing = 0;
        for (n, opened) in opened.iter().enumerate() {
            let Ok(device) = opened else { continue };
            device.write_at(n as u64 * 4096, b"mine").unwrap();
            match device.sync() {
                Ok(()) => writing += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Exists, "{error}"),
            }
        }
        assert_eq!(writing, 1, "round {round}, takes over: {takes_over}, overwrites: {overwrites}");
        let is_one = opened.iter().filter(|opened| opened.is_ok()).count() == 1;
        assert!(is_one || takes_over || overwrites, "the service says who was first");
    }
}

/// A claim costs an opening at the same directory two more requests; a refused opening leaves everything unchanged.
#[test]
fn a_claim_costs_two_requests_and_a_refused_one_leaves_nothing() {
    for kind in [DeviceKind::S3, DeviceKind::Swift, DeviceKind::Rados] {
        let spec = spec(kind, 1 << 20, "64KiB");
        let service = FakeService::default();
        let meta = MemMetaDir::default();
        let notes = notes_in(&meta, "/store");
        drop(noting(&service, &notes).open_one(STORE, ID, &spec, true).unwrap());
        let stale = copy_of(&meta);
        let requests = |open: &dyn Fn()| {
            service.revive();
            open();
            service.calls()
        };
        let without = requests(&|| drop(devices(&service, false).open_one(STORE, ID, &spec, false).unwrap()));
        let with = requests(&|| drop(noting(&service, &notes).open_one(STORE, ID, &spec, false).unwrap()));
        let most = if kind == DeviceKind::Swift { 6 } else { 2 };
        assert!(with <= without + most, "{kind:?}: {with} requests instead of {without}");
        for openings in 0..3 {
            let (keys, noted) = (service.keys(), stale.read_file("tier-claim-3").unwrap());
            let copy = notes_in(&stale, "/copy");
            let error = noting(&service, &copy).open_one(STORE, ID, &spec, false).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Exists, "{openings} {error}");
            assert_eq!(service.keys(), keys, "{openings}");
            assert_eq!(stale.read_file("tier-claim-3").unwrap(), noted, "{openings}");
            let device = noting(&service, &notes).open_one(STORE, ID, &spec, false).unwrap();
            device.write_at(0, b"goes on").unwrap();
            let error = noting(&service, &copy).open_one(STORE, ID, &spec, false).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Exists);
            device.sync().unwrap();
        }
    }
}

/// The request for a claim is in flight until its process is gone and the next one has the tier.
#[test]
fn a_claim_that_arrives_late_is_its_own_directorys() {
    for kind in [DeviceKind::S3, DeviceKind::Swift, DeviceKind::Rados] {
        let spec = spec(kind, 1 << 20, "64KiB");
        // 0: before the next opening; 1: while it is open; 2: never before the end.
        for lands in 0..3 {
            for call in 0..12 {
                let service = FakeService::default();
                let notes = notes_in(&MemMetaDir::default(), "/store");
                let open = |make| noting(&service, &notes).open_one(STORE, ID, &spec, make);
                let device = open(true).unwrap();
                device.write_at(0, b"kept").unwrap();
                device.sync().unwrap();
                drop(device);
                service.revive();
                service.trouble_at(call, Trouble::Late);
                for later in call + 1..call + 40 {
                    service.trouble_at(later, Trouble::Passing);
                }
                let was_opened = open(false).is_ok();
                service.revive();
                if lands == 0 {
                    service.land(9);
                }
                let device = open(false).unwrap();
                if lands == 1 {
                    service.land(9);
                }
                assert_eq!(read(&device, 0, 4).unwrap(), b"kept", "{lands} {call} {was_opened}");
                device.write_at(100, b"more").unwrap();
                device.sync().unwrap();
                service.land(9);
                drop(device);
                assert_eq!(read(&open(false).unwrap(), 100, 4).unwrap(), b"more", "{lands} {call}");
                assert_eq!(read(&open(false).unwrap(), 0, 4).unwrap(), b"kept", "{lands} {call}");
            }
        }
    }
}
