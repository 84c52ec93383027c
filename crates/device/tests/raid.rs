//! Tiers on several places with a layout: what survives which losses, what is refused, and what repair makes good.

#[path = "raid/devices.rs"]
mod devices;
#[path = "raid/leaving.rs"]
mod leaving;
#[path = "raid/random.rs"]
mod random;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::mem::SplitMix;
use cenote_device::object::ObjectService;
use cenote_device::object::raid::fake::{FakePlace, Mood};
use cenote_device::object::raid::{DirectoryPlace, Owner, Pace, Place, RaidService};
use cenote_model::{DeviceId, ErrorKind, StoreId};

const OWNER: Owner = Owner { store: StoreId(0xa1d), device: DeviceId(4) };
/// Nothing happens beside the calls of the test.
const STILL: Pace = Pace {
    background: false,
    look_again: Duration::ZERO,
    away_for: Duration::ZERO,
    spared_for: Duration::ZERO,
    remains_for: Duration::ZERO,
    repair_permille: 1000,
};

fn places(count: u16) -> Vec<FakePlace> {
    (1..=count).map(FakePlace::new).collect()
}

fn service_at(layout: &str, places: &[FakePlace], pace: Pace) -> RaidService {
    let places = places.iter().map(|place| Arc::new(place.clone()) as Arc<dyn Place>).collect();
    RaidService::new(OWNER, format!("{layout},domain=device").parse().unwrap(), places, pace).unwrap()
}

fn service(layout: &str, places: &[FakePlace]) -> RaidService {
    service_at(layout, places, STILL)
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SplitMix::new(seed);
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    bytes
}

fn put(service: &RaidService, key: &str, content: &[u8]) -> Result<(), cenote_device::object::service::Refusal> {
    // In two pieces, as packs come.
    let cut = content.len().min(5000);
    let pieces = [Bytes::copy_from_slice(&content[..cut]), Bytes::copy_from_slice(&content[cut..])];
    service.put(key, &pieces, true)
}

/// Checks and repairs everything.
fn mend(service: &RaidService) {
    let mut from = service.mend(None).unwrap();
    while let Some(at) = from {
        from = service.mend(Some(&at)).unwrap();
    }
}

fn all_of(service: &RaidService, key: &str) -> Vec<u8> {
    service.get(key, 0, u64::MAX).unwrap().to_vec()
}

/// The names of the parts of an object, with the place of each.
fn parts_of(places: &[FakePlace], key: &str) -> Vec<(usize, String)> {
    let prefix = format!("{key}@");
    let of = |at: usize| {
        places[at]
            .names()
            .into_iter()
            .filter(|name| name.starts_with(&prefix))
            .map(move |name| (at, name))
            .collect::<Vec<_>>()
    };
    (0..places.len()).flat_map(of).collect()
}

fn flip(place: &FakePlace, name: &str, at: impl FnOnce(usize) -> usize) {
    place.meddle(name, |file| {
        let mut file = file.unwrap();
        let at = at(file.len());
        file[at] ^= 0x10;
        Some(file)
    });
}

