//! Compiles the variadic functions, which stable Rust cannot define.

fn main() {
    println!("cargo::rerun-if-changed=src/variadic.c");
    cc::Build::new()
        .file("src/variadic.c")
        .std("c11")
        .warnings(true)
        .extra_warnings(true)
        .compile("spdk_emu_variadic");
}
