//! Two nodes of a cluster with real daemons: what one does with a container of the other, through the client's API.

use std::path::Path;
use std::time::Duration;

use cenote::{Container, ContainerSpec, ErrorKind, HomeId, IndexId, ObjectId, Precondition, Store};
use cenote_model::LABEL_BYTES_MAX;
use cenote_testkit::crash::nodes::Cluster;

const ID: ObjectId = ObjectId(7);
const INDEX: IndexId = IndexId(3);

fn two_nodes(name: &str) -> Cluster {
    Cluster::new(&format!("nodes-{name}"), Path::new(env!("CARGO_BIN_EXE_crash")), 2, 0)
}

#[test]
fn a_container_of_another_node_is_used_as_an_own_one() {
    let nodes = two_nodes("used");
    let [at_home, store] = &nodes.stores[..] else { panic!() };
    let container = at_home.create_container("far", &ContainerSpec::default()).unwrap();
    let far = store.container("far").unwrap();
    assert_eq!((store.home(), far.home(), container.home()), (HomeId(2), HomeId(1), HomeId(1)));
    assert_eq!((store.homes(), far.id()), (vec![HomeId(1), HomeId(2)], container.id()));
    objects_show_what_the_other_side_did(&far, &container);
    records_are_not_remembered(&far, &container);
    transactions_are_whole(store, &far, &container);
    snapshots_and_flushes_work(store, &far, &container);
}

fn objects_show_what_the_other_side_did(far: &Container, container: &Container) {
    let (ours, theirs) = (far.create_object(Some(ID), None).unwrap(), container.object(ID));
    for round in 0..3u8 {
        let bytes = vec![round; 100_000];
        ours.write_at(50_000 * u64::from(round), &bytes).unwrap();
        assert_eq!(ours.size().unwrap(), theirs.size().unwrap());
        theirs.write_at(5, &[77; 10]).unwrap();
        let mut found = vec![0; 200_000];
        let count = ours.read_at(0, &mut found).unwrap();
        assert_eq!((count as u64, &found[5..15]), (theirs.size().unwrap(), &[77; 10][..]));
    }
    theirs.truncate(3).unwrap();
    assert_eq!((ours.size().unwrap(), ours.next_data(0).unwrap(), ours.next_data(3).unwrap()), (3, Some(0), None));
    assert_eq!((ours.append(b"four").unwrap(), theirs.size().unwrap()), (3, 7));
    assert_eq!(ours.usage().unwrap(), theirs.usage().unwrap());
    assert!(ours.view(0, 4).unwrap().is_none());
    let op = ours.launch_write_kept(0, b"kept").unwrap();
    assert_eq!(ours.launch_read(0, 4).unwrap().wait_read().unwrap(), b"kept");
    op.wait().unwrap();
    let mut place = ours.write_in_place(3).unwrap();
    place.bytes().copy_from_slice(b"abc");
    place.commit(0).unwrap();
    // Larger than a lease, pipelined, and one byte at a time.
    let large: Vec<u8> = (0..3_000_001_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    ours.write_at(1, &large).unwrap();
    for at in 0..100 {
        drop(ours.launch_write(at, &[at as u8]).unwrap());
    }
    far.store().wait_all().unwrap();
    let mut found = vec![0; 3_000_002];
    theirs.read_at(0, &mut found).unwrap();
    assert!(found[..100].iter().enumerate().all(|(at, byte)| *byte == at as u8) && found[100..] == large[99..]);
}

fn records_are_not_remembered(far: &Container, container: &Container) {
    let index = far.create_index(Some(INDEX)).unwrap().remembering();
    let their_index = container.index(INDEX).remembering();
    for round in [b"0", b"1", b"2"] {
        index.put(&[(b"key", round)]).unwrap();
        assert_eq!(their_index.get_one(b"key").unwrap().as_deref(), Some(&round[..]));
        their_index.put(&[(b"key", b"theirs")]).unwrap();
        assert_eq!(index.get_one(b"key").unwrap().as_deref(), Some(&b"theirs"[..]));
        assert_eq!(index.iter(b"").count(), 1);
    }
}

fn transactions_are_whole(store: &Store, far: &Container, container: &Container) {
    let (ours, theirs) = (far.object(ID), container.object(ID));
    let (index, their_index) = (far.index(INDEX).remembering(), container.index(INDEX));
    let near = store.create_container("near", &ContainerSpec::default()).unwrap();
    let near_index = near.create_index(None).unwrap();
    let mut tx = store.begin();
    tx.write(&ours, 0, b"transaction").unwrap();
    tx.put(&index, b"key", b"tx").unwrap();
    let mut found = [0; 11];
    tx.read(&ours, 0, &mut found).unwrap();
    assert_eq!(&found, b"transaction");
    tx.commit().unwrap();
    theirs.read_at(0, &mut found).unwrap();
    assert_eq!((&found, their_index.get_one(b"key").unwrap().as_deref()), (b"transaction", Some(&b"tx"[..])));
    let mut tx = store.begin();
    tx.write(&ours, 0, b"crossing").unwrap();
    tx.put(&near_index, b"key", b"tx").unwrap();
    let error = tx.launch(&Precondition::new(&near_index, b"key", b"")).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("n1c") && error.to_string().contains("n2c"), "{error}");
    let mut tx = store.begin();
    tx.write(&ours, 0, b"transaction").unwrap();
    tx.put(&near_index, b"key", b"tx").unwrap();
    tx.commit().unwrap();
    theirs.read_at(0, &mut found).unwrap();
    assert_eq!((&found, near_index.get_one(b"key").unwrap().as_deref()), (b"transaction", Some(&b"tx"[..])));
}

