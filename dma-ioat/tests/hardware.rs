//! The engine on a machine with I/OAT. This test has never been run on hardware; see the README.

use dma_core::DmaEngine;
use dma_ioat::{IoatEngine, IoatOptions};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use test_support::script;

#[test]
#[ignore = "needs I/OAT bound to vfio or uio, an SPDK with shared libraries and huge pages: cargo test -p dma-ioat --test hardware -- --ignored"]
fn conforms_on_the_hardware() {
    let engine = match IoatEngine::open(&IoatOptions::new()) {
        Ok(engine) => engine,
        Err(error) => panic!("no I/OAT to test: {error}"),
    };
    println!("{:?}", engine.info());
    assert!(
        engine.info().limits.max_queues >= Some(2),
        "the suite opens two queues at once: it needs two channels"
    );
    dma_conformance::run_all(&engine);
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(script::programs(false), 1..40_usize), |(program, depth)| {
            script::run(&engine, depth, true, &program, |_| ());
            Ok(())
        })
        .unwrap();
}
