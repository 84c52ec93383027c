//! Compiles C and C++ programs against the header and the library, and runs them.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the directory of the library: that of a build which is there (`CENOTE_C_LIBRARY_DIR`), or of one made now.
fn library_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("CENOTE_C_LIBRARY_DIR") {
        return PathBuf::from(dir);
    }
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "cenote-c"]).status();
    assert!(built.expect("cargo runs").success());
    // target/tmp is what cargo gives to tests; the library is in its sibling.
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target").join("debug")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Compiles `source` with `compiler` and runs it in a separate directory.
fn compile_and_run(source: &str, name: &str, compiler: &[&str], link: &[String]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("target/tmp can be written");
    let program = dir.join("program");
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"])
        .arg(root.join("include"))
        .arg(root.join(source))
        .args(link)
        .arg("-o")
        .arg(&program));
    run(Command::new(&program).arg(&dir));
    std::fs::remove_dir_all(&dir).expect("the directory can be removed");
    give_memory_back(&dir);
}

/// Removes the shared memory of stores that were in a directory.
fn give_memory_back(dir: &Path) {
    for memory in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let home = std::fs::read(memory.path().join("home")).unwrap_or_default();
        if home.starts_with(dir.as_os_str().as_encoded_bytes()) {
            std::fs::remove_dir_all(memory.path()).expect("this user's memory can be removed");
        }
    }
}

fn shared(library: &Path) -> Vec<String> {
    vec![format!("-L{}", library.display()), "-lcenote".into(), format!("-Wl,-rpath,{}", library.display())]
}

#[test]
fn programs_in_c_and_cpp() {
    let library = library_dir();
    let (c99, cpp) = (["cc", "-std=c99", "-pedantic"], ["c++", "-std=c++11", "-x", "c++"]);
    compile_and_run("tests/abi.c", "abi-c", &c99, &shared(&library));
    // Building Cenote needs no C++ compiler; without one, only C99 is tested.
    if Command::new("c++").arg("--version").output().is_ok() {
        compile_and_run("tests/abi.c", "abi-cpp", &cpp, &shared(&library));
    }
    compile_and_run("../../examples/c/first.c", "first-c", &c99, &shared(&library));
    let archive = library.join("libcenote.a").display().to_string();
    let linked = [archive, "-lpthread".into(), "-ldl".into(), "-lm".into()];
    compile_and_run("../../examples/c/first.c", "first-static", &c99, &linked);
}

#[test]
fn only_the_interface_is_exported() {
    let library = library_dir().join("libcenote.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().expect("nm runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert!(names.contains(&"cenote_open"), "{names:?}");
    let foreign: Vec<_> = names.iter().filter(|name| !name.starts_with("cenote_")).collect();
    assert!(foreign.is_empty(), "exported besides the interface: {foreign:?}");
}

#[test]
fn the_library_carries_its_version() {
    let output =
        Command::new("readelf").arg("-d").arg(library_dir().join("libcenote.so")).output().expect("readelf runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("[libcenote.so.1]"), "no SONAME: {text}");
    assert!(library_dir().join("libcenote.so.1").exists());
}
