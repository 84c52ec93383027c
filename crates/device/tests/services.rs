//! Tiers in real services: OpenStack Swift by its own interface and by that of S3, and moto's S3. Each test is skipped,
//! and says so, where a service is not installed.

mod servers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_device::conformance::{self, seed};
use cenote_device::mem::MemMetaDir;
use cenote_device::object::remote::{Remote, Timeouts};
use cenote_device::object::{ClaimNotes, ObjectDevices, ObjectService, Patience};
use cenote_device::{Device, Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, Result, StoreId, TierOptions};

const SERVICES: [(&str, DeviceKind); 3] =
    [("swift", DeviceKind::Swift), ("s3", DeviceKind::S3), ("moto", DeviceKind::S3)];
const STORE: StoreId = StoreId(0x05e7_f1ce);
const ID: DeviceId = DeviceId(1);

/// A tier and the file with its credentials, which is deleted with it.
struct Tier {
    spec: DeviceSpec,
    file: PathBuf,
    service: BTreeMap<String, String>,
}

impl Tier {
    /// `None` if the service is not available.
    fn of(name: &str, kind: DeviceKind, test: &str) -> Option<Self> {
        let service = servers::service(name)?;
        let file = std::env::temp_dir().join(format!("cenote-secrets-{}-{name}-{test}", std::process::id()));
        let mut options = TierOptions::default();
        options.set("endpoint", &service["endpoint"]);
        options.set("credentials", &format!("{}#cold", file.display()));
        options.set("pack", "1MiB");
        let spec = DeviceSpec {
            name: format!("cold-{name}"),
            kind,
            path: format!("bucket/{test}/it").into(),
            capacity_bytes: 20 << 20,
            watermark_high_permille: 900,
            watermark_low_permille: 800,
            options,
        };
        let tier = Self { spec, file, service };
        tier.write_secrets("");
        Some(tier)
    }
    /// Writes the right secrets, each with `behind` appended.
    fn write_secrets(&self, behind: &str) {
        let mut text = "[cold]\n".to_owned();
        for (name, value) in self.service.iter().filter(|(name, _)| *name != "endpoint") {
            let behind = if name.contains("key") && !name.ends_with("_id") { behind } else { "" };
            text.extend([name, " = ", value, behind, "\n"]);
        }
        std::fs::write(&self.file, text).unwrap();
    }
    fn remote(&self) -> Remote {
        Remote::new(&self.spec).unwrap()
    }
}

impl Drop for Tier {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

fn each(test: &str, run: impl Fn(&Tier)) {
    for (name, kind) in SERVICES {
        if let Some(tier) = Tier::of(name, kind, test) {
            eprintln!("{test} on {name}");
            run(&tier);
        }
    }
}

fn open(spec: &DeviceSpec, create: bool) -> Result<std::sync::Arc<dyn Device>> {
    SystemDevices::default().open(STORE, ID, spec, create).map(|opened| opened.device)
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut bytes).map(|()| bytes)
}

#[test]
fn a_service_keeps_objects() {
    each("objects", |tier| {
        let remote = tier.remote();
        let parts = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        remote.put("objects/a/x-1", &parts, true).unwrap();
        assert_eq!(remote.put("objects/a/x-1", &parts, true).unwrap_err().kind, ErrorKind::Exists);
        remote.put("objects/a/x-1", &parts[1..], false).unwrap();
        remote.put("objects/a/b/x-2", &parts, true).unwrap();
        remote.put("objects/ab", &parts, true).unwrap();
        assert_eq!(&remote.get("objects/a/b/x-2", 2, 3).unwrap()[..], b"e t");
        assert_eq!(&remote.get("objects/a/b/x-2", 4, 100).unwrap()[..], b"two", "what there is");
        assert_eq!(&remote.get("objects/a/b/x-2", 7, 1).unwrap()[..], b"", "nothing behind the end");
        assert_eq!(remote.get("objects/none", 0, 1).unwrap_err().kind, ErrorKind::NotFound);
        let mut found = remote.list("objects/a/").unwrap();
        found.sort();
        assert_eq!(found, [("objects/a/b/x-2".to_owned(), 7), ("objects/a/x-1".to_owned(), 3)]);
        assert_eq!(remote.list("nobody/").unwrap(), []);
        for key in ["objects/a/x-1", "objects/a/b/x-2", "objects/ab", "objects/none"] {
            remote.delete(key).unwrap();
        }
        assert_eq!(remote.list("objects/").unwrap(), []);
    });
}

