//! The stand-in SPDK, linked into the test: tables of its functions, and a separate process for each
//! machine.
#![allow(dead_code, reason = "each test uses only a part of this module")]
#![expect(unsafe_code, reason = "takes the addresses of C functions")]

use std::ffi::{CStr, c_void};
use std::process::Command;
use std::ptr::NonNull;

use dma_ioat::spdk_sys::{Env, Ioat, Library, Log, Release, bindings};
use dma_ioat::{IoatEngine, IoatOptions};
use spdk_emu as _;

macro_rules! calls {
    ($($name:ident)*) => {
        fn address(name: &CStr) -> Option<NonNull<c_void>> {
            match name.to_str().ok()? {
                $(stringify!($name) => NonNull::new((bindings::$name as *const ()).cast_mut().cast()),)*
                _ => None,
            }
        }
    };
}

calls! {
    spdk_env_get_core_count
    spdk_env_init
    spdk_env_opts_init
    spdk_free
    spdk_ioat_build_copy
    spdk_ioat_build_fill
    spdk_ioat_detach
    spdk_ioat_flush
    spdk_ioat_get_dma_capabilities
    spdk_ioat_get_max_descriptors
    spdk_ioat_probe
    spdk_ioat_process_events
    spdk_log_get_print_level
    spdk_log_open
    spdk_mem_register
    spdk_mem_unregister
    spdk_pci_device_claim
    spdk_pci_device_detach
    spdk_pci_device_get_addr
    spdk_pci_device_get_numa_id
    spdk_pci_device_map_bar
    spdk_pci_device_unmap_bar
    spdk_vtophys
    spdk_zmalloc
}

/// Returns the stand-in's calls, without its log's.
pub(crate) fn library() -> Library {
    library_of(None)
}

fn library_of(log: Option<Log>) -> Library {
    // SAFETY: the program is linked with the stand-in's functions of these names, which have the declared
    // signatures.
    let env = unsafe { Env::load(address) }.expect("every required call");
    // SAFETY: the program is linked with the stand-in's functions of these names, which have the declared
    // signatures.
    let ioat = unsafe { Ioat::load(address) }.expect("every required call");
    // SAFETY: the stand-in's functions behave as SPDK's, and are linked into the program.
    unsafe { Library::from_tables(env, ioat, log, Release::of_soname(Some(17))) }
}

/// Returns the stand-in's calls, including its log's.
pub(crate) fn library_with_log() -> Library {
    // SAFETY: the program is linked with the stand-in's functions of these names, which have the declared
    // signatures.
    library_of(Some(unsafe { Log::load(address) }.expect("every required call")))
}

/// Returns options that use the stand-in.
pub(crate) fn options() -> IoatOptions {
    IoatOptions::new().with_library(library())
}

/// Opens an engine on all channels of this process's machine.
pub(crate) fn open() -> IoatEngine {
    IoatEngine::open(&options()).expect("it opens")
}

/// The environment variable that marks a test process on its own machine.
const VARIABLE: &str = "DMA_IOAT_TEST";

/// Runs the rest of the test `test` in a separate process with the machine `config`, because a process has
/// only one machine.
pub(crate) fn on_machine(test: &str, config: &str, rest: impl FnOnce()) {
    let asked = format!("{test}: {config}");
    if std::env::var(VARIABLE).is_ok_and(|on| on == asked) {
        return rest();
    }
    if std::env::var(VARIABLE).is_ok() {
        // This process runs the same test on another machine.
        return;
    }
    let output = Command::new(std::env::current_exe().expect("a program"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, &asked)
        .env("SPDK_EMU", config)
        .env_remove("SPDK_EMU_CONFIG")
        .output()
        .expect("it starts");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "on `{config}`, {}:\n{text}",
        output.status
    );
}
