//! Refuses interpreters on which the package would be unsound.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let flags = &pyo3_build_config::get().build_flags.0;
    // `src/gil.rs` relies on the global lock, which `PYTHON_GIL=0` would switch off.
    assert!(
        !flags.contains(&pyo3_build_config::BuildFlag::Py_GIL_DISABLED),
        "dma does not support the free-threaded interpreter: build with the ordinary one (python3, not python3t)"
    );
}
