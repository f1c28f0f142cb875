//! Tests of the suite itself: each fault of an engine is found by the case that has to find it, and the
//! message names the broken rule. The same engine without a fault passes all cases.

mod faulty;

use faulty::engine::Fault;
use faulty::{inline, native, plain, sim, with_device_memory};

#[test]
fn every_fault_is_found_by_its_case() {
    let missed = faulty::missed(false);
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

mod without_a_fault {
    use super::*;

    dma_conformance::conformance_tests!(on_plain, plain(Fault::None));
    dma_conformance::conformance_tests!(on_native, native(Fault::None));
    dma_conformance::conformance_tests!(on_inline, inline(Fault::None));
    dma_conformance::conformance_tests!(on_sim, sim(Fault::None));
    dma_conformance::conformance_tests!(on_device_memory, with_device_memory(Fault::None));
}
