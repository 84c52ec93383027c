//! Extents with copies, compressed places, and their parts.

use super::*;

fn plain(dev: DeviceIndex, base: u64) -> NewPlace<'static> {
    NewPlace { dev, base, birth: Birth(8), packed: None }
}

#[test]
fn copies_come_and_go_in_any_number() {
    let whole = Ext::from_model(&Extent::whole(DeviceId(1), 4096, 512, Sums::One(9)), 0, 3, Birth(7));
    let three = whole.with_copy(plain(3, 0), None).with_copy(plain(4, 1 << 20), None);
    assert_eq!(three.places().map(|place| place.dev).collect::<Vec<_>>(), [0, 3, 4]);
    assert_eq!((three.sums(), three.copy_on(4), three.copy_on(9)), (&[9][..], Some(1), None));
    let second = three.at_copy(1);
    assert_eq!((second.dev, second.run_offset, second.copy_dev), (4, 1 << 20, 3));
    assert!(second.without_copy(0).run.is_none() && !second.has_same_copies(&three));
    let replaced = three.with_copy(plain(5, 0), Some(0));
    assert_eq!(replaced.copies().iter().map(|copy| copy.dev).collect::<Vec<_>>(), [5, 4]);
    let promoted = three.promoted(plain(6, 0));
    assert_eq!(promoted.places().map(|place| place.dev).collect::<Vec<_>>(), [6, 3, 4]);
    let moved = three.moved(plain(6, 0));
    assert_eq!((moved.dev, moved.run.is_none(), moved.sum), (6, true, 9));
}

#[test]
fn is_small() {
    assert_eq!(size_of::<Ext>(), 56);
    assert_eq!(size_of::<Option<Ext>>(), 64);
}

#[test]
fn hulls_are_whole_units() {
    let sums = Sums::from_slice(&[1, 2, 3]);
    let whole = Ext::from_model(&Extent::whole(DeviceId(1), 4096, 150_000, sums), 0, 0, Birth(7));
    assert_eq!(whole.hull(), Hull { begin: 0, end: 150_000 });
    let middle = whole.part(70_000, 10);
    assert_eq!(middle.hull(), Hull { begin: 65_536, end: 131_072 });
    assert_eq!(middle.hull_sums(middle.hull()), [2]);
    assert!(middle.begins_inside() && middle.ends_inside() && !whole.ends_inside());
    let copied = middle.with_copy(plain(3, 8192u64.wrapping_sub(65_536)), None);
    let moved = copied.at_copy(0);
    assert_eq!((moved.birth, moved.has_copy()), (Birth(8), false));
    assert_eq!((moved.run_offset, moved.run_len, moved.skip, moved.sum), (8192, 65_536, 70_000 - 65_536, 2));
}

#[test]
fn compressed_places_have_units_of_their_own() {
    let packed = |len, lens: &[u32]| Arc::new(Packed::new(cenote_model::Codec::Lz4, 0, 12, len, lens).unwrap());
    let sums = Sums::from_slice(&[1, 2, 3]);
    let whole = Ext::from_model(&Extent::whole(DeviceId(1), 4096, 150_000, sums), 0, 0, Birth(7));
    // The last two units get a compressed copy: the run has no others then.
    let packing = packed(84_464, &[5000, 100]);
    let view = whole.part(70_000, 80_000).with_copy(NewPlace { packed: Some(&packing), ..plain(3, 1 << 20) }, None);
    assert_eq!((view.run_offset, view.run_len, view.skip), (4096 + 65_536, 84_464, 70_000 - 65_536));
    let copy = view.copy_place(0).unwrap();
    let end = (1 << 20) + 8192 + 4096;
    assert_eq!((copy.unit_at(0), copy.unit_at(70_000), copy.end_at(84_464)), (1 << 20, (1 << 20) + 8192, end));
    assert!(view.packed().is_none() && view.place().end_at(65_536) == 4096 + 2 * 65_536);
    let moved = view.part(70_000, 10).at_copy(0);
    assert_eq!(
        (moved.dev, moved.run_offset, moved.run_len, moved.skip),
        (3, (1 << 20) + 8192, 18_928, 4464 + 70_000 - 65_536)
    );
    assert_eq!((moved.packed().unwrap().len_of(0), moved.sums()), (100, &[3][..]));
    assert!(!moved.has_copy());
    // Promoted again, it is plain there.
    let promoted = moved.promoted(plain(1, 512));
    assert_eq!(
        (promoted.dev, promoted.run_offset, promoted.copies()[0].dev, promoted.copies()[0].base),
        (1, 512, 3, moved.run_offset)
    );
    assert!(promoted.packed().is_none() && promoted.copies()[0].packed.is_some());
    let again = promoted.with_copy(plain(2, 4096), Some(0));
    assert!(again.copies()[0].packed.is_none() && again.copies().len() == 1 && !again.is_packed());
}
