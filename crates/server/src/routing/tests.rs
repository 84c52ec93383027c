//! Where requests go, and how answers are joined.

use cenote_model::{IndexId, IndexKey, ObjectId};

use super::*;

fn put(container: u64) -> Update {
    let index = IndexKey { container: ContainerId(container), index: IndexId(1) };
    Update::Put { index, key: b"k".to_vec(), value: b"v".to_vec(), only_new: false }
}
fn punch(container: u64) -> Update {
    Update::Punch { key: ObjectKey { container: ContainerId(container), object: ObjectId(1) }, offset: 0, len: 1 }
}

#[test]
fn a_transaction_is_kept_together_and_other_updates_are_split() {
    assert!(matches!(plan(&[], &[put(4), put(7)], true, 3), Ok(Plan::Whole(1))));
    assert!(matches!(plan(&[], &[put(4), put(7), put(5)], true, 3), Ok(Plan::Across)));
    let shares = shares(Vec::new(), vec![put(5), put(4), put(7)], 3);
    let homes: Vec<_> = shares.iter().map(|share| (share.home, share.updates.len())).collect();
    assert_eq!(homes, [(1, 2), (2, 1)]);
    let delete = Update::ContainerDelete { id: ContainerId(5) };
    let error = plan(&[], &[put(4), delete], true, 3).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("c4") && error.to_string().contains("c5"), "{error}");
    match plan(&[], &[put(4), put(7), put(5), put(4)], false, 3) {
        Ok(Plan::Split(of)) => assert_eq!(of, [1, 1, 2, 1]),
        other => panic!("{other:?}"),
    }
    let key = ObjectKey { container: ContainerId(5), object: ObjectId(1) };
    let check = [Check::Size { key, size: 1 }];
    assert_eq!(plan(&check, &[put(4)], false, 3).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(matches!(plan(&check, &[], true, 3), Ok(Plan::Whole(2))));
    assert!(matches!(plan(&[], &[], true, 3), Ok(Plan::Whole(0))));
}

#[test]
fn a_new_container_takes_its_first_indices_along() {
    let create = Update::ContainerCreate {
        id: ContainerId(0),
        label: "new".into(),
        spec: cenote_model::ContainerSpec::default(),
    };
    let home = home_of_label("new", 5);
    let updates = [create, Update::IndexCreate { key: IndexKey::default() }, put(0)];
    assert!(matches!(plan(&[], &updates, true, 5), Ok(Plan::Whole(it)) if it == home));
    let mut many = [0; 4];
    (0..1000).for_each(|n| many[home_of_label(&format!("/scratch/run-{n}/out.h5"), 4)] += 1);
    assert!(many.iter().all(|count| (150..350).contains(count)), "{many:?}");
}

#[test]
fn answers_of_parts_are_in_the_order_of_the_updates() {
    let applied =
        |epoch, codes: &[KeyCode]| Response::Applied { epoch, codes: codes.to_vec(), words: Vec::new(), created: None };
    let updates = [put(4), put(5), punch(4), put(5)];
    let of = [1, 2, 1, 2];
    let words = Words::of(&updates, &of, 3);
    let all = vec![applied(9, &[]), applied(4, &[KeyCode::NotFound, KeyCode::Ok])];
    let Response::Applied { epoch, codes, .. } = joined(all, &[1, 2], &of, &words) else { panic!() };
    assert_eq!(epoch, 9);
    assert_eq!(codes, [KeyCode::Ok, KeyCode::NotFound, KeyCode::Ok, KeyCode::Ok]);
    assert!(words.0.is_none());
    let known = Words(Some(vec![0, 1, 0]));
    assert_eq!(known.joined(vec![vec![(1, 2), (5, 6)], vec![(3, 4)]]), [(1, 2), (3, 4), (5, 6)]);
    assert!(known.joined(vec![vec![(1, 2)], vec![(3, 4)]]).is_empty());
}
