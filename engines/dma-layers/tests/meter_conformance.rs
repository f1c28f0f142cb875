//! Runs the conformance suite on `MeterEngine` around the CPU, simulated devices and other wrappers.

mod engines;

use engines::{auto, cpu, meter, sim, verify};

dma_conformance::conformance_tests!(on_cpu, meter(cpu("cpu")));
dma_conformance::conformance_tests!(on_cpu_threads, meter(cpu("cpu:threads=2,inline=0")));
dma_conformance::conformance_tests!(on_ideal, meter(sim("sim:seed=1")));
dma_conformance::conformance_tests!(on_device_memory, meter(sim("sim:device_memory=1G,seed=8")));
dma_conformance::conformance_tests!(on_dsa, meter(sim("sim:profile=dsa,seed=2")));
dma_conformance::conformance_tests!(on_bluefield3, meter(sim("sim:profile=bluefield3,seed=3")));
dma_conformance::conformance_tests!(
    on_tight,
    meter(sim("sim:max_transfer=100,max_segments=2,depth=3,seed=4"))
);
dma_conformance::conformance_tests!(around_verify, meter(verify(sim("sim:seed=5"))));
dma_conformance::conformance_tests!(within_verify, verify(meter(sim("sim:profile=dsa,seed=6"))));
dma_conformance::conformance_tests!(around_auto, meter(auto(sim("sim:profile=dsa,seed=7"))));
dma_conformance::conformance_tests!(
    around_verify_and_auto,
    meter(verify(auto(sim("sim:faults=fail@every=3+reset@every=50,seed=8"))))
);
dma_conformance::conformance_tests!(within_auto, auto(meter(verify(sim("sim:profile=ioat,seed=9")))));