#[test]
fn long_lists_are_whole() {
    each("lists", |tier| {
        let remote = tier.remote();
        // S3 lists 1,000 at a time, Swift 10,000.
        let prefix = format!("lists-{}/", tier.spec.name);
        let count = if tier.spec.kind == DeviceKind::S3 { 1_100 } else { 100 };
        std::thread::scope(|scope| {
            for lane in 0..4 {
                let (remote, prefix) = (&remote, &prefix);
                scope.spawn(move || {
                    for i in (lane..count).step_by(4) {
                        remote.put(&format!("{prefix}x-{i:020}"), &[Bytes::from_static(b"x")], true).unwrap();
                    }
                });
            }
        });
        let mut keys: Vec<_> = remote.list(&prefix).unwrap().into_iter().map(|(key, _)| key).collect();
        keys.sort();
        assert!(keys.into_iter().eq((0..count).map(|i| format!("{prefix}x-{i:020}"))));
    });
}

#[test]
fn suite() {
    each("suite", |tier| {
        conformance::devices(&SystemDevices::default(), &tier.spec, seed());
        assert_eq!(tier.remote().list("suite/").unwrap(), [], "nothing is left behind");
    });
}

#[test]
fn credentials_may_be_renewed_while_the_tier_is_open() {
    each("renewed", |tier| {
        let device = open(&tier.spec, true).unwrap();
        device.write_at(0, &[5; 10_000]).unwrap();
        device.sync().unwrap();
        tier.write_secrets("-expired");
        if let Some(cache) = tier.service.get("cache") {
            // Flushing the cache drops every token of Swift.
            let mut cache = TcpStream::connect(format!("127.0.0.1:{cache}")).unwrap();
            cache.write_all(b"flush_all\r\n").unwrap();
            cache.read_exact(&mut [0; 4]).unwrap();
            let error = read(&*device, 0, 100).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            assert!(error.next_step().contains(&tier.file.display().to_string()), "{error}");
            assert!(error.subject().contains(&tier.spec.name), "{error}");
            assert!(!error.to_string().contains("testing"), "no secrets: {error}");
        }
        let error = open(&tier.spec, false).err();
        if tier.service["endpoint"].contains("/auth/") || tier.service.get("access_key_id").unwrap() != "any" {
            assert_eq!(error.unwrap().kind(), ErrorKind::PermissionDenied);
        }
        tier.write_secrets("");
        assert_eq!(read(&*device, 0, 10_000).unwrap(), [5; 10_000], "at once, without being opened anew");
        drop(device);
        std::fs::remove_file(&tier.file).unwrap();
        let error = open(&tier.spec, false).err().unwrap();
        assert!(error.kind() == ErrorKind::PermissionDenied && error.cause().contains("No such file"), "{error}");
        tier.write_secrets("");
        SystemDevices::default().remove(STORE, ID, &tier.spec).unwrap();
    });
}

#[test]
fn buckets_that_others_write_into() {
    each("shared", |tier| {
        let remote = tier.remote();
        remote.put("shared/it/notes", &[Bytes::from_static(b"mine")], true).unwrap();
        let device = open(&tier.spec, true).unwrap();
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 253) as u8).collect();
        device.write_at(0, &content).unwrap();
        device.sync().unwrap();
        assert!(read(&*device, 0, 3_000_000).unwrap() == content);
        let other = SystemDevices::default().open(StoreId(2), ID, &tier.spec, true).err().unwrap();
        assert_eq!(other.kind(), ErrorKind::Exists, "{other}");
        let (key, _) = remote.list("shared/it/").unwrap().into_iter().find(|(key, _)| key.contains("/pack-")).unwrap();
        let good = remote.get(&key, 0, 10 << 20).unwrap();
        for (what, kind) in
            [("deleted", ErrorKind::NotFound), ("changed", ErrorKind::Corrupt), ("cut", ErrorKind::Corrupt)]
        {
            let mut bad = good.to_vec();
            match what {
                "changed" => bad[500_000] ^= 1,
                _ => bad.truncate(400_000),
            }
            if what == "deleted" {
                remote.delete(&key).unwrap();
            } else {
                remote.put(&key, &[bad.into()], false).unwrap();
            }
            let error = read(&*device, 0, 1_000_000).unwrap_err();
            assert_eq!(error.kind(), kind, "{what}: {error}");
            assert!(error.subject().contains(&key), "{what}: {error}");
            assert!(read(&*device, 2_200_000, 800_000).unwrap() == content[2_200_000..], "others are there");
            remote.put(&key, std::slice::from_ref(&good), false).unwrap();
            assert!(read(&*device, 0, 3_000_000).unwrap() == content, "{what}: put back");
        }
        drop(device);
        SystemDevices::default().remove(STORE, ID, &tier.spec).unwrap();
        assert_eq!(remote.list("shared/").unwrap(), [("shared/it/notes".to_owned(), 4)], "not ours");
        remote.delete("shared/it/notes").unwrap();
    });
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    each("nobucket", |tier| {
        let spec = DeviceSpec { path: "nobucket/p".into(), ..tier.spec.clone() };
        let error = open(&spec, true).err().unwrap();
        assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("nobucket"), "{error}");
        assert!(error.next_step().contains("`nobucket`"), "{error}");
    });
}

