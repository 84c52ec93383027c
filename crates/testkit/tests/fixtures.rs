//! Stores written by earlier versions are readable; stores of later versions are refused and left unchanged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use cenote_model::ErrorKind;
use cenote_testkit::fixture::{self, Fixture};

struct Unpacked(PathBuf);

impl Unpacked {
    fn new(file: &Path, purpose: &str) -> Self {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let dir = std::env::temp_dir().join(format!("cenote-{purpose}-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let done = Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(&dir).status().unwrap();
        assert!(done.success());
        Self(dir)
    }
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut open = vec![self.0.clone()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                // Shared memory belongs to the process, not to the store.
                if path.is_dir() && !path.ends_with("memory") {
                    open.push(path);
                } else if path.is_file() {
                    let bytes = std::fs::read(&path).unwrap();
                    found.insert(path, bytes);
                }
            }
        }
        found
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fixtures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn stores_of_every_version_so_far_are_read() {
    for file in fixtures() {
        assert!(std::fs::metadata(&file).unwrap().len() < 512 << 10, "{} is too large to keep", file.display());
        let unpacked = Unpacked::new(&file, "old");
        fixture::check(&unpacked.0).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
    }
}

#[test]
fn what_the_present_version_writes_is_what_is_looked_for() {
    let dir = Unpacked(std::env::temp_dir().join(format!("cenote-fresh-{}", std::process::id())));
    std::fs::create_dir_all(&dir.0).unwrap();
    fixture::make(&dir.0).unwrap();
    std::fs::remove_dir_all(dir.0.join("memory")).unwrap();
    fixture::check(&dir.0).unwrap();
}

/// For each file with a version in it: the version raised, with a valid checksum.
#[test]
fn later_versions_are_refused_and_nothing_is_changed() {
    let file = fixtures().pop().unwrap();
    for (part, at_12) in [("superblock", true), ("checkpoint-", true), ("journal-", true), ("file", false)] {
        let unpacked = Unpacked::new(&file, "later");
        let files = unpacked.files();
        let name = |path: &&PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(part);
        let path = files.keys().rfind(name).unwrap_or_else(|| panic!("no {part}"));
        let mut bytes = files[path].clone();
        bytes[8] = u8::MAX; // one more may be a known version
        let (sum_at, head) = if at_12 {
            (
                12,
                if part == "superblock" {
                    bytes.len()
                } else if part == "journal-" {
                    512
                } else {
                    64
                },
            )
        } else {
            (124, 124)
        };
        if at_12 {
            bytes[12..16].fill(0);
        }
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes[..head]) as u32;
        bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(path, &bytes).unwrap();
        let before = unpacked.files();
        match Fixture::open(&unpacked.0) {
            Err(error) => assert_eq!(error.kind(), ErrorKind::VersionMismatch, "{part}: {error}"),
            // A tier that cannot be opened is failed, not fatal.
            Ok((_, report)) => {
                assert!(!at_12, "{part} was not refused");
                assert!(report.failed_devices.iter().any(|(_, why)| why.contains("version")), "{report:?}");
                continue;
            }
        }
        assert!(unpacked.files() == before, "{part}: something was changed");
    }
}
