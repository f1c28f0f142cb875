//! Runs the conformance suite on `AutoEngine`, with the CPU and simulated devices of many kinds.

use std::sync::Arc;

use dma_core::DmaEngine;
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use dma_sim::sim::{SimEngine, SimOptions};

fn auto(device: &str, prefer: Prefer) -> AutoEngine {
    let cpu = Arc::new(CpuEngine::open(&CpuOptions::new()).expect("the CPU is always there"));
    let name = device.parse().expect("a name");
    let device = SimEngine::open(&SimOptions::from_name(&name).expect("options")).expect("it opens");
    AutoEngine::new(cpu, Arc::new(device), &AutoOptions::new().with_prefer(prefer)).expect("it opens")
}

fn measured(device: &str) -> AutoEngine {
    auto(device, Prefer::Measured)
}

fn device(device: &str) -> AutoEngine {
    auto(device, Prefer::Device)
}

dma_conformance::conformance_tests!(ideal, measured("sim:seed=1"));
dma_conformance::conformance_tests!(dsa, measured("sim:profile=dsa,seed=2"));
dma_conformance::conformance_tests!(on_the_device, device("sim:profile=dsa,seed=3"));
dma_conformance::conformance_tests!(bluefield3, device("sim:profile=bluefield3,seed=4"));
dma_conformance::conformance_tests!(ioat_in_real_time, device("sim:profile=ioat,clock=real,seed=5"));
dma_conformance::conformance_tests!(
    tight,
    device("sim:max_transfer=100,max_segments=2,depth=3,queues=2,seed=6")
);
dma_conformance::conformance_tests!(failing, device("sim:faults=fail@every=3+reset@every=50,seed=7"));
dma_conformance::conformance_tests!(refusing, device("sim:faults=refuse@every=4,seed=8"));
dma_conformance::conformance_tests!(vanishing, device("sim:faults=gone@5,seed=9"));
dma_conformance::conformance_tests!(with_device_memory, measured("sim:device_memory=1G,seed=11"));
dma_conformance::conformance_tests!(
    with_memory_of_a_tight_device,
    device("sim:profile=dsa,max_transfer=100,max_segments=2,depth=3,device_memory=1G,seed=12")
);
dma_conformance::conformance_tests!(
    with_memory_of_the_first_device,
    Box::new(
        AutoEngine::new(
            Arc::new(measured("sim:device_memory=1G,seed=13")),
            Arc::new(SimEngine::open(&SimOptions::new().with_device_memory(1 << 20)).expect("it opens")),
            &AutoOptions::new().with_prefer(Prefer::Device)
        )
        .expect("it opens")
    ) as Box<dyn DmaEngine>
);
dma_conformance::conformance_tests!(
    nested,
    Box::new(
        AutoEngine::new(
            Arc::new(measured("sim:seed=10")),
            Arc::new(SimEngine::open(&SimOptions::new()).expect("it opens")),
            &AutoOptions::new().with_prefer(Prefer::Device)
        )
        .expect("it opens")
    ) as Box<dyn DmaEngine>
);
