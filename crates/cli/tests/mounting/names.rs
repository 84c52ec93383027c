//! Names: creation, lookup, lists, rename, links, and what the kernel reports.
#![allow(unsafe_code, reason = "system calls that std has no way to")]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;

use rustix::fs::{AtFlags, RenameFlags, Timestamps, XattrFlags};

use crate::mounted::{Mounted, c, checked, errno};

#[test]
fn containers_are_the_directories_at_the_top() {
    let Some(mounted) = Mounted::new() else { return };
    assert!(mounted.dir.join("runs").is_dir());
    fs::create_dir(mounted.dir.join("results")).unwrap();
    assert!(mounted.place.ok(["ls"]).contains("results"));
    assert_eq!(errno(File::create(mounted.dir.join("file"))), libc::EPERM);
    fs::write(mounted.path("a"), b"1").unwrap();
    assert_eq!(errno(fs::rename(mounted.path("a"), mounted.dir.join("results/a"))), libc::EXDEV);
    assert_eq!(errno(fs::remove_dir(mounted.dir.join("runs"))), libc::ENOTEMPTY);
    fs::rename(mounted.dir.join("results"), mounted.dir.join("old")).unwrap();
    fs::remove_dir(mounted.dir.join("old")).unwrap();
    assert!(!mounted.place.ok(["ls"]).contains("old"));
    let mount = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mount.lines().find(|line| line.contains(mounted.dir.to_str().unwrap())).unwrap();
    assert!(line.starts_with("cenote:") && line.contains(" fuse.cenote "), "{line}");
}

#[test]
fn one_container_can_be_the_whole_mount() {
    let Some(mut mounted) = Mounted::new() else { return };
    let dir = mounted.place.path("one");
    mounted.mount(&dir, &["--container", "fresh"]);
    fs::write(dir.join("a"), b"alone").unwrap();
    assert_eq!(fs::read(mounted.dir.join("fresh/a")).unwrap(), b"alone");
    let names: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(fs::metadata(&dir).unwrap().ino(), 1);
}

#[test]
fn everything_that_has_a_name_can_be_made() {
    let Some(mounted) = Mounted::new() else { return };
    fs::DirBuilder::new().mode(0o750).create(mounted.path("dir")).unwrap();
    assert_eq!(fs::metadata(mounted.path("dir")).unwrap().mode() & 0o7777, 0o750);
    symlink("dir/file", mounted.path("link")).unwrap();
    fs::write(mounted.path("link"), b"through a link").unwrap();
    assert_eq!(fs::read(mounted.path("dir/file")).unwrap(), b"through a link");
    assert_eq!(fs::read_link(mounted.path("link")).unwrap(), OsStr::new("dir/file"));
    fs::hard_link(mounted.path("dir/file"), mounted.path("second")).unwrap();
    let (one, two) = (fs::metadata(mounted.path("dir/file")).unwrap(), fs::metadata(mounted.path("second")).unwrap());
    assert_eq!((one.ino(), one.nlink()), (two.ino(), 2));
    // The kernel implements a pipe, between two programs that open its name.
    let pipe = mounted.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
        text
    });
    OpenOptions::new().write(true).open(mounted.path("pipe")).unwrap().write_all(b"down the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "down the pipe");
    let socket = std::os::unix::net::UnixListener::bind(mounted.path("socket"));
    assert!(socket.is_ok(), "{socket:?}");
    // SAFETY: the path is a string with a NUL.
    checked(
        unsafe { libc::mknod(c(&mounted.path("null")).as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(1, 3)) }.into(),
    )
    .unwrap();
    let device = fs::metadata(mounted.path("null")).unwrap();
    assert!(device.file_type().is_char_device());
    assert_eq!(device.rdev(), libc::makedev(1, 3));
}

