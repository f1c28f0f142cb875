//! Tests of the engine on a machine with DSA. The tests have never run on hardware; see the README.

use dma_core::DmaEngine;
use dma_dsa::{DsaEngine, DsaOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use test_support::script;

#[test]
#[ignore = "needs an enabled DSA work queue of type user: cargo test -p dma-dsa --test hardware -- --ignored"]
fn conforms_on_the_hardware() {
    let engine = match DsaEngine::open(&DsaOptions::new()) {
        Ok(engine) => engine,
        Err(error) => panic!("no DSA to test: {error}"),
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
