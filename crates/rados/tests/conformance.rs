//! All pools pass the same suite: the one in memory, and those of a real cluster, if `CENOTE_TEST_CEPH=POOL@CONF` names
//! one (`python3 scripts/ceph_cluster.py run -- cargo test -p cenote-rados`).

use std::time::{Duration, Instant};

use cenote_rados::{CephPool, Change, Check, Connect, MemoryPool, Pool, RefusalKind, conformance};

fn connect(namespace: &str) -> Option<Connect> {
    let Ok(text) = std::env::var("CENOTE_TEST_CEPH") else {
        eprintln!("skipped: CENOTE_TEST_CEPH names no pool of a Ceph cluster");
        return None;
    };
    let (pool, conf) = text.split_once('@').expect("CENOTE_TEST_CEPH=POOL@CONF");
    let namespace = format!("{namespace}-{}", std::process::id());
    Some(Connect { pool: pool.into(), namespace, conf: Some(conf.into()), user: Some("cenote".into()), keyring: None })
}

#[test]
fn memory() {
    conformance::pool(&MemoryPool::default(), true);
    conformance::parts(&MemoryPool::default());
}

#[test]
fn a_replicated_pool() {
    let Some(connect) = connect("suite") else { return };
    let pool = CephPool::connect(&connect).unwrap();
    conformance::pool(&pool, true);
    conformance::parts(&pool);
}

#[test]
fn an_erasure_coded_pool() {
    let Some(connect) = connect("suite") else { return };
    let Ok(ec) = std::env::var("CENOTE_TEST_CEPH_EC") else { return };
    conformance::pool(&CephPool::connect(&Connect { pool: ec, ..connect }).unwrap(), false);
}

#[test]
fn namespaces_do_not_see_each_other() {
    let (Some(one), Some(other)) = (connect("one"), connect("other")) else { return };
    let [one, other] = [one, other].map(|connect| CephPool::connect(&connect).unwrap());
    one.change("o", &[Check::Absent], &[Change::Replace(b"one")]).unwrap();
    assert_eq!(other.size("o").unwrap(), None);
    assert_eq!(other.list().unwrap(), Vec::<String>::new());
    other.change("o", &[Check::Absent], &[Change::Replace(b"other")]).unwrap();
    assert_eq!(one.read("o", 0, 9).unwrap(), b"one");
    for pool in [one, other] {
        pool.change("o", &[], &[Change::Remove]).unwrap();
    }
}

#[test]
fn who_may_not_is_told_so() {
    let Some(connect) = connect("denied") else { return };
    let refused = |connect: &Connect| CephPool::connect(connect).err().unwrap();
    let nobody = refused(&Connect { user: Some("nobody".into()), ..connect.clone() });
    assert!(nobody.kind == RefusalKind::Denied && nobody.cause.contains("client.nobody"), "{nobody:?}");
    let none = refused(&Connect { pool: "none".into(), ..connect.clone() });
    assert!(none.kind == RefusalKind::NotFound && none.cause.contains("`none`"), "{none:?}");
    let no_key = refused(&Connect { keyring: Some("/nonexistent".into()), ..connect.clone() });
    assert_eq!(no_key.kind, RefusalKind::Denied, "{no_key:?}");
    let reader = CephPool::connect(&Connect { user: Some("client.reader".into()), ..connect }).unwrap();
    assert_eq!(reader.list().unwrap(), Vec::<String>::new());
    assert_eq!(reader.size("o").unwrap(), None);
    let refusal = reader.change("o", &[], &[Change::Replace(b"x")]).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Denied, "{refusal:?}");
}

#[test]
fn monitors_that_do_not_answer_take_seconds() {
    let Some(connect) = connect("silent") else { return };
    // Takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let conf = std::env::temp_dir().join(format!("cenote-rados-silent-{}.conf", std::process::id()));
    let keyring = connect.conf.as_ref().unwrap().with_file_name("keyring");
    let mon = silent.local_addr().unwrap();
    std::fs::write(&conf, format!("[global]\nmon_host = v2:{mon}\nkeyring = {}\n", keyring.display())).unwrap();
    let begun = Instant::now();
    let refusal = CephPool::connect(&Connect { conf: Some(conf.clone()), ..connect }).err().unwrap();
    assert_eq!(refusal.kind, RefusalKind::Unanswered, "{refusal:?}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    std::fs::remove_file(conf).unwrap();
}

/// A forked child is refused at once, and may end without harm to its parent's connection.
#[test]
fn a_child_does_not_touch_its_parents_connection() {
    let Some(connect) = connect("forked") else { return };
    let pool = CephPool::connect(&connect).unwrap();
    pool.change("o", &[], &[Change::Replace(b"x")]).unwrap();
    let mut pool = Some(pool);
    let is_told = forked::child(|| {
        let pool = pool.take().unwrap();
        let refusal = pool.read("o", 0, 1).unwrap_err();
        drop(pool);
        refusal.kind == RefusalKind::Failed && refusal.cause.contains("forked")
    });
    assert!(is_told, "the child is refused at once, and ends");
    let pool = pool.expect("the child has its own memory");
    assert_eq!(pool.read("o", 0, 1).unwrap(), b"x", "its parent goes on");
    pool.change("o", &[], &[Change::Remove]).unwrap();
}

mod forked {
    #![allow(unsafe_code, reason = "std has no fork")]

    /// Runs `act` in a forked child, which ends without unwinding; returns whether it returned true within a minute.
    pub fn child(act: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only makes the call under test, and leaves by `_exit`.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: a child that hangs must not outlive the test.
                unsafe { libc::alarm(60) };
                let code = i32::from(!act());
                // SAFETY: it does not return.
                unsafe { libc::_exit(code) }
            }
            child => {
                let mut status = -1;
                // SAFETY: waits for the child of this call, and writes to this function's own place.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                status == 0
            }
        }
    }
}
