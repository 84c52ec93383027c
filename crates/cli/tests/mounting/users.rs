//! Several users on one mount: each has its own rights and nobody else's.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::common::CommandOutput;
use crate::mounted::{Mounted, as_user};

const USER: u32 = 65_534;
const OTHER: u32 = 65_533;
const GROUP: u32 = 4242;

#[track_caller]
fn refused(said: &CommandOutput, words: &str) {
    assert!(said.code != 0 && said.err.contains(words), "{said:?}");
}

#[test]
fn rights_are_those_of_who_asks() {
    let Some(mounted) = Mounted::new() else { return };
    let at = |name: &str| mounted.path(name).display().to_string();
    fs::set_permissions(mounted.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(mounted.path("roots"), b"secret").unwrap();
    fs::set_permissions(mounted.path("roots"), fs::Permissions::from_mode(0o600)).unwrap();
    refused(&as_user(USER, &[], &format!("cat {}", at("roots"))), "Permission denied");
    refused(&as_user(USER, &[], &format!("echo more >> {}", at("roots"))), "Permission denied");
    refused(&as_user(USER, &[], &format!("chmod 644 {}", at("roots"))), "not permitted");
    refused(&as_user(USER, &[], &format!("chown {USER} {}", at("roots"))), "not permitted");
    refused(&as_user(USER, &[], &format!("touch -c -d 2001-01-01 {}", at("roots"))), "not permitted");

    // A user owns what it creates.
    let said = as_user(USER, &[GROUP], &format!("umask 027; echo mine > {}; mkdir {}", at("mine"), at("dir")));
    assert_eq!(said.code, 0, "{said:?}");
    let (file, dir) = (fs::metadata(mounted.path("mine")).unwrap(), fs::metadata(mounted.path("dir")).unwrap());
    assert_eq!((file.uid(), file.gid(), file.mode() & 0o7777), (USER, USER, 0o640));
    assert_eq!((dir.uid(), dir.mode() & 0o7777), (USER, 0o750));
    refused(&as_user(OTHER, &[], &format!("cat {}", at("mine"))), "Permission denied");
    refused(&as_user(OTHER, &[], &format!("ls {}", at("dir"))), "Permission denied");

    // A group suffices, also one of several.
    chown(mounted.path("mine"), None, Some(GROUP)).unwrap();
    let said = as_user(OTHER, &[7, GROUP], &format!("cat {}", at("mine")));
    assert_eq!((said.code, said.out.as_str()), (0, "mine\n"), "{said:?}");
    let said = as_user(USER, &[GROUP], &format!("chgrp {USER} {0}; chgrp {GROUP} {0}", at("mine")));
    assert_eq!(said.code, 0, "{said:?}");
    refused(&as_user(USER, &[], &format!("chgrp {OTHER} {}", at("mine"))), "not permitted");
}

#[test]
fn sticky_directories_and_set_id_bits() {
    let Some(mounted) = Mounted::new() else { return };
    let at = |name: &str| mounted.path(name).display().to_string();
    fs::create_dir(mounted.path("tmp")).unwrap();
    fs::set_permissions(mounted.path("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(as_user(USER, &[], &format!("echo 1 > {}", at("tmp/file"))).code, 0);
    refused(&as_user(OTHER, &[], &format!("rm -f {}", at("tmp/file"))), "not permitted");
    refused(&as_user(OTHER, &[], &format!("mv {} {}", at("tmp/file"), at("tmp/other"))), "not permitted");
    assert_eq!(as_user(USER, &[], &format!("mv {} {}", at("tmp/file"), at("tmp/own"))).code, 0);

    // Set-id bits are dropped when somebody else changes the file.
    for change in [
        "echo more >> FILE",
        "truncate -s 3 FILE",
        ": > FILE",
        "fallocate -l 9000 FILE",
        "fallocate -n -l 9000 FILE",
        "fallocate -p -l 4 FILE",
        "fallocate -z -l 4 FILE",
    ] {
        let file = mounted.path("program");
        fs::write(&file, b"program").unwrap();
        chown(&file, Some(USER), Some(USER)).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        let said = as_user(OTHER, &[], &change.replace("FILE", &at("program")));
        assert_eq!(said.code, 0, "{said:?}");
        // A request for the mode alone is answered from the kernel's cache.
        assert_eq!(mode_alone(&file), 0o777, "{change}");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o777, "{change}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        fs::write(&file, b"by root").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o6777);
        chown(&file, Some(OTHER), None).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o777);
        // Set-group-id without execute permission of the group grants nothing; it is dropped unless a member writes (xfstests 683
        // to 685).
        for (groups, left) in [(&[][..], 0o767), (&[GROUP][..], 0o2767)] {
            chown(&file, Some(USER), Some(GROUP)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o6767)).unwrap();
            let said = as_user(OTHER, groups, &change.replace("FILE", &at("program")));
            assert_eq!(said.code, 0, "{said:?}");
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, left, "{change}");
        }
    }
    // What is created in a set-group-id directory belongs to the group.
    fs::create_dir(mounted.path("shared")).unwrap();
    chown(mounted.path("shared"), None, Some(GROUP)).unwrap();
    fs::set_permissions(mounted.path("shared"), fs::Permissions::from_mode(0o2777)).unwrap();
    assert_eq!(as_user(USER, &[], &format!("mkdir {0}/dir; touch {0}/file", at("shared"))).code, 0);
    let dir = fs::metadata(mounted.path("shared/dir")).unwrap();
    assert_eq!((dir.gid(), dir.mode() & 0o2000), (GROUP, 0o2000));
    assert_eq!(fs::metadata(mounted.path("shared/file")).unwrap().gid(), GROUP);
}

