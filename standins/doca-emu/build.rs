//! Compiles the variadic functions, which stable Rust cannot define, and sets `cfg(workq)` for the
//! generations that have work queues.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/variadic.c");
    println!("cargo::rustc-check-cfg=cfg(workq)");
    let work_queues = ["CARGO_FEATURE_GENERATION_1_5", "CARGO_FEATURE_GENERATION_2_2"];
    let mut build = cc::Build::new();
    if work_queues.iter().any(|feature| std::env::var_os(feature).is_some()) {
        println!("cargo::rustc-cfg=workq");
        build.define("WORKQ", None);
    }
    build.file("src/variadic.c").std("c11").warnings(true).extra_warnings(true).compile("doca_emu_variadic");
}
