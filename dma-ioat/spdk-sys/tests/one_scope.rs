//! Libraries whose symbols only resolve if all are loaded together. The test has a process of its own,
//! because libraries are never unloaded.
#![expect(unsafe_code, reason = "calls what was loaded")]

mod shape;

use std::fs;

use spdk_sys::Library;

#[test]
fn libraries_that_are_linked_by_spdks_rules_are_loaded() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = shape::tree(root.path());
    let spdk = Library::open_in(&dir).unwrap_or_else(|e| panic!("{e}"));
    // SAFETY: the module `shape` built the function, which does not read its argument.
    let sum = unsafe { (spdk.env.spdk_env_init)(std::ptr::null()) };
    assert_eq!(sum, 11110, "each library adds one digit");
    assert_eq!(spdk.path, dir.join("libspdk_env_dpdk.so.17.0").canonicalize().unwrap());
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(
        maps.contains("dpdk/build/lib/librte_mempool_ring.so.25"),
        "libraries that register themselves are loaded too"
    );
    // Load again, by the directory of the source tree.
    assert_eq!(Library::open_in(root.path()).unwrap().path, spdk.path);
}