#[test]
fn every_range_comes_back_with_every_loss_that_the_layout_survives() {
    for (layout, count) in [
        ("mirror=2", 2),
        ("mirror=3", 4),
        ("2+1", 3),
        ("4+2,unit=4KiB", 6),
        ("3+2,unit=64KiB", 7),
        ("stripe=3", 3),
        ("plain", 2),
    ] {
        let (places, mut rng) = (places(count), SplitMix::new(7));
        let service = service(layout, &places);
        let lengths = [0, 1, 4095, 65_536, 65_537, 300_000, 1_000_003];
        for (number, len) in lengths.into_iter().enumerate() {
            put(&service, &format!("o{number}"), &bytes(number as u64, len)).unwrap();
        }
        let parsed: cenote_layout::Layout = layout.parse().unwrap();
        for lost in (0_u32..1 << count).filter(|lost| lost.count_ones() as usize <= parsed.losses_max()) {
            for (at, place) in places.iter().enumerate() {
                place.set(if lost >> at & 1 == 1 { Mood::Away } else { Mood::Well });
            }
            for (number, len) in lengths.into_iter().enumerate() {
                let (key, expected) = (format!("o{number}"), bytes(number as u64, len));
                assert!(all_of(&service, &key) == expected, "{layout} without {lost:b}: {key}");
                for _ in 0..4 {
                    let from = rng.below(len as u64 + 1) as usize;
                    let wanted = rng.below(200_000) as usize;
                    let found = service.get(&key, from as u64, wanted as u64).unwrap();
                    assert!(
                        found[..] == expected[from..(from + wanted).min(len)],
                        "{layout}, {lost:b}: {wanted} at {from} of {key}"
                    );
                }
            }
            assert_eq!(service.list("").unwrap().len(), lengths.len());
        }
    }
}

#[test]
fn what_fits_on_no_place_is_refused_and_lacks_nothing_later() {
    let places = places(3);
    let service = service("2+1", &places);
    (1..3).for_each(|at| places[at].set(Mood::Away));
    let refusal = put(&service, "pack-1", &bytes(1, 200_000)).unwrap_err();
    assert!(
        refusal.again && refusal.cause.contains("place 2: it is away") && refusal.cause.contains("1 of 3"),
        "{refusal:?}"
    );
    (1..3).for_each(|at| places[at].set(Mood::Well));
    put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
    assert_eq!(service.state().lacking, 0, "the second attempt completed the first");
    assert_eq!(parts_of(&places, "pack-1").len(), 3);
    let refusal = put(&service, "pack-1", &bytes(1, 200_000)).unwrap_err();
    assert_eq!(refusal.kind, ErrorKind::Exists);
    for mood in [Mood::ReadOnly, Mood::Full] {
        (1..3).for_each(|at| places[at].set(mood));
        let refusal = put(&service, "pack-2", &bytes(2, 200_000)).unwrap_err();
        assert_eq!(refusal.kind == ErrorKind::Full, mood == Mood::Full, "{refusal:?}");
        assert!(["place 2", "place 3"].iter().any(|place| refusal.cause.contains(place)), "{refusal:?}");
        assert!(all_of(&service, "pack-1") == bytes(1, 200_000), "reads go on");
    }
}

#[test]
fn a_layout_that_survives_one_loss_is_written_on_after_it() {
    for (layout, count) in [("2+1", 3), ("mirror=2", 2)] {
        let places = places(count);
        let service = service(layout, &places);
        places[1].set(Mood::Away);
        put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
        assert_eq!((all_of(&service, "pack-1"), service.state().lacking), (bytes(1, 200_000), 1), "{layout}");
        places[1].set(Mood::Well);
        mend(&service);
        assert_eq!((parts_of(&places, "pack-1").len(), service.state().lacking), (usize::from(count), 0), "{layout}");
        places[0].set(Mood::Away);
        assert!(all_of(&service, "pack-1") == bytes(1, 200_000), "{layout}: the part that was owed is good");
    }
    let places = places(6);
    let service = service("4+2", &places);
    (0..2).for_each(|at| places[at].set(Mood::Away));
    let refusal = put(&service, "pack-1", &bytes(1, 900_000)).unwrap_err();
    assert!(refusal.again && refusal.cause.contains("4 of 6"), "{refusal:?}");
}