#[test]
fn renames_replace_keep_and_exchange() {
    let Some(mounted) = Mounted::new() else { return };
    let (a, b) = (mounted.path("a"), mounted.path("b"));
    fs::write(&a, b"a").unwrap();
    fs::write(&b, b"b").unwrap();
    let rename = |flags| {
        rustix::fs::renameat_with(rustix::fs::CWD, &a, rustix::fs::CWD, &b, flags)
            .map_err(rustix::io::Errno::raw_os_error)
    };
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(libc::EEXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(&a).unwrap(), fs::read(&b).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(&b).unwrap(), b"b");
    assert_eq!(errno(File::open(&a)), libc::ENOENT);
    fs::create_dir(mounted.path("dir")).unwrap();
    assert_eq!(errno(fs::rename(mounted.path("dir"), mounted.path("dir/below"))), libc::EINVAL);
    assert_eq!(errno(fs::rename(mounted.path("dir"), &b)), libc::ENOTDIR);
    assert_eq!(errno(fs::rename(&b, mounted.path("dir"))), libc::EISDIR);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("short");
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(&path).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.nlink(), meta.len()), (0, 10));
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    file.set_len(5).unwrap();
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still");
    assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
}

#[test]
fn a_directory_that_was_removed_can_be_asked_for_while_it_is_open() {
    let Some(mounted) = Mounted::new() else { return };
    let (path, other) = (mounted.path("short"), mounted.path("other"));
    for is_renamed_over in [false, true] {
        fs::create_dir(&path).unwrap();
        let dir = File::open(&path).unwrap();
        if is_renamed_over {
            fs::create_dir(&other).unwrap();
            fs::rename(&other, &path).unwrap();
            assert_eq!(errno(fs::metadata(&other)), libc::ENOENT);
            assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
        } else {
            fs::remove_dir(&path).unwrap();
            assert_eq!(errno(fs::metadata(&path)), libc::ENOENT);
        }
        let meta = dir.metadata().unwrap();
        assert!(meta.is_dir() && meta.nlink() == 0, "{meta:?}");
        let made = rustix::fs::mkdirat(&dir, "in", rustix::fs::Mode::RWXU);
        assert_eq!(made, Err(rustix::io::Errno::NOENT));
        assert_eq!(rustix::fs::statat(&dir, "in", AtFlags::empty()).err(), Some(rustix::io::Errno::NOENT));
    }
}

#[test]
fn directories_are_read_whole_while_they_change() {
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.path("many");
    fs::create_dir(&dir).unwrap();
    for number in 0..3000 {
        File::create(dir.join(format!("file-{number:05}"))).unwrap();
    }
    let (mut seen, mut read) = (BTreeSet::new(), fs::read_dir(&dir).unwrap());
    for count in 0.. {
        let Some(entry) = read.next() else { break };
        assert!(seen.insert(entry.unwrap().file_name()), "twice");
        if count == 1000 {
            // What exists all the time is listed once, whatever appears and disappears meanwhile.
            for number in (0..3000).step_by(3) {
                fs::remove_file(dir.join(format!("file-{number:05}"))).unwrap();
                File::create(dir.join(format!("new-{number:05}"))).unwrap();
            }
        }
    }
    for number in (0..3000).filter(|number| number % 3 != 0) {
        assert!(seen.contains(OsStr::new(&format!("file-{number:05}"))), "{number}");
    }
    // `rm -r` alternates reads and removals; `ls -l` asks for all attributes.
    let listed = Command::new("ls").arg("-l").arg(&dir).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap().lines().count(), 3001);
    assert!(Command::new("rm").arg("-r").arg(&dir).status().unwrap().success());
    assert!(!dir.exists());
}

#[test]
fn names_are_bytes_of_some_length() {
    let Some(mounted) = Mounted::new() else { return };
    let odd = mounted.path("").join(OsStr::from_bytes(b"\xff\n\x01 \\"));
    fs::write(&odd, b"odd").unwrap();
    assert_eq!(fs::read(&odd).unwrap(), b"odd");
    File::create(mounted.path(&"n".repeat(255))).unwrap();
    assert_eq!(errno(File::create(mounted.path(&"n".repeat(256)))), libc::ENAMETOOLONG);
    symlink("loop", mounted.path("loop")).unwrap();
    assert_eq!(errno(File::open(mounted.path("loop"))), libc::ELOOP);
    assert_eq!(errno(File::open(mounted.path("none/at/all"))), libc::ENOENT);
    File::create(mounted.path("file")).unwrap();
    assert_eq!(errno(File::open(mounted.path("file/below"))), libc::ENOTDIR);
}

