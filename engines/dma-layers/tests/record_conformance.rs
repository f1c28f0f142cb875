//! Runs the conformance suite on `RecordEngine` around the CPU, simulated devices and other wrappers.

mod engines;

use std::path::Path;
use std::sync::LazyLock;

use engines::{auto, cpu, meter, record, sim, verify};

/// The folder of all traces. Each trace replaces the previous one.
fn folder() -> &'static Path {
    static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder"));
    FOLDER.path()
}

dma_conformance::conformance_tests!(on_cpu, record(cpu("cpu"), folder()));
dma_conformance::conformance_tests!(on_ideal, record(sim("sim:seed=1"), folder()));
dma_conformance::conformance_tests!(on_device_memory, record(sim("sim:device_memory=1G,seed=8"), folder()));
dma_conformance::conformance_tests!(on_dsa, record(sim("sim:profile=dsa,seed=2"), folder()));
dma_conformance::conformance_tests!(on_bluefield3, record(sim("sim:profile=bluefield3,seed=3"), folder()));
dma_conformance::conformance_tests!(
    on_tight,
    record(sim("sim:max_transfer=100,max_segments=2,depth=3,seed=4"), folder())
);
dma_conformance::conformance_tests!(around_others, record(meter(verify(sim("sim:seed=5"))), folder()));
dma_conformance::conformance_tests!(within_others, meter(verify(record(sim("sim:seed=6"), folder()))));
dma_conformance::conformance_tests!(around_meter, record(meter(sim("sim:profile=ioat,seed=8")), folder()));
dma_conformance::conformance_tests!(
    between_others_and_a_failing_device,
    verify(record(auto(meter(sim("sim:faults=fail@every=3+gone@40,seed=9"))), folder()))
);
dma_conformance::conformance_tests!(
    within_auto,
    auto(record(sim("sim:profile=bluefield3,seed=10"), folder()))
);
dma_conformance::conformance_tests!(around_auto, record(auto(sim("sim:profile=dsa,seed=7")), folder()));