#[test]
fn a_place_that_fails_is_replaced_and_two_losses_leave_a_debt() {
    let places = places(7);
    let service = service("4+2", &places);
    places[0].set(Mood::Full);
    put(&service, "pack-1", &bytes(1, 900_000)).unwrap();
    assert_eq!(service.state().lacking, 0, "six other places took it");
    places[1].set(Mood::Away);
    put(&service, "pack-2", &bytes(2, 900_000)).unwrap();
    assert_eq!(
        (parts_of(&places, "pack-2").len(), service.state().lacking),
        (5, 2),
        "pack-1 has a part there, pack-2 none"
    );
    places[0].set(Mood::Well);
    mend(&service);
    assert_eq!(service.state().lacking, 0);
    for lost in [2, 3] {
        places[lost].set(Mood::Away);
    }
    assert!(all_of(&service, "pack-1") == bytes(1, 900_000) && all_of(&service, "pack-2") == bytes(2, 900_000));
    for place in &places {
        place.set(Mood::Well);
    }
    mend(&service);
    mend(&service);
    assert_eq!((parts_of(&places, "pack-1").len(), parts_of(&places, "pack-2").len()), (6, 6), "no part twice");
}

#[test]
fn claims_are_taken_with_one_place_and_only_once() {
    let places = places(2);
    let service = service("mirror=2", &places);
    places[0].set(Mood::Away);
    put(&service, "s/claims/claim-1", b"mine").unwrap();
    places[0].set(Mood::Well);
    // Another process, which has seen nothing yet.
    let other = self::service("mirror=2", &places);
    assert_eq!(put(&other, "s/claims/claim-1", b"other").unwrap_err().kind, ErrorKind::Exists);
    assert_eq!(&all_of(&other, "s/claims/claim-1"), b"mine");
    let won = std::thread::scope(|scope| {
        let claim =
            |service, content: &'static [u8]| scope.spawn(move || put(service, "s/claims/claim-2", content).is_ok());
        let (one, two) = (claim(&service, b"one"), claim(&other, b"two"));
        u32::from(one.join().unwrap()) + u32::from(two.join().unwrap())
    });
    assert!(won <= 1, "{won} of two have the claim");
    // Two that wrote while neither saw the other's place.
    places[1].set(Mood::Away);
    put(&self::service("mirror=2", &places), "s/claims/claim-3", b"left").unwrap();
    places[0].set(Mood::Away);
    places[1].set(Mood::Well);
    put(&self::service("mirror=2", &places), "s/claims/claim-3", b"right").unwrap();
    places[0].set(Mood::Well);
    service.list("s/claims/").unwrap();
    assert_eq!(service.get("s/claims/claim-3", 0, 9).unwrap_err().kind, ErrorKind::Corrupt, "two have it: nobody has");
}

#[test]
fn bad_parts_are_read_around_and_written_again() {
    for (layout, count) in [("mirror=3", 3), ("2+1", 3), ("4+2,unit=64KiB", 6)] {
        let places = places(count);
        let service = service(layout, &places);
        put(&service, "pack-1", &bytes(1, 700_000)).unwrap();
        let before: Vec<_> = parts_of(&places, "pack-1");
        let harms: [fn(&FakePlace, &str); 6] = [
            |place, name| flip(place, name, |_| 3),
            |place, name| flip(place, name, |len| len - 1),
            |place, name| flip(place, name, |len| len / 2),
            |place, name| place.meddle(name, |file| file.map(|file| file[..file.len() - 1].to_vec())),
            |place, name| place.meddle(name, |_| Some(Vec::new())),
            |place, name| place.meddle(name, |_| None),
        ];
        for harm in harms {
            for (at, name) in &before {
                let whole = places[*at].get(name, 0, u64::MAX).unwrap();
                harm(&places[*at], name);
                let fresh = self::service(layout, &places);
                assert!(all_of(&fresh, "pack-1") == bytes(1, 700_000), "{layout}: {name}");
                mend(&fresh);
                let state = fresh.state();
                assert_eq!((state.lacking, state.bad_parts, state.parts_made), (0, 0, 1), "{layout}: {name}");
                assert!(parts_of(&places, "pack-1").len() == before.len());
                assert!(places[*at].get(name, 0, u64::MAX).unwrap() == whole, "the same bytes as before");
            }
        }
    }
}