fn mode_alone(file: &Path) -> u16 {
    let (at, mask) = (rustix::fs::CWD, rustix::fs::StatxFlags::MODE);
    rustix::fs::statx(at, file, rustix::fs::AtFlags::empty(), mask).unwrap().stx_mode & 0o7777
}

/// Capabilities are dropped by any change of a program's bytes or owner, whoever makes it; other attributes stay.
#[test]
fn capabilities_go_when_a_program_changes() {
    const NAME: &str = "security.capability";
    // Version 2, effective, of `CAP_CHOWN`.
    const VALUE: [u8; 20] = [1, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let Some(mounted) = Mounted::new() else { return };
    let file = mounted.path("program");
    let has = |name: &str| rustix::fs::getxattr(&file, name, &mut [0; 64]).is_ok();
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(&file, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    fs::write(&file, b"program").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o777)).unwrap();
    let changes =
        ["echo more >> FILE", "truncate -s 3 FILE", ": > FILE", "fallocate -l 9000 FILE", "fallocate -p -l 4 FILE"];
    for user in [0, OTHER] {
        for change in changes {
            set(NAME, &VALUE);
            set("trusted.note", b"stays");
            let said = as_user(user, &[], &change.replace("FILE", &file.display().to_string()));
            assert_eq!(said.code, 0, "{said:?}");
            assert!(!has(NAME) && has("trusted.note"), "{change} by {user}");
        }
    }
    set(NAME, &VALUE);
    fs::read(&file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(has(NAME));
    chown(&file, Some(USER), None).unwrap();
    assert!(!has(NAME));
    // While somebody has it open for writing.
    let open = fs::File::options().write(true).open(&file).unwrap();
    for byte in *b"ab" {
        set(NAME, &VALUE);
        std::os::unix::fs::FileExt::write_all_at(&open, &[byte], 0).unwrap();
        assert!(!has(NAME));
    }
}

#[test]
fn without_allow_other_nobody_else_comes_in() {
    let Some(mounted) = Mounted::with(&[]) else { return };
    fs::write(mounted.path("file"), b"mine").unwrap();
    fs::set_permissions(mounted.path("file"), fs::Permissions::from_mode(0o777)).unwrap();
    refused(&as_user(USER, &[], &format!("cat {}", mounted.path("file").display())), "Permission denied");
    refused(&as_user(USER, &[], &format!("ls {}", mounted.dir.display())), "Permission denied");
}

/// In a separate mount namespace, with a device that users may open.
#[test]
fn a_user_mounts_by_the_helper() {
    let Some(mounted) = Mounted::new() else { return };
    for needed in ["fusermount3", "unshare", "setpriv"] {
        if std::process::Command::new(needed).arg("--version").output().is_err() {
            println!("skipped: no {needed} here");
            return;
        }
    }
    let place = mounted.place.path("users");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&mounted.place.dir, fs::Permissions::from_mode(0o755)).unwrap();
    let as_root = format!(
        "mknod {0}/fuse c 10 229 && chmod 666 {0}/fuse && mount --bind {0}/fuse /dev/fuse && \
         exec setpriv --reuid {USER} --regid {USER} --clear-groups sh -ec \"$STEPS\"",
        mounted.place.dir.display()
    );
    let steps = "
        cd $PLACE; mkdir mnt
        $CENOTE_BIN init store --tier name=memory,kind=memory,size=64MiB --tier name=disk,kind=directory,path=$PLACE/disk,size=128MiB
        for options in '' '--write-back' '--read-only'; do
            $CENOTE_BIN mount store mnt $options
            if [ \"$options\" != --read-only ]; then
                mkdir -p mnt/runs; seq 10000 > mnt/runs/numbers; echo more >> mnt/runs/numbers
                flock mnt/runs/numbers true
            fi
            tail -n 1 mnt/runs/numbers; wc -l < mnt/runs/numbers; stat -c %u:%a mnt/runs/numbers
            $CENOTE_BIN unmount mnt
            test ! -e mnt/runs
        done
        $CENOTE_BIN mount store mnt --allow-other 2>&1 || true
        $CENOTE_BIN -s store destroy --yes > /dev/null
        echo end";
    let mut command = std::process::Command::new("unshare");
    command.args(["-m", "sh", "-c", &as_root]).env("STEPS", steps).env("PLACE", &place).env("HOME", &place);
    command.env("CENOTE_BIN", env!("CARGO_BIN_EXE_cenote")).stdin(std::process::Stdio::null());
    let said = crate::common::said(&mut command);
    if said.err.contains("unshare failed") || said.err.contains("mknod") {
        println!("skipped: {}", said.err);
        return;
    }
    let each = "more\n10001\n65534:644\n";
    assert!(said.code == 0 && said.out.matches(each).count() == 3, "{said:?}");
    // Without permission in /etc/fuse.conf it fails, and the error names that file.
    assert!(said.out.contains("user_allow_other") && said.out.ends_with("end\n"), "{said:?}");
}
