//! Sets the shared library's name for the run-time linker (soname): `libcenote.so.N`, where N is the version of the
//! interface, so that a program never runs with a library of another version. Creates a link of that name next to the
//! library.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=src/version.rs");
    println!("cargo::rerun-if-changed=build.rs");
    let source = std::fs::read_to_string("src/version.rs").expect("src/version.rs can be read");
    let version = source
        .lines()
        .find_map(|line| line.strip_prefix("pub const CENOTE_ABI_VERSION: u32 = ")?.strip_suffix(';'))
        .expect("src/version.rs says CENOTE_ABI_VERSION");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        return;
    }
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcenote.so.{version}");
    // Hides what dependencies export for C programs (`crc-fast` does, if that feature is enabled).
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // OUT_DIR is build/cenote-c-.../out in the library's directory.
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    if let Some(dir) = Path::new(&out).ancestors().nth(3) {
        let link = dir.join(format!("libcenote.so.{version}"));
        let _ = std::fs::remove_file(&link);
        let _ = std::os::unix::fs::symlink("libcenote.so", link);
    }
}
