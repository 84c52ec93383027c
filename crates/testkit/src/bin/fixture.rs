//! Makes a store that later versions must still read, with `fixture make FILE.tar.gz`, or checks one, with
//! `fixture check FILE.tar.gz`. A fixture is made once for each version of the format (`docs/format.md`) and never
//! changed.

use std::path::Path;
use std::process::{Command, ExitCode};

use cenote_testkit::fixture;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["make", file] => make(Path::new(file)),
        ["check", file] => check(Path::new(file)),
        _ => Err("usage: fixture make|check FILE.tar.gz".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fixture: {why}");
            ExitCode::FAILURE
        }
    }
}

fn make(file: &Path) -> Result<(), String> {
    if file.exists() {
        return Err(format!("{} is there: a fixture is never changed", file.display()));
    }
    in_directory(|dir| {
        fixture::make(dir).map_err(|error| error.to_string())?;
        // Shared memory is not portable.
        let _ = std::fs::remove_dir_all(dir.join("memory"));
        tar(&["--sparse", "--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-czf"], file, dir, &["."])
    })
}

fn check(file: &Path) -> Result<(), String> {
    in_directory(|dir| {
        tar(&["-xzf"], file, dir, &[])?;
        fixture::check(dir)
    })
}

fn in_directory(act: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let dir = std::env::temp_dir().join(format!("cenote-fixture-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|error| error.to_string())?;
    let done = act(&dir);
    let _ = std::fs::remove_dir_all(&dir);
    done
}

fn tar(how: &[&str], file: &Path, dir: &Path, what: &[&str]) -> Result<(), String> {
    let done = Command::new("tar").args(how).arg(file).arg("-C").arg(dir).args(what).status();
    if done.is_ok_and(|status| status.success()) { Ok(()) } else { Err(format!("tar failed on {}", file.display())) }
}
