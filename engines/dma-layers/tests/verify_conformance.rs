//! Runs the conformance suite on `VerifyEngine` around the CPU, simulated devices and `AutoEngine`.

use std::sync::Arc;

use dma_core::DmaEngine;
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use dma_layers::verify::{VerifyEngine, VerifyOptions};
use dma_sim::sim::{SimEngine, SimOptions};

fn cpu(name: &str) -> Arc<dyn DmaEngine> {
    let options = CpuOptions::from_name(&name.parse().expect("a name")).expect("options");
    Arc::new(CpuEngine::open(&options).expect("the CPU is always there"))
}

fn sim(name: &str) -> Arc<dyn DmaEngine> {
    let options = SimOptions::from_name(&name.parse().expect("a name")).expect("options");
    Arc::new(SimEngine::open(&options).expect("it opens"))
}

fn verify(inner: Arc<dyn DmaEngine>) -> VerifyEngine {
    VerifyEngine::new(inner, &VerifyOptions::new())
}

fn auto(device: Arc<dyn DmaEngine>) -> Arc<dyn DmaEngine> {
    let options = AutoOptions::new().with_prefer(Prefer::Device);
    Arc::new(AutoEngine::new(cpu("cpu"), device, &options).expect("it opens"))
}

dma_conformance::conformance_tests!(on_cpu, verify(cpu("cpu")));
dma_conformance::conformance_tests!(on_cpu_threads, verify(cpu("cpu:threads=2,inline=0")));
dma_conformance::conformance_tests!(on_ideal, verify(sim("sim:seed=1")));
dma_conformance::conformance_tests!(on_device_memory, verify(sim("sim:device_memory=1G,seed=8")));
dma_conformance::conformance_tests!(on_dsa, verify(sim("sim:profile=dsa,seed=2")));
dma_conformance::conformance_tests!(on_bluefield3, verify(sim("sim:profile=bluefield3,seed=3")));
dma_conformance::conformance_tests!(
    on_tight,
    verify(sim("sim:max_transfer=100,max_segments=2,depth=3,seed=4"))
);
dma_conformance::conformance_tests!(
    sampled,
    VerifyEngine::new(sim("sim:seed=5"), &VerifyOptions::new().with_sample(3).with_sample_bytes(1000))
);
dma_conformance::conformance_tests!(
    sampled_on_cpu,
    VerifyEngine::new(cpu("cpu"), &VerifyOptions::new().with_sample(3).with_sample_bytes(1000))
);
dma_conformance::conformance_tests!(on_auto, verify(auto(sim("sim:profile=dsa,seed=6"))));
dma_conformance::conformance_tests!(
    beside_auto,
    auto(Arc::new(verify(sim("sim:faults=corrupt@every=3,seed=7"))))
);
