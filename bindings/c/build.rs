//! Gives the shared library its name for the run-time linker: `libcenote.so.N`, N being the version of the interface,
//! so that a program never meets a library of another one. A link of that name is laid beside the library.

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
    // What libraries below export for programs in C (`crc-fast` does, if anybody enables that) is not for ours.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // OUT_DIR is build/cenote-c-.../out in the directory that the library goes to.
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    if let Some(dir) = Path::new(&out).ancestors().nth(3) {
        let link = dir.join(format!("libcenote.so.{version}"));
        let _ = std::fs::remove_file(&link);
        let _ = std::os::unix::fs::symlink("libcenote.so", link);
    }
}
