//! Sets the shared library's SONAME, and marks the library as never unloaded, because threads of the library
//! may run its code at any time.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=include/dma.h");
    let header = std::fs::read_to_string("include/dma.h").expect("include/dma.h");
    let version = header.lines().find_map(|line| line.strip_prefix("#define DMA_ABI_VERSION "));
    let version =
        version.and_then(|version| version.strip_suffix('u')).expect("DMA_ABI_VERSION of the header");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdma.so.{version},-z,nodelete");
}
