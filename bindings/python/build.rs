//! Passes on whether the interpreter has a global lock (`cfg(Py_GIL_DISABLED)`), for `src/interpreter.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    pyo3_build_config::use_pyo3_cfgs();
}