fn snapshots_and_flushes_work(store: &Store, far: &Container, container: &Container) {
    let (ours, theirs) = (far.object(ID), container.object(ID));
    let mut found = [0; 11];
    far.snapshot("then").unwrap();
    let then = far.open_snapshot("then").unwrap();
    ours.write_at(0, b"changed").unwrap();
    then.object(ID).read_at(0, &mut found).unwrap();
    assert_eq!(&found, b"transaction");
    drop(then);
    far.flush().unwrap();
    drop(ours.launch_write(0, b"later").unwrap());
    store.wait_all().unwrap();
    theirs.read_at(0, &mut found).unwrap();
    assert_eq!(&found[..5], b"later");
    store.flush().unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.verify().unwrap().findings.len(), 0);
}

fn labels(store: &Store, prefix: &str) -> Vec<String> {
    store.containers(prefix).unwrap().into_iter().map(|info| info.label).collect()
}

#[test]
fn labels_are_those_of_the_directory() {
    let nodes = two_nodes("labels");
    let [first, second] = &nodes.stores[..] else { panic!() };
    let spec = ContainerSpec::default();
    first.make_label_directory().unwrap();
    let long = "l".repeat(LABEL_BYTES_MAX);
    for (store, other, label) in [(first, second, "b"), (second, first, "a"), (second, first, &long)] {
        let made = store.create_container(label, &spec).unwrap();
        assert_eq!(made.label(), label);
        for seen in [store, other] {
            assert_eq!(seen.container(label).unwrap().id(), made.id());
            let by_id = seen.container_by_id(made.id()).unwrap();
            assert_eq!((by_id.label(), by_id.info().unwrap().label.as_str()), (label, label));
            assert_eq!(seen.create_container(label, &spec).map_err(|it| it.kind()).unwrap_err(), ErrorKind::Exists);
        }
    }
    for store in [first, second] {
        assert_eq!((labels(store, ""), labels(store, "x")), (vec!["a".into(), "b".into(), long.clone()], vec![]));
        assert_eq!(store.stats().unwrap().containers, 4, "a refused creation leaves nothing but the directory");
    }
    let id = first.container("a").unwrap().id();
    assert_eq!(first.rename_container("a", "b").map_err(|it| it.kind()), Err(ErrorKind::Exists));
    first.rename_container("a", "c").unwrap();
    first.rename_container("c", "c").unwrap();
    assert_eq!(second.container("a").map_err(|it| it.kind()).unwrap_err(), ErrorKind::NotFound);
    assert_eq!(second.container("c").unwrap().id(), id);
    assert_eq!(first.container_content(id).unwrap().container.label(), "c");
    second.delete_container("c").unwrap();
    assert_eq!(first.delete_container("c").map_err(|it| it.kind()), Err(ErrorKind::NotFound));
    assert_eq!(labels(first, ""), ["b", &long]);
}

