//! Tests of the engine on a machine with an RDMA device, hardware or Soft-RoCE. The tests have never run on a
//! NIC; see the README.

use dma_core::DmaEngine;
use dma_rdma::{RdmaEngine, RdmaOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use test_support::script;

#[test]
#[ignore = "needs an RDMA device with an active port: cargo test -p dma-rdma -- --ignored hardware"]
fn conforms_on_the_hardware() {
    let engine = match RdmaEngine::open(&RdmaOptions::new()) {
        Ok(engine) => engine,
        Err(error) => panic!("no RDMA device to test: {error}"),
    };
    println!("{:?}", engine.info());
    dma_conformance::run_all(&engine);
    let most = engine.info().limits.max_queue_depth;
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(script::programs(false), 1..40_usize), |(program, depth)| {
            script::run(&engine, depth.min(most), true, &program, |_| ());
            Ok(())
        })
        .unwrap();
}