#[test]
fn times_are_kept_to_the_nanosecond_before_1970_too() {
    let Some(mounted) = Mounted::new() else { return };
    let before = std::time::SystemTime::now() - std::time::Duration::from_secs(1);
    fs::write(mounted.path("born"), b"x").unwrap();
    let born = fs::metadata(mounted.path("born")).unwrap().created().unwrap();
    assert!(born >= before && born <= std::time::SystemTime::now(), "{born:?}");
    let path = mounted.path("old");
    File::create(&path).unwrap();
    for (seconds, nanoseconds) in [(-2, 800_000_000), (-1, 0), (0, 1), (4_000_000_000, 999_999_999)] {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, AtFlags::empty()).unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (seconds, nanoseconds));
        assert_eq!((meta.atime(), meta.atime_nsec()), (seconds, nanoseconds));
    }
}

#[test]
fn extended_attributes_are_kept_and_those_of_views_are_not_shown() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("file");
    File::create(&path).unwrap();
    rustix::fs::setxattr(&path, "user.note", b"value", XattrFlags::CREATE).unwrap();
    rustix::fs::setxattr(&path, "trusted.note", b"roots", XattrFlags::empty()).unwrap();
    let again = rustix::fs::setxattr(&path, "user.note", b"", XattrFlags::CREATE);
    assert_eq!(again.unwrap_err().raw_os_error(), libc::EEXIST);
    let mut value = [0; 64];
    assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut value).unwrap(), 5);
    assert_eq!(&value[..5], b"value");
    let short = rustix::fs::getxattr(&path, "user.note", &mut value[..3]);
    assert_eq!(short.unwrap_err().raw_os_error(), libc::ERANGE);
    let mut names = [0; 256];
    let len = rustix::fs::listxattr(&path, &mut names).unwrap();
    let names: BTreeSet<_> = names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, BTreeSet::from([&b"user.note"[..], b"trusted.note"]));
    assert!(rustix::fs::setxattr(&path, "cenote.note", b"", XattrFlags::empty()).is_err());
    rustix::fs::removexattr(&path, "user.note").unwrap();
    let gone = rustix::fs::getxattr(&path, "user.note", &mut value);
    assert_eq!(gone.unwrap_err().raw_os_error(), libc::ENODATA);
}

#[test]
fn unnamed_files_get_a_name_when_they_are_whole() {
    let Some(mounted) = Mounted::new() else { return };
    let unnamed = |more| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o640).custom_flags(libc::O_TMPFILE | more);
        options.open(mounted.path("")).unwrap()
    };
    let link = |file: &File, name: &str| {
        let from = c(std::path::Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
        let to = c(&mounted.path(name));
        // SAFETY: both are strings with a NUL.
        let result = unsafe {
            libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
        };
        checked(result.into())
    };
    let mut file = unnamed(0);
    file.write_all(b"whole").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
    link(&file, "named").unwrap();
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"whole");
    file.write_all(b", and more").unwrap();
    let meta = fs::metadata(mounted.path("named")).unwrap();
    assert_eq!((meta.len(), meta.nlink(), meta.mode() & 0o7777), (15, 1, 0o640));
    // Once it has a name it is a file like any other.
    link(&file, "second").unwrap();
    assert_eq!(fs::metadata(mounted.path("named")).unwrap().nlink(), 2);
    assert_eq!(errno(link(&unnamed(0), "named")), libc::EEXIST);
    assert_eq!(errno(link(&unnamed(libc::O_EXCL), "never")), libc::ENOENT);
    drop(file);
    assert_eq!(fs::read(mounted.path("second")).unwrap(), b"whole, and more");
    assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 2);
}

#[test]
fn what_does_not_work_says_so() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("file")).unwrap();
    let mut flags: libc::c_int = 0;
    // SAFETY: the call writes one number.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut flags) };
    assert_eq!(errno(checked(result.into())), libc::ENOTTY);
    let space = rustix::fs::statvfs(&mounted.dir).unwrap();
    assert!(space.f_blocks * space.f_frsize >= 256 << 20);
    assert!(space.f_bfree <= space.f_blocks && space.f_bfree > 0 && space.f_namemax == 255);
}