/// A Keystone with one user, which hands out Swift's own tokens.
fn keystone(swift: BTreeMap<String, String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v3", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            while !asked.windows(4).any(|end| end == b"}}}}") {
                let mut part = [0; 4096];
                let n = stream.read(&mut part).unwrap();
                asked.extend_from_slice(&part[..n]);
            }
            let asked = String::from_utf8(asked).unwrap();
            assert!(asked.starts_with("POST /v3/auth/tokens HTTP/1.1"), "{asked}");
            let wanted = r#""user":{"domain":{"name":"people"},"name":"ann","password":"right"}"#;
            let scope = r#""scope":{"project":{"domain":{"id":"default"},"name":"cold"}}"#;
            if !asked.contains(wanted) || !asked.contains(scope) {
                let text = "wrong";
                write!(stream, "HTTP/1.1 401 Unauthorized\r\nContent-Length: {}\r\n\r\n{text}", text.len()).unwrap();
                continue;
            }
            let granted = ureq::get(&swift["endpoint"])
                .header("X-Auth-User", &swift["user"])
                .header("X-Auth-Key", &swift["key"])
                .call()
                .unwrap();
            let header = |name: &str| granted.headers()[name].to_str().unwrap().to_owned();
            let endpoint = |region: &str, interface: &str, url: &str| serde_json::json!({ "region": region, "interface": interface, "url": url });
            let storage = header("X-Storage-Url");
            let endpoints = [
                endpoint("north", "public", "http://127.0.0.1:1/elsewhere"),
                endpoint("south", "internal", "http://127.0.0.1:1/inside"),
                endpoint("south", "public", &storage),
            ];
            let catalog =
                serde_json::json!([{ "type": "compute" }, { "type": "object-store", "endpoints": endpoints }]);
            let body = serde_json::json!({ "token": { "catalog": catalog } }).to_string();
            let token = header("X-Auth-Token");
            let head = format!("HTTP/1.1 201 Created\r\nX-Subject-Token: {token}\r\nContent-Length: {}", body.len());
            write!(stream, "{head}\r\nConnection: close\r\n\r\n{body}").unwrap();
        }
    });
    url
}

#[test]
fn swift_behind_keystone() {
    let Some(tier) = Tier::of("swift", DeviceKind::Swift, "keystone") else { return };
    let url = keystone(tier.service.clone());
    let mut spec = tier.spec.clone();
    spec.options.set("endpoint", &url);
    spec.options.set("region", "south");
    let secrets = |password: &str| {
        let text = format!(
            "[cold]\nos_username=ann\nos_password={password}\nos_project_name=cold\nos_user_domain_name=people\n"
        );
        std::fs::write(&tier.file, text).unwrap();
    };
    secrets("wrong");
    let error = open(&spec, true).err().unwrap();
    assert!(error.kind() == ErrorKind::PermissionDenied && error.cause().contains("signing in"), "{error}");
    secrets("right");
    let device = open(&spec, true).unwrap();
    device.write_at(5, b"through keystone").unwrap();
    device.sync().unwrap();
    assert_eq!(read(&*device, 5, 16).unwrap(), b"through keystone");
    drop(device);
    spec.options.set("region", "east");
    let error = open(&spec, false).err().unwrap();
    assert!(error.cause().contains("no object store in region east"), "{error}");
    spec.options.set("region", "south");
    SystemDevices::default().remove(STORE, ID, &spec).unwrap();
}

/// An answer that begins and never ends.
const STALLS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 98\r\n\r\nx";

