//! The conformance suite on the stand-in SDK, installed and loaded like a real one. The example `test_card`
//! runs it on a card.

use std::sync::LazyLock;

use dma_core::DmaEngine;
use dma_doca::{DocaEngine, DocaOptions};
use test_support::stand_ins;

fn engine() -> DocaEngine {
    static DIR: LazyLock<std::path::PathBuf> =
        LazyLock::new(|| stand_ins::library_dir(&stand_ins::doca_emu_prefix()));
    DocaEngine::open(&DocaOptions::new().with_address("03:00.0".parse().unwrap()).with_lib_dir(&*DIR))
        .unwrap()
}

dma_conformance::conformance_tests!(loaded, engine());

#[test]
fn an_installations_prefix_will_do() {
    let options = DocaOptions::new().with_lib_dir(stand_ins::doca_emu_prefix());
    let engine = DocaEngine::open(&options).unwrap();
    assert_eq!(engine.info().version, "DOCA 3.0.0058");
    assert_eq!(dma_doca::discover_with(&options).unwrap().len(), 6);
}