#[test]
fn a_part_of_another_object_or_tier_under_its_name_is_no_part() {
    let places = places(3);
    let service = service("2+1", &places);
    put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
    put(&service, "pack-2", &bytes(2, 200_000)).unwrap();
    let (at, name) = parts_of(&places, "pack-1").remove(0);
    let (_, other) = parts_of(&places, "pack-2").into_iter().find(|(place, _)| *place == at).unwrap();
    let foreign = places[at].get(&other, 0, u64::MAX).unwrap().to_vec();
    places[at].meddle(&name, |_| Some(foreign));
    assert!(all_of(&service, "pack-1") == bytes(1, 200_000));
    assert_eq!(service.state().bad_parts, 1);
    mend(&service);
    assert_eq!(service.state().bad_parts, 0);
}

#[test]
fn too_few_parts_are_an_error_that_names_the_places() {
    let places = places(3);
    let service = service("2+1", &places);
    put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
    places[0].set(Mood::Away);
    places[2].set(Mood::Away);
    for refusal in [service.get("pack-1", 0, 9).unwrap_err(), service.list("").unwrap_err()] {
        assert!(refusal.again && refusal.kind == ErrorKind::Io, "{refusal:?}");
        assert!(refusal.cause.contains("place 1: it is away") && refusal.cause.contains("place 3"), "{refusal:?}");
    }
    let unknown = service.get("pack-9", 0, 9).unwrap_err();
    assert!(unknown.again, "nobody knows whether it exists: {unknown:?}");
    assert!(service.note().starts_with("DEGRADED: 2+1 on 3 places; away: place 1"), "{}", service.note());
    for place in &places {
        place.set(Mood::Well);
    }
    assert_eq!(service.get("pack-9", 0, 9).unwrap_err().kind, ErrorKind::NotFound);
    assert!(all_of(&service, "pack-1") == bytes(1, 200_000));
    // Bytes that are lost for good are said to be.
    for (at, name) in parts_of(&places, "pack-1").into_iter().take(2) {
        places[at].meddle(&name, |_| None);
    }
    let lost = service.get("pack-1", 0, u64::MAX).unwrap_err();
    assert!(
        lost.kind == ErrorKind::Corrupt && lost.cause.contains("2 of its 3 parts are needed and 1 are there"),
        "{lost:?}"
    );
}

#[test]
fn an_away_place_is_asked_nothing_until_it_is_looked_at_again() {
    let places = places(3);
    let service = service_at("2+1", &places, Pace { look_again: Duration::from_mins(1), ..STILL });
    put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
    places[0].set(Mood::Away);
    let _ = all_of(&service, "pack-1");
    let calls = places[0].calls();
    for _ in 0..50 {
        assert!(all_of(&service, "pack-1") == bytes(1, 200_000));
    }
    assert_eq!(places[0].calls(), calls);
}

#[test]
fn remains_of_interrupted_puts_go_when_all_places_are_there() {
    let places = places(6);
    let service = service("4+2", &places);
    put(&service, "pack-1", &bytes(1, 500_000)).unwrap();
    put(&service, "pack-2", &bytes(2, 500_000)).unwrap();
    // Three of six parts of the second object are what a killed process leaves.
    for (at, name) in parts_of(&places, "pack-2").into_iter().take(3) {
        places[at].meddle(&name, |_| None);
    }
    let fresh = self::service("4+2", &places);
    let keys = |service: &RaidService| service.list("").unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(keys(&fresh), ["pack-1"]);
    places[0].set(Mood::Away);
    mend(&fresh);
    assert!(parts_of(&places, "pack-2").len() == 3, "the others may be on the place that is away");
    places[0].set(Mood::Well);
    mend(&fresh);
    assert!(parts_of(&places, "pack-2").is_empty());
    assert!(all_of(&fresh, "pack-1") == bytes(1, 500_000));
}

