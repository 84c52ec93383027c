//! Places that are about to leave a tier, and parts of which the last one was bad.

use cenote_device::object::ObjectService;
use cenote_device::object::raid::fake::Mood;

use super::{all_of, bytes, mend, parts_of, places, put, service};

#[test]
fn what_a_place_has_moves_away_before_it_leaves() {
    for (layout, count, len) in [("2+1", 4, 900_000), ("mirror=2", 3, 300_000), ("4+2", 8, 5_000_000), ("2+1", 4, 1000)]
    {
        let all = places(count);
        let service = service(layout, &all);
        let contents: Vec<Vec<u8>> = (0..12).map(|number| bytes(number, len)).collect();
        for (number, content) in contents.iter().enumerate() {
            put(&service, &format!("p/{number}"), content).unwrap();
        }
        let leaver = &all[1];
        assert!(!leaver.names().is_empty());
        let made = service.state().parts_made;
        leaver.set_leaves(true);
        // It is read still, and takes nothing new.
        assert_eq!(service.state().lacking, 0);
        put(&service, "p/new", &contents[0]).unwrap();
        assert!(leaver.names_from("p/new@").is_empty());
        // One more is away meanwhile, if the layout allows that beside the loss that this is not.
        mend(&service);
        assert_eq!(leaver.names(), Vec::<String>::new(), "{layout}");
        assert!(service.state().parts_made > made);
        assert!(!service.note().contains("DEGRADED"), "{}", service.note());
        leaver.set(Mood::Away);
        for (number, content) in contents.iter().enumerate() {
            assert!(all_of(&service, &format!("p/{number}")) == *content, "{layout} {number}");
        }
        mend(&service);
        let state = service.state();
        assert_eq!((state.lacking, state.unreadable), (0, 0), "{layout}");
    }
}

#[test]
fn a_place_that_leaves_without_another_one_keeps_what_it_has() {
    let all = places(3);
    let service = service("2+1", &all);
    let content = bytes(1, 800_000);
    put(&service, "p/1", &content).unwrap();
    all[0].set_leaves(true);
    mend(&service);
    assert!(!all[0].names().is_empty(), "its part is nowhere else");
    assert!(service.note().contains("move away from place 1"), "{}", service.note());
    // Another one is lost: what leaves is a source.
    all[2].wipe();
    all[2].set(Mood::Away);
    assert!(all_of(&service, "p/1") == content);
    all[2].set(Mood::Well);
    all[0].set_leaves(false);
    mend(&service);
    let state = service.state();
    assert_eq!((state.lacking, state.bad_parts), (0, 0));
    assert!(!service.note().contains("move away"), "{}", service.note());
}

#[test]
fn a_part_that_is_lost_and_one_that_moves_are_made_together() {
    let all = places(5);
    let service = service("2+2", &all);
    let content = bytes(3, 2_000_000);
    put(&service, "p/1", &content).unwrap();
    let parts = parts_of(&all, "p/1");
    let (leaver, lost) = (parts[0].0, parts[1].0);
    all[leaver].set_leaves(true);
    all[lost].wipe();
    all[lost].set(Mood::Away);
    mend(&service);
    all[lost].set(Mood::Well);
    mend(&service);
    assert!(all[leaver].names().is_empty());
    assert!(all_of(&service, "p/1") == content);
    assert_eq!(service.state().lacking, 0);
}

#[test]
fn an_object_whose_last_copy_was_bad_and_is_good_again_is_mended() {
    let all = places(3);
    let service = service("mirror=2", &all);
    let content = bytes(5, 100_000);
    put(&service, "p/1", &content).unwrap();
    let [(kept, name), (lost, _)] = <[_; 2]>::try_from(parts_of(&all, "p/1")).unwrap();
    let mut good = None;
    all[kept].meddle(&name, |file| {
        good.clone_from(&file);
        file.map(|bytes| vec![0; bytes.len()])
    });
    all[lost].wipe();
    mend(&service);
    assert!(service.get("p/1", 0, u64::MAX).is_err(), "no copy of it is good");
    assert!(service.note().contains("1 objects have too few parts"), "{}", service.note());
    all[kept].meddle(&name, |_| good);
    mend(&service);
    assert_eq!(parts_of(&all, "p/1").len(), 2);
    assert!(all_of(&service, "p/1") == content && !service.note().contains("DEGRADED"), "{}", service.note());
}
