//! The roles of other processes.

use std::io::{Read, Write};
use std::process::ExitCode;

use cenote::{Mode, ObjectId, OpenOptions, Store};

use crate::tools::Random;

fn open(dir: &str, mode: Mode) -> Store {
    Store::open_with(dir, &OpenOptions { mode, ..OpenOptions::default() }).unwrap()
}

pub fn say(text: impl std::fmt::Display) {
    println!("{text}");
    std::io::stdout().flush().unwrap();
}

/// Waits until the parent closes our standard input.
fn until_told() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

pub fn run(role: &str, args: &[String]) -> ExitCode {
    let dir = args[0].as_str();
    match role {
        "answer" => answer(&open(dir, Mode::Auto)),
        "racer" => racer(dir),
        "reader" => reader(dir),
        "endless" => endless(&open(dir, Mode::Daemon)),
        "cutter" => cutter(&open(dir, Mode::Daemon), args[1].parse().unwrap()),
        "appender" => appender(&open(dir, Mode::Daemon), args[1].parse().unwrap(), args[2].parse().unwrap()),
        "launcher" => crate::redo_log::launcher(dir, &args[1], &args[2]),
        "launching" => crate::across::launching(dir),
        "transfers" => crate::across::endless(dir),
        "second" => crate::rights::second(dir),
        "sitter" => sitter(&open(dir, Mode::Daemon)),
        _ => panic!("no role {role}"),
    }
    ExitCode::SUCCESS
}

/// Reads the parent's bytes in object 1, writes them reversed into object 2, and reports that.
fn answer(store: &Store) {
    let container = store.container("shared").unwrap();
    let mut buf = [0; 64];
    let n = container.object(ObjectId(1)).read_at(0, &mut buf).unwrap();
    let reversed: Vec<u8> = buf[..n].iter().rev().copied().collect();
    let answer = container.create_object(Some(ObjectId(2)), None).unwrap();
    answer.write_at(0, &reversed).unwrap();
    say("answered");
    until_told();
    // The parent has changed it in the meantime.
    let n = container.object(ObjectId(1)).read_at(0, &mut buf).unwrap();
    assert_eq!(&buf[..n], b"changed");
}

/// Appends records to object 1.
fn appender(store: &Store, who: u8, count: usize) {
    let object = store.container("shared").unwrap().object(ObjectId(1));
    say("ready");
    crate::files::append_records(&object, who, count);
    say("done");
}

/// Opens through a daemon at the same time as others, and writes its own object.
fn racer(dir: &str) {
    let store = open(dir, Mode::Daemon);
    let container = store.container("shared").unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, b"racer").unwrap();
    say("raced");
    until_told();
}

/// A user who may only read (or not even that).
fn reader(dir: &str) {
    // SAFETY: no other thread runs yet.
    let dropped = unsafe { libc::setgid(65_534) == 0 && libc::setuid(65_534) == 0 };
    assert!(dropped, "root can become anybody");
    let store = match Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }) {
        Ok(store) => store,
        Err(error) => return say(format!("refused {:?}", error.kind())),
    };
    let container = store.container("shared").unwrap();
    let mut buf = [0; 64];
    let n = container.object(ObjectId(1)).read_at(0, &mut buf).unwrap();
    let view = container.object(ObjectId(1)).view(0, n).unwrap();
    assert!(view.is_none_or(|view| view[..] == buf[..n]));
    let refused = [
        container.object(ObjectId(1)).write_at(0, b"no").unwrap_err(),
        container.create_object(None, None).map(drop).unwrap_err(),
        store.create_container("no", &cenote::ContainerSpec::default()).map(drop).unwrap_err(),
        store.checkpoint().unwrap_err(),
        store.begin().create_object(&container, None, None).map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), cenote::ErrorKind::PermissionDenied, "{error}");
    }
    say(String::from_utf8_lossy(&buf[..n]));
}

/// Writes blocks for ever, pipelined; prints the number of acknowledged ones.
fn endless(store: &Store) {
    let container = store.container("shared").unwrap();
    let object = container.create_object(None, None).unwrap();
    say(object.key().object);
    let mut random = Random(object.key().object.0 as u64);
    let mut acknowledged = 0u64;
    loop {
        let ops: Vec<_> =
            (0..50).map(|i| object.launch_write((acknowledged + i) * 4096, &random.bytes(4096)).unwrap()).collect();
        for op in ops {
            op.wait().unwrap();
            acknowledged += 1;
        }
        say(acknowledged);
    }
}

/// Truncates its own file of rings and slots, and touches nothing afterwards.
fn cutter(store: &Store, left: u64) {
    store.container("shared").unwrap();
    let own = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path()).find(|path| {
        let target = std::fs::read_link(path).unwrap_or_default();
        target.file_name().is_some_and(|name| name.to_string_lossy().starts_with("client-"))
    });
    let file = std::fs::File::options().write(true).open(own.expect("the file of rings")).unwrap();
    file.set_len(left).unwrap();
    say("cut");
    loop {
        std::thread::sleep(std::time::Duration::from_mins(1));
    }
}

/// Holds a lease and a view, does nothing.
fn sitter(store: &Store) {
    let container = store.container("shared").unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, &[5; 10_000]).unwrap();
    let _view = object.view(0, 100).unwrap();
    for i in 0..100 {
        object.launch_write(i * 100, b"launched").unwrap();
    }
    say("sitting");
    until_told();
}
