//! The socket: long paths, descriptors, credentials, hostile and dying peers.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use cenote_model::ErrorKind;
use cenote_rpc::{Connection, FRAME_BYTES_MAX, Listener};

const SOON: Duration = Duration::from_secs(10);

struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cenote-rpc-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn long_paths_credentials_and_descriptors() {
    let scratch = Scratch::new("long");
    let dir = scratch.0.join("x".repeat(120)).join("y".repeat(120));
    std::fs::create_dir_all(&dir).unwrap();
    assert_eq!(Connection::connect(&dir, "socket", SOON).unwrap_err().kind(), ErrorKind::NotFound);
    let listener = Listener::bind(&dir, "socket").unwrap();
    assert!(listener.accept(Duration::from_millis(1)).unwrap().is_none());
    let client = Connection::connect(&dir, "socket", SOON).unwrap();
    let server = listener.accept(SOON).unwrap().unwrap();
    let peer = server.peer().unwrap();
    assert_eq!((peer.pid, client.peer().unwrap()), (std::process::id(), peer));
    std::fs::write(dir.join("file"), b"through a descriptor").unwrap();
    let files: Vec<_> = (0..40).map(|_| std::fs::File::open(dir.join("file")).unwrap()).collect();
    let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    client.send(&[b"here ", b"it is"], &fds, SOON).unwrap();
    client.send(&[], &[], SOON).unwrap();
    client.send(&[b"last"], &fds[..1], SOON).unwrap();
    let frame = server.receive(SOON).unwrap().unwrap();
    assert_eq!((&frame.bytes[..], frame.fds.len()), (&b"here it is"[..], 40));
    let mut text = String::new();
    std::fs::File::from(frame.fds.into_iter().next_back().unwrap()).read_to_string(&mut text).unwrap();
    assert_eq!(text, "through a descriptor");
    let frame = server.receive(SOON).unwrap().unwrap();
    assert!(frame.bytes.is_empty() && frame.fds.is_empty());
    assert_eq!(server.receive(SOON).unwrap().unwrap().fds.len(), 1);
    assert!(server.receive(Duration::from_millis(1)).unwrap().is_none());
    drop(listener);
    let _again = Listener::bind(&dir, "socket").expect("in place of what a dead process left");
}

#[test]
fn large_frames_pass_and_larger_ones_do_not() {
    let (one, other) = Connection::pair().unwrap();
    let bytes: Vec<u8> = (0..FRAME_BYTES_MAX).map(|i| (i / 1000) as u8).collect();
    let too_much = one.send(&[&bytes, b"x"], &[], SOON).unwrap_err();
    assert_eq!(too_much.kind(), ErrorKind::LimitExceeded);
    thread::scope(|scope| {
        scope.spawn(|| one.send(&[&bytes[..1000], &bytes[1000..]], &[], Duration::from_mins(1)).unwrap());
        let frame = other.receive(Duration::from_mins(1)).unwrap().unwrap();
        assert!(frame.bytes == bytes);
    });
}

#[test]
fn a_dead_peer_is_noticed() {
    let (one, other) = Connection::pair().unwrap();
    assert!(!one.is_peer_gone());
    drop(other);
    assert!(one.is_peer_gone());
    assert_eq!(one.receive(SOON).unwrap_err().kind(), ErrorKind::Disconnected);
    assert_eq!(one.send(&[b"x"], &[], SOON).unwrap_err().kind(), ErrorKind::Disconnected);
    let scratch = Scratch::new("dead");
    let listener = Listener::bind(&scratch.0, "socket").unwrap();
    drop(listener);
    assert_eq!(Connection::connect(&scratch.0, "socket", SOON).unwrap_err().kind(), ErrorKind::Disconnected);
}

#[test]
fn a_silent_peer_takes_no_longer_than_allowed() {
    let (one, other) = Connection::pair().unwrap();
    let begin = Instant::now();
    let full = one.send(&[&vec![0; 8 << 20]], &[], Duration::from_millis(50)).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Busy, "{full}");
    let half = other.receive(Duration::from_millis(50)).unwrap_err();
    assert_eq!(half.kind(), ErrorKind::Busy, "the frame is never completed");
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn hostile_frames_are_errors() {
    let scratch = Scratch::new("hostile");
    let listener = Listener::bind(&scratch.0, "socket").unwrap();
    let cases: [(&[u8], ErrorKind); 6] = [
        (&[255, 255, 255, 255, 0, 0, 1, 0], ErrorKind::Corrupt), // too long
        (&[1, 0, 0, 4, 0, 0, 1, 0, 9, 9], ErrorKind::Corrupt),   // one past the limit
        (&[1, 0, 0, 0, 3, 0, 1, 0, 9], ErrorKind::Corrupt),      // descriptors that were not sent
        (&[1, 0, 0, 0, 0, 0, 9, 0, 9], ErrorKind::VersionMismatch), // another version
        (&[100, 0, 0, 0, 0, 0, 1, 0, 1, 2, 3], ErrorKind::Disconnected), // cut short
        (&[1, 0, 0], ErrorKind::Disconnected),                   // cut in the header
    ];
    for (bytes, kind) in cases {
        let mut stream = UnixStream::connect(scratch.0.join("socket")).unwrap();
        let server = listener.accept(SOON).unwrap().unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
        assert_eq!(server.receive(SOON).unwrap_err().kind(), kind, "{bytes:?}");
    }
}
