//! Two mounts of a store: one sees the other's changes according to the consistency of the directory.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::mounted::{Mounted, errno, pattern};

fn two() -> Option<(Mounted, PathBuf)> {
    let mut mounted = Mounted::new()?;
    let second = mounted.place.path("second");
    mounted.mount(&second, &["--allow-other"]);
    let runs = second.join("runs");
    Some((mounted, runs))
}

#[test]
fn strict_directories_are_seen_at_once() {
    let Some((mounted, there)) = two() else { return };
    let here = mounted.path("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&here).unwrap();
    let other = {
        assert_eq!(fs::metadata(there.join("file")).unwrap().len(), 0);
        OpenOptions::new().read(true).write(true).open(there.join("file")).unwrap()
    };
    let mut got = vec![0; 5000];
    for round in 0..200_u64 {
        let bytes = pattern(round, 5000);
        let (from, to) = if round % 2 == 0 { (&file, &other) } else { (&other, &file) };
        // Overwritten: size and names stay. Then beyond the end.
        from.write_all_at(&bytes, 100).unwrap();
        to.read_exact_at(&mut got, 100).unwrap();
        assert!(got == bytes, "round {round}");
        from.write_all_at(&[7], 6000 + round).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 6001 + round);
        let (from, to) =
            if round % 2 == 0 { (mounted.path(""), there.clone()) } else { (there.clone(), mounted.path("")) };
        fs::rename(from.join("file"), from.join("moved")).unwrap();
        assert_eq!(errno(fs::metadata(to.join("file"))), libc::ENOENT);
        assert_eq!(fs::metadata(to.join("moved")).unwrap().len(), 6001 + round);
        fs::rename(to.join("moved"), to.join("file")).unwrap();
        fs::write(to.join("next"), round.to_string()).unwrap();
        assert_eq!(fs::read_to_string(from.join("next")).unwrap(), round.to_string());
        fs::remove_file(from.join("next")).unwrap();
        assert!(!to.join("next").exists());
    }
    // A file removed on the other side stays for those who have it open.
    fs::remove_file(there.join("file")).unwrap();
    file.read_exact_at(&mut got, 100).unwrap();
    assert!(got == pattern(199, 5000));
}

/// A mount that has the store for itself lets the kernel cache; that cache is invalid when another client comes.
#[test]
fn what_was_remembered_alone_counts_no_more_in_company() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.path("dir")).unwrap();
    for number in 0..200 {
        fs::write(mounted.path(&format!("dir/file-{number}")), b"short").unwrap();
        assert!(!mounted.path(&format!("dir/none-{number}")).exists());
        assert_eq!(fs::metadata(mounted.path(&format!("dir/file-{number}"))).unwrap().len(), 5);
    }
    let open = File::open(mounted.path("dir/file-0")).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 5);
    std::env::set_current_dir(mounted.path("dir")).unwrap();
    let second = mounted.place.path("second");
    mounted.mount(&second, &["--allow-other"]);
    let there = second.join("runs/dir");
    for number in 0..200 {
        fs::write(there.join(format!("file-{number}")), b"longer than before").unwrap();
        fs::write(there.join(format!("none-{number}")), b"here").unwrap();
    }
    fs::remove_file(there.join("file-1")).unwrap();
    fs::rename(there.join("file-2"), there.join("file-3")).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 18);
    assert_eq!(std::env::current_dir().unwrap(), mounted.path("dir"));
    assert_eq!(fs::metadata("file-4").unwrap().len(), 18);
    std::env::set_current_dir("/").unwrap();
    for number in 4..200 {
        assert_eq!(fs::metadata(mounted.path(&format!("dir/file-{number}"))).unwrap().len(), 18);
        assert_eq!(fs::read(mounted.path(&format!("dir/none-{number}"))).unwrap(), b"here");
    }
    for gone in ["dir/file-1", "dir/file-2"] {
        assert_eq!(errno(fs::metadata(mounted.path(gone))), libc::ENOENT);
    }
    assert_eq!(fs::read_dir(mounted.path("dir")).unwrap().count(), 398);
}