#[test]
fn a_container_that_is_deleted_on_conditions_has_no_label_any_more() {
    let nodes = two_nodes("conditions");
    let [first, second] = &nodes.stores[..] else { panic!() };
    for (store, other) in [(first, second), (second, first)] {
        let container = store.create_container("c", &ContainerSpec::default()).unwrap();
        let index = container.create_index(Some(IndexId(1))).unwrap();
        index.put(&[(b"k", b"v")]).unwrap();
        let delete = |expected: Option<&[u8]>| {
            let mut tx = other.begin();
            tx.expect(&other.container("c")?.index(IndexId(1)), b"k", expected)?;
            tx.delete_container(&other.container("c")?)?;
            tx.commit()
        };
        assert_eq!(delete(None).map_err(|it| it.kind()), Err(ErrorKind::Conflict));
        assert_eq!(store.container("c").unwrap().id(), container.id(), "it stays, under its label");
        delete(Some(b"v")).unwrap();
        assert_eq!(store.container("c").map_err(|it| it.kind()).unwrap_err(), ErrorKind::NotFound);
        other.create_container("c", &ContainerSpec::default()).unwrap();
        store.delete_container("c").unwrap();
    }
}

#[test]
fn tiers_have_their_homes_in_their_names() {
    let nodes = two_nodes("tiers");
    let [first, second] = &nodes.stores[..] else { panic!() };
    let names: Vec<String> = second.devices().unwrap().into_iter().map(|device| device.spec.name).collect();
    assert_eq!(names, ["n1/memory", "n1/pmem", "n1/disk", "n2/memory", "n2/pmem", "n2/disk"]);
    for name in ["n1/memory", "n2/memory", "memory"] {
        second.profile(name, Duration::ZERO).unwrap();
    }
    assert_eq!(second.profile("n3/memory", Duration::ZERO).map_err(|it| it.kind()), Err(ErrorKind::NotFound));
    let more = format!("name=n1/more,kind=file,path={}/more,size=16MiB", nodes.dir.display());
    second.add_device(&more.parse().unwrap()).unwrap();
    assert!(first.devices().unwrap().iter().any(|device| device.spec.name == "n1/more"));
    second.drain_device("n1/more").unwrap();
    second.remove_device("n1/more").unwrap();
    assert_eq!(second.devices_of(HomeId(1)).unwrap().len(), 3);
    assert_eq!(second.stats_of(HomeId(1)).unwrap().containers, 1);
}

#[test]
fn data_are_moved_between_the_tiers_of_their_home() {
    let nodes = two_nodes("moved");
    let [first, second] = &nodes.stores[..] else { panic!() };
    let container = first.create_container("data", &ContainerSpec::default()).unwrap();
    container.create_object(Some(ID), None).unwrap().write_at(0, &vec![1; 100_000]).unwrap();
    let pin = |to: &str| cenote::Arrange::Pin { to: Some(to.to_owned()) };
    let target = cenote::ArrangeTarget::Container(container.id());
    assert_eq!(second.arrange(&target, &pin("n1/disk"), true).unwrap().objects, 1);
    assert_eq!(second.arrange(&target, &pin("disk"), true).unwrap().objects, 1);
    let error = second.arrange(&target, &pin("n2/disk"), true).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains("n2/disk"), "{error}");
}