/// Needs no server: the other end does not answer, or answers with an error, or with nonsense.
#[test]
fn services_that_do_not_answer_do_not_hang_anybody() {
    let secrets = std::env::temp_dir().join(format!("cenote-secrets-{}-none", std::process::id()));
    std::fs::write(&secrets, "[default]\naccess_key_id=a\nsecret_access_key=b\nauth_token=t\n").unwrap();
    for answer in [
        "",
        "silence",
        STALLS,
        "HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx",
        "nonsense\r\n\r\n",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                if answer != "silence" {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(answer.as_bytes());
                }
                if answer == "silence" || answer == STALLS {
                    held.push(stream);
                }
            }
        });
        for kind in [DeviceKind::S3, DeviceKind::Swift] {
            let mut spec: DeviceSpec = "name=away,kind=s3,path=b/p,size=1MiB".parse().unwrap();
            spec.kind = kind;
            spec.options.set("endpoint", &format!("http://127.0.0.1:{port}/v3"));
            spec.options.set("credentials", secrets.to_str().unwrap());
            let quick = Duration::from_millis(300);
            let devices = ObjectDevices::new(
                move |spec: &DeviceSpec| {
                    let timeouts =
                        Timeouts { connect: quick, answer: 30 * quick, answer_soon: quick, whole: 100 * quick };
                    Remote::with_timeouts(spec, timeouts)
                },
                true,
                Patience { tries: 3, pause: quick / 10, total: 10 * quick },
            );
            let begun = Instant::now();
            let error = devices.open(STORE, ID, &spec, true).err().unwrap();
            assert!(begun.elapsed() < Duration::from_secs(5), "{answer:?}: {error}");
            assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::PermissionDenied), "{answer:?}: {error}");
            assert!(error.subject().contains("`away`"), "{error}");
        }
    }
    std::fs::remove_file(&secrets).unwrap();
}

#[test]
fn options_that_are_no_good_are_refused_before_anything_is_asked() {
    for (options, cause) in [
        ("endpoint=ftp://h", "https://"),
        ("endpoint=https://user:secret@h", "password"),
        ("credentials=AKIA/secret", "absolute"),
        ("pack=1", "64.0 KiB"),
        ("pack=2GiB", "64.0 KiB"),
    ] {
        let spec: DeviceSpec = format!("name=x,kind=s3,path=b/p,size=1MiB,{options}").parse().unwrap();
        let error = open(&spec, true).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.cause().contains(cause), "{error}");
        assert!(!error.to_string().contains("secret@") && !error.to_string().contains("AKIA"), "{error}");
    }
    for path in ["/abs/olute", "b/../c", "b/a b", "b//c"] {
        let spec: DeviceSpec = format!("name=x,kind=s3,path={path},size=1MiB").parse().unwrap();
        assert_eq!(open(&spec, true).err().unwrap().kind(), ErrorKind::InvalidInput, "{path}");
    }
}

/// Of a store and a copy of its directory, one has the tier.
#[test]
fn a_copy_of_a_store_does_not_get_its_tier() {
    each("claims", |tier| {
        let noting = |meta: &MemMetaDir, dir: &str| {
            let notes = ClaimNotes::new(std::sync::Arc::new(meta.clone()), dir);
            (SystemDevices::default().noting(notes.clone()), notes)
        };
        let meta = MemMetaDir::default();
        let (first, _) = noting(&meta, "/first");
        let device = first.open(STORE, ID, &tier.spec, true).unwrap().device;
        device.write_at(0, b"first").unwrap();
        device.sync().unwrap();
        let (copy, notes) = noting(&MemMetaDir::default(), "/copy");
        let error = copy.open(STORE, ID, &tier.spec, false).err().unwrap();
        assert!(error.kind() == ErrorKind::Exists && error.to_string().contains("for /first"), "{error}");
        notes.take_over(ID).unwrap();
        let taken = copy.open(STORE, ID, &tier.spec, false).unwrap().device;
        assert_eq!(read(taken.as_ref(), 0, 5).unwrap(), b"first");
        std::thread::sleep(Duration::from_millis(5100));
        device.write_at(0, b"later").unwrap();
        assert_eq!(device.sync().unwrap_err().kind(), ErrorKind::Exists);
        taken.write_at(0, b"taken").unwrap();
        taken.sync().unwrap();
        drop((device, taken));
        assert_eq!(first.open(STORE, ID, &tier.spec, false).err().unwrap().kind(), ErrorKind::Exists);
        assert!(first.remove(STORE, ID, &tier.spec).is_err());
        copy.remove(STORE, ID, &tier.spec).unwrap();
    });
}
