//! Gives the shared library its SONAME, and keeps it loaded, because its threads run its code.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdma.so.0,-z,nodelete");
}
