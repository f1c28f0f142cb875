//! Cargo's instructions for static libraries.

#[path = "../build/linking.rs"]
mod linking;

use std::path::Path;

use linking::{Flags, instructions};

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn each_library_is_named_once() {
    // SPDK's own list, which also names libraries of later releases, and the output of Debian's
    // `pkg-config --libs --static libdpdk`. That output lists archives and shared libraries, but not their
    // directory, because the compiler searches it anyway.
    let flags = Flags {
        spdk: words(
            "-L/spdk/lib -lspdk_ioat -lspdk_env_dpdk -lspdk_log -lrte_eal -lrte_mempool_ring -lrte_of_later",
        ),
        behind: words(
            "-Wl,--whole-archive -l:librte_eal.a -l:librte_meter.a /usr/lib/arch/librte_hash.a -Wl,--no-whole-archive \
             -Wl,--as-needed -lrte_eal -lrte_meter -lnuma -lcrypto -lcrypto -lsystemd -pthread",
        ),
    };
    let of_spdk = |file: &Path| file.starts_with("/spdk/lib") && file.to_str().unwrap().contains("libspdk_");
    let is_known =
        |file: &str| !["of_later", "systemd", "spdk_"].iter().any(|missing| file.contains(missing));
    let found = instructions(&flags, of_spdk, is_known);
    let whole = ["spdk_ioat", "spdk_env_dpdk", "spdk_log", "rte_eal", "rte_mempool_ring"];
    let mut expected: Vec<String> =
        ["/spdk/lib", "/usr/lib/arch"].map(|dir| format!("cargo::rustc-link-search=native={dir}")).to_vec();
    expected.extend(whole.map(|name| format!("cargo::rustc-link-lib=static:+whole-archive,-bundle={name}")));
    expected
        .extend(["rte_meter", "rte_hash"].map(|name| format!("cargo::rustc-link-lib=static:-bundle={name}")));
    expected.extend(["numa", "crypto"].map(|name| format!("cargo::rustc-link-lib=dylib={name}")));
    assert_eq!(found, expected);
}

#[test]
fn without_a_list_of_spdks_all_of_dpdk_is_linked_whole() {
    let flags = Flags {
        spdk: words("-L/spdk/lib -lspdk_ioat"),
        behind: words("-L/dpdk -l:librte_eal.a -lrte_eal -ldl"),
    };
    let found = instructions(&flags, |_| true, |_| true);
    assert!(
        found.contains(&"cargo::rustc-link-lib=static:+whole-archive,-bundle=rte_eal".to_owned()),
        "{found:?}"
    );
    assert_eq!(found.iter().filter(|line| line.contains("rte_eal")).count(), 1, "{found:?}");
    assert!(found.contains(&"cargo::rustc-link-lib=dylib=dl".to_owned()), "{found:?}");
}