#[test]
fn what_was_deleted_while_a_place_was_away_goes_when_it_is_back() {
    let places = places(3);
    let service = service("2+1", &places);
    put(&service, "pack-1", &bytes(1, 200_000)).unwrap();
    places[2].set(Mood::Away);
    service.delete("pack-1").unwrap();
    assert_eq!(parts_of(&places, "pack-1").len(), 1);
    assert_eq!(service.get("pack-1", 0, 1).unwrap_err().kind, ErrorKind::NotFound);
    places[2].set(Mood::Well);
    service.list("").unwrap();
    assert!(parts_of(&places, "pack-1").is_empty());
}

#[test]
fn a_put_replaces_and_the_names_of_objects_are_plain() {
    let places = places(3);
    let service = service("2+1", &places);
    put(&service, "a/b", &bytes(1, 100_000)).unwrap();
    service.put("a/b", &[Bytes::from(bytes(2, 90_000))], false).unwrap();
    assert!(all_of(&service, "a/b") == bytes(2, 90_000));
    assert_eq!(parts_of(&places, "a/b").len(), 3);
    for bad in ["", "/a", "a/../b", "a//b", ".hidden", "a@b", "a b", "a\0"] {
        assert_eq!(service.put(bad, &[], true).unwrap_err().kind, ErrorKind::InvalidInput, "{bad:?}");
        assert_eq!(service.get(bad, 0, 1).unwrap_err().kind, ErrorKind::InvalidInput, "{bad:?}");
    }
}

#[test]
fn a_layout_needs_as_many_places() {
    let two: Vec<Arc<dyn Place>> = places(2).into_iter().map(|place| Arc::new(place) as Arc<dyn Place>).collect();
    let layout = "2+1,domain=device".parse().unwrap();
    let error = RaidService::new(OWNER, layout, two, STILL).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidInput && error.cause().contains("needs 3 places"), "{error}");
}

#[test]
fn the_background_repairs_by_itself() {
    let places = places(4);
    let pace = Pace { background: true, look_again: Duration::from_millis(10), ..STILL };
    let service = service_at("2+1", &places, pace).working();
    for number in 0..20 {
        put(&service, &format!("pack-{number}"), &bytes(number, 150_000)).unwrap();
    }
    places[1].set(Mood::Away);
    for number in 0..20 {
        assert!(all_of(&service, &format!("pack-{number}")) == bytes(number, 150_000));
    }
    let whole = |service: &RaidService| {
        (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            service.state().lacking == 0
        })
    };
    assert!(whole(&service), "{:?}", service.state());
    places[2].set(Mood::Away);
    for number in 0..20 {
        assert!(all_of(&service, &format!("pack-{number}")) == bytes(number, 150_000));
    }
    places[1].set(Mood::Well);
    places[2].set(Mood::Well);
    places[3].wipe();
    let _ = service.get("pack-3", 0, u64::MAX);
    mend(&service);
    assert!(whole(&service), "{:?}", service.state());
}

#[test]
fn places_of_one_directory_do_not_mix_what_they_store() {
    let dir = std::env::temp_dir().join(format!("cenote-one-directory-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let place = || DirectoryPlace::new(dir.join("place"), OWNER, 1);
    place().make().unwrap();
    // As a node has it: a place for each connection of a host.
    let store = |seed: u64| {
        let place = place();
        for number in 0..60 {
            let content = bytes(seed * 1000 + number, 70_000);
            let name = format!("part-{seed}-{number}");
            place.put(&name, &[Bytes::from(content.clone())]).unwrap();
            assert!(place.get(&name, 0, u64::MAX).unwrap() == content, "{name}");
        }
    };
    std::thread::scope(|scope| (1..=6).for_each(|seed| drop(scope.spawn(move || store(seed)))));
    std::fs::remove_dir_all(&dir).unwrap();
}
