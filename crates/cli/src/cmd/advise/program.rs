//! The program to watch: its path, and whether a library can be preloaded into it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind, Result};

/// Maximum depth of scripts that interpret scripts.
const SCRIPTS_MOST: usize = 4;

/// Finds a program as a shell would, and checks that it can be watched.
pub fn find(name: &OsStr) -> Result<PathBuf> {
    let path = in_path(name).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("program `{}`", name.display()))
            .because(if name.as_bytes().contains(&b'/') {
                "it does not exist"
            } else {
                "it is in no directory of PATH"
            })
            .try_next("give its path")
    })?;
    check(&path, SCRIPTS_MOST)?;
    Ok(path)
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&dirs).map(|dir| dir.join(name)).find(|path| is_program(path))
}

fn unwatchable(path: &Path, cause: &str, next: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("watching {}", path.display())).because(cause).try_next(next)
}

/// Checks that a library can be preloaded into it.
fn check(path: &Path, scripts_left: usize) -> Result<()> {
    let subject = || format!("program {}", path.display());
    let file = File::open(path).map_err(|error| {
        Error::io(subject(), &error).try_next("it must be readable, to see whether it can be watched")
    })?;
    let found = file.metadata().map_err(|error| Error::io(subject(), &error))?;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let (sets_user, sets_group) = (found.mode() & 0o4000 != 0, found.mode() & 0o2000 != 0);
    if (sets_user && found.uid() != own.0) || (sets_group && found.gid() != own.1) || has_capabilities(path) {
        return Err(unwatchable(
            path,
            "it runs with other rights than its caller's (setuid, setgid or capabilities), and the system preloads nothing into such programs",
            "run it as the user whose rights it takes, or watch the program that it starts",
        ));
    }
    let mut head = Vec::new();
    (&file).take(256).read_to_end(&mut head).map_err(|error| Error::io(subject(), &error))?;
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let interpreter = words.next().unwrap_or_default();
        if scripts_left > 0 && !interpreter.is_empty() {
            check(Path::new(OsStr::from_bytes(interpreter)), scripts_left - 1)?;
            // As in `#!/usr/bin/env python3`.
            if interpreter.ends_with(b"/env")
                && let Some(found) = words.next().and_then(|name| in_path(OsStr::from_bytes(name)))
            {
                check(&found, scripts_left - 1)?;
            }
        }
        return Ok(());
    }
    match linkage(&file, &head) {
        Some(Linkage::Static) => Err(unwatchable(
            path,
            "it is linked statically, so that nothing can be preloaded into it",
            "link it dynamically for this run",
        )),
        Some(Linkage::Foreign(why)) => Err(unwatchable(path, &why, "use a build for this machine's GNU C library")),
        // What is neither script nor ELF is left to the system or a shell to judge.
        Some(Linkage::Dynamic) | None => Ok(()),
    }
}

/// Returns true if the file gives its processes capabilities.
fn has_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value).is_ok_and(|len| len > 0)
        && !rustix::process::geteuid().is_root()
}

#[derive(PartialEq, Eq, Debug)]
enum Linkage {
    Dynamic,
    Static,
    Foreign(String),
}

/// Returns how an ELF file is linked; `None`: not an ELF file.
fn linkage(file: &File, head: &[u8]) -> Option<Linkage> {
    const CLASS_64: u8 = 2;
    const LITTLE: u8 = 1;
    const INTERPRETER: u32 = 3;
    if head.len() < 64 || !head.starts_with(b"\x7fELF") {
        return None;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if (head[4], head[5], half(18)) != (CLASS_64, LITTLE, if cfg!(target_arch = "x86_64") { 62 } else { 183 }) {
        return Some(Linkage::Foreign("it is a program for another kind of processor than this command".into()));
    }
    let table = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let (entry_bytes, entries) = (u64::from(half(54)), u64::from(half(56)));
    for at in 0..entries {
        let mut entry = [0u8; 56];
        if entry_bytes < 56 || file.read_exact_at(&mut entry, table.checked_add(at * entry_bytes)?).is_err() {
            return None;
        }
        if u32::from_le_bytes(entry[..4].try_into().ok()?) == INTERPRETER {
            let from = u64::from_le_bytes(entry[8..16].try_into().ok()?);
            let bytes = u64::from_le_bytes(entry[32..40].try_into().ok()?).min(256);
            let mut name = vec![0; bytes as usize];
            file.read_exact_at(&mut name, from).ok()?;
            let name = String::from_utf8_lossy(&name).into_owned();
            return Some(if name.contains("musl") {
                Linkage::Foreign(format!("it uses another C library ({})", name.trim_end_matches('\0')))
            } else {
                Linkage::Dynamic
            });
        }
    }
    Some(Linkage::Static)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_judged() {
        assert!(find(OsStr::new("sh")).unwrap().is_absolute());
        assert_eq!(find(OsStr::new("no-such-program-here")).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(find(OsStr::new("/no/such")).unwrap_err().kind(), ErrorKind::NotFound);
        let dir = std::env::temp_dir().join(format!("cenote-advise-programs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let judged = |bytes: &[u8]| {
            let path = dir.join("program");
            std::fs::write(&path, bytes).unwrap();
            check(&path, SCRIPTS_MOST)
        };
        let sh = std::fs::read("/bin/sh").unwrap();
        assert!(judged(&sh).is_ok());
        // The same without its interpreter.
        let mut bare = sh.clone();
        let table = u64::from_le_bytes(bare[32..40].try_into().unwrap()) as usize;
        for entry in 0..usize::from(bare[56]) {
            let at = table + entry * 56;
            if bare[at] == 3 {
                bare[at] = 0;
            }
        }
        let error = judged(&bare).unwrap_err();
        assert!(error.cause().contains("statically"), "{error}");
        bare[18] = 8;
        assert!(judged(&bare).unwrap_err().cause().contains("processor"));
        assert!(judged(b"#!/bin/sh\nexit 0\n").is_ok());
        assert_eq!(judged(b"#!/no/such/shell\n").unwrap_err().kind(), ErrorKind::NotFound);
        // No truncated header causes a panic.
        for len in 0..200 {
            let _ = judged(&sh[..len]);
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
