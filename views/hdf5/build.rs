//! Link flags of the connector: it must never be unloaded, because several libhdf5 in one process share it
//! and each of them would otherwise unload it under the others.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
        // Nothing of the libraries below is for the programs that load it.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    }
}
