//! A cluster that has lost more nodes than it can do without: the others say so, instead of waiting for ever.

use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, ErrorKind, IndexId};
use cenote_testkit::crash::nodes::Cluster;

const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn requests_without_a_majority_of_the_register_fail_and_say_why() {
    let mut nodes = Cluster::new("silent", Path::new(env!("CARGO_BIN_EXE_crash")), 3, 1);
    let container = nodes.stores[0].create_container("here", &ContainerSpec::default()).unwrap();
    let index = container.create_index(Some(IndexId(1))).unwrap();
    index.put(&[(b"k", b"before")]).unwrap();
    nodes.stores[0].protect(1, PATIENCE).unwrap();
    nodes.lose(2);
    nodes.lose(1);
    // Without the two, nothing grants a lease. Whatever was asked by then is answered, at the latest, half a minute later.
    let begin = Instant::now();
    let error = loop {
        match index.put(&[(b"k", b"after")]) {
            Ok(_) => assert!(begin.elapsed() < Duration::from_secs(5), "it is acknowledged without a lease"),
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    let text = error.to_string();
    assert!(text.contains("home n1") && text.contains("register") && text.contains("cenote ha"), "{text}");
    let later = Instant::now();
    assert_eq!(index.get_one(b"k").unwrap_err().kind(), ErrorKind::Busy);
    assert!(later.elapsed() < Duration::from_secs(5), "the next one waited for {:?}", later.elapsed());
}
