//! Runs the conformance suite on every engine. The engines are opened by name.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use dma::DmaEngine;
use test_support::stand_ins;

fn cpu() -> Arc<dyn DmaEngine> {
    dma::open("cpu").expect("the CPU engine is always available")
}

dma::conformance_tests!(cpu_by_name, cpu());
dma::conformance_tests!(cpu_inline_only, dma::open("cpu:threads=0").expect("it opens"));
dma::conformance_tests!(cpu_everything_to_threads, dma::open("cpu:threads=2,inline=0").expect("it opens"));
dma::conformance_tests!(cpu_cold, dma::open("cpu:hint=cold").expect("it opens"));
dma::conformance_tests!(cpu_boxed, Box::new(cpu()) as Box<dyn DmaEngine>);
dma::conformance_tests!(cpu_referenced, &cpu());

/// The RDMA engine on the stand-in for rdma-core.
fn rdma() -> Arc<dyn DmaEngine> {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(stand_ins::rdma_emu_prefix);
    dma::open(&format!("rdma:lib={}", PREFIX.display())).expect("it opens")
}

dma::conformance_tests!(rdma_on_the_stand_in, rdma());

fn sim(options: &str) -> Arc<dyn DmaEngine> {
    dma::open(&format!("sim:{options}")).expect("the simulator is always available")
}

dma::conformance_tests!(sim_ideal, sim("seed=1"));
dma::conformance_tests!(sim_bluefield2, sim("profile=bluefield2,seed=2"));
dma::conformance_tests!(sim_bluefield3, sim("profile=bluefield3,seed=3"));
dma::conformance_tests!(sim_ioat, sim("profile=ioat,seed=4"));
dma::conformance_tests!(sim_dsa, sim("profile=dsa,seed=5"));
dma::conformance_tests!(sim_tight, sim("max_transfer=100,max_segments=2,depth=3,seed=6"));
dma::conformance_tests!(sim_boxed, Box::new(sim("profile=bluefield3")) as Box<dyn DmaEngine>);
