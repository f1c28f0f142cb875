//! Runs random programs on every engine, and compares them with an oracle in plain memory.
//!
//! The oracle keeps each buffer as a `Vec<u8>`. The oracle knows an operation's result at the submission,
//! because the operation owns its operands until it ends. After a failure the destination is undefined, so
//! the test writes the expected bytes itself. Guard bytes surround every buffer.

mod model;
mod standin_gpu;
mod system;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use dma::EngineName;
use dma::conformance::DeviceBacked;
use dma::prelude::*;
use proptest::prelude::*;
use proptest_state_machine::prop_state_machine;
use system::Test;
use test_support::stand_ins;

/// Engines without faults, on which no operation fails.
const SOUND: [&str; 28] = [
    "cpu",
    "cpu:threads=0",
    "cpu:threads=1,inline=0",
    "cpu:hint=cold",
    "sim:profile=ideal,max_transfer=100,max_segments=3,depth=7",
    "sim:profile=bluefield3",
    "sim:profile=ioat",
    "sim:profile=dsa",
    "doca:03:00.0",
    "ioat",
    "auto:device=sim:profile=dsa",
    "auto:device=sim:max_transfer=100;depth=5,prefer=device",
    "auto:device=sim:profile=bluefield3;faults=reset@7+fail@every=9,prefer=device",
    "meter+verify+cpu",
    "verify+meter+sim:profile=dsa",
    "meter+auto:device=verify+sim:max_transfer=100;depth=5,prefer=device",
    "record+cpu",
    "record+meter+sim:profile=bluefield3",
    "meter+verify+record+auto:device=sim:profile=dsa;faults=fail@every=9,prefer=device",
    "record+verify+doca:03:00.0",
    "verify+meter+record+ioat",
    "auto:device=meter+verify+sim:profile=ioat;faults=fail@every=5,prefer=device",
    "sim:device_memory=64M",
    "sim:profile=bluefield3,max_transfer=1000,depth=5,device_memory=64M",
    "meter+verify+sim:profile=dsa,device_memory=64M",
    "standin-gpu:0",
    "verify+standin-gpu:1",
    "standin-gpu:0,depth=7",
];
/// Engines with faults, on which operations fail.
const FAULTY: [&str; 12] = [
    "sim:profile=bluefield3,faults=reset@7",
    "sim:profile=ideal,faults=fail:p=0.1+slow@3:for=50us",
    "sim:profile=dsa,faults=reset:p=0.05+refuse@4",
    "sim:profile=ioat,faults=reset@5",
    "sim:profile=ideal,max_transfer=64,faults=lose@9+fail@12",
    "sim:profile=bluefield2,faults=gone@20",
    "meter+verify+sim:profile=dsa,faults=reset:p=0.05+fail@every=11",
    "record+sim:profile=bluefield2,faults=gone@20",
    "verify+record+meter+sim:profile=ideal,max_transfer=64,faults=lose@9+fail@12",
    "sim:profile=dsa,faults=reset:p=0.02+fail@every=11,device_memory=64M",
    "standin-gpu:2",
    "meter+verify+standin-gpu:2",
];

/// Opens an engine by name. Hardware backends load the stand-in SDK. `record` writes to `trace`. Every second
/// region of an engine with device memory is on the device.
fn open(name: &str, trace: &Path) -> Arc<dyn DmaEngine> {
    static DOCA: OnceLock<PathBuf> = OnceLock::new();
    static IOAT: OnceLock<PathBuf> = OnceLock::new();
    static GPU: OnceLock<()> = OnceLock::new();
    let mut name: EngineName = name.parse().expect("a name");
    let mut wrappers: Vec<_> = name.backend().split('+').map(str::to_owned).collect();
    let lib = match wrappers.pop().as_deref() {
        Some("doca") => Some(DOCA.get_or_init(|| stand_ins::library_dir(&stand_ins::doca_emu_prefix()))),
        Some("ioat") => Some(IOAT.get_or_init(|| stand_ins::spdk_emu_prefix().join("lib"))),
        Some("standin-gpu") => {
            GPU.get_or_init(|| dma::register(&standin_gpu::StandinGpu).expect("no backend has this name"));
            None
        }
        _ => None,
    };
    if let Some(lib) = lib {
        name = name.with_option("lib", &lib.to_string_lossy()).expect("an option");
    }
    if wrappers.iter().any(|wrapper| wrapper == "record") {
        name = name.with_option("file", &trace.to_string_lossy()).expect("an option");
    }
    let engine = dma::open_name(&name).expect("the engine opens");
    match DeviceBacked::new(Arc::clone(&engine), 2) {
        Ok(backed) => Arc::new(backed),
        Err(_) => engine,
    }
}

prop_state_machine! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_engine_does_what_plain_memory_does(sequential 1..60 => Test);
}