#[test]
fn only_one_of_many_makes_a_file() {
    let Some((mounted, there)) = two() else { return };
    for round in 0..50 {
        let name = format!("lock-{round}");
        let makers: Vec<_> = (0..6)
            .map(|maker| {
                let path = if maker % 2 == 0 { mounted.path(&name) } else { there.join(&name) };
                std::thread::spawn(move || File::create_new(path).is_ok())
            })
            .collect();
        let made = makers.into_iter().map(|maker| maker.join().unwrap()).filter(|made| *made).count();
        assert_eq!(made, 1, "{name}");
    }
    assert_eq!(fs::read_dir(&there).unwrap().count(), 50);
}

#[test]
fn commit_directories_are_seen_when_files_are_closed() {
    let Some((mounted, there)) = two() else { return };
    let (here, there) = (mounted.path("dumps"), there.join("dumps"));
    fs::create_dir(&here).unwrap();
    rustix::fs::setxattr(&here, "user.cenote.consistency", b"commit", rustix::fs::XattrFlags::empty()).unwrap();
    let mut file = File::create(here.join("dump")).unwrap();
    file.write_all(&pattern(5, 100_000)).unwrap();
    assert_eq!(fs::metadata(here.join("dump")).unwrap().len(), 100_000);
    drop(file);
    assert!(fs::read(there.join("dump")).unwrap() == pattern(5, 100_000));
    // Again, with what the other side has cached already.
    for round in 6..30 {
        let len = 1000 * round as usize;
        fs::write(here.join("dump"), pattern(round, len)).unwrap();
        let mut open = File::open(there.join("dump")).unwrap();
        let mut got = Vec::new();
        std::io::Read::read_to_end(&mut open, &mut got).unwrap();
        assert!(got == pattern(round, len), "round {round}");
    }
}

#[test]
fn laminated_directories_change_no_more() {
    let Some((mounted, there)) = two() else { return };
    let dir = mounted.path("done");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("result"), pattern(8, 200_000)).unwrap();
    let set = |value: &[u8]| {
        rustix::fs::setxattr(&dir, "user.cenote.consistency", value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    set(b"laminated");
    for dir in [&dir, &there.join("done")] {
        assert!(fs::read(dir.join("result")).unwrap() == pattern(8, 200_000));
        assert_eq!(errno(fs::write(dir.join("result"), b"x")), libc::EROFS);
        assert_eq!(errno(File::create(dir.join("more"))), libc::EROFS);
        assert_eq!(errno(fs::remove_file(dir.join("result"))), libc::EROFS);
        assert_eq!(errno(fs::rename(dir.join("result"), dir.join("other"))), libc::EROFS);
        assert_eq!(fs::metadata(dir.join("result")).unwrap().nlink(), 1);
    }
}

/// What the kernel holds back is visible elsewhere after `fsync` and `close`, including appends, mapped writes and
/// truncation.
#[test]
fn what_is_written_back_is_seen_when_files_are_closed() {
    let Some(mut mounted) = Mounted::with(&["--allow-other", "--write-back"]) else { return };
    let second = mounted.place.path("second");
    mounted.mount(&second, &["--allow-other"]);
    let there = second.join("runs/file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(mounted.path("file")).unwrap();
    for round in 0..20_u64 {
        let bytes = pattern(round, 70_000 + 1000 * round as usize);
        for (number, part) in bytes.chunks(777).enumerate() {
            file.write_all_at(part, number as u64 * 777).unwrap();
        }
        file.sync_all().unwrap();
        assert!(fs::read(&there).unwrap() == bytes, "round {round}");
        assert_eq!(fs::metadata(&there).unwrap().len(), file.metadata().unwrap().len());
    }
    file.set_len(10).unwrap();
    let mut appending = OpenOptions::new().append(true).open(mounted.path("file")).unwrap();
    appending.write_all(b"appended").unwrap();
    appending.write_all(b" twice").unwrap();
    drop(appending);
    assert_eq!(fs::read(&there).unwrap()[10..], *b"appended twice");
    // By programs that know nothing of this.
    let line = format!(
        "set -e; cd {}; seq 1000 > numbers; mv numbers moved; sort -rn moved > sorted",
        mounted.path("").display()
    );
    assert!(std::process::Command::new("sh").args(["-c", &line]).status().unwrap().success());
    assert!(fs::read_to_string(second.join("runs/sorted")).unwrap().starts_with("1000\n999\n"));
    assert_eq!(fs::read(second.join("runs/moved")).unwrap().len(), 3893);
}
