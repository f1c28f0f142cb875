//! The conformance suite on the stand-in SDK, installed and loaded like a real one; and on a card, if there
//! is one.

#[path = "../../tests/stand_ins/mod.rs"]
mod support;

use std::sync::LazyLock;

use dma_core::{DmaEngine, conformance};
use dma_doca::{DocaEngine, DocaOptions};

fn engine() -> DocaEngine {
    static DIR: LazyLock<std::path::PathBuf> =
        LazyLock::new(|| support::library_dir(&support::doca_emu_prefix()));
    DocaEngine::open(&DocaOptions::new().with_address("03:00.0".parse().unwrap()).with_lib_dir(&*DIR))
        .unwrap()
}

dma_core::conformance_tests!(loaded, engine());

#[test]
fn an_installations_prefix_will_do() {
    let options = DocaOptions::new().with_lib_dir(support::doca_emu_prefix());
    let engine = DocaEngine::open(&options).unwrap();
    assert_eq!(engine.info().version, "DOCA 3.0.0058");
    assert_eq!(dma_doca::discover_with(&options).unwrap().len(), 6);
}

/// `DMA_DOCA_TEST_DEVICE=03:00.0 cargo test -p dma-doca --release -- --ignored hardware`; without the
/// variable, the first device that has DMA.
#[test]
#[ignore = "needs a BlueField: an installed DOCA SDK and a device with DMA"]
fn hardware() {
    let mut options = DocaOptions::new();
    if let Ok(address) = std::env::var("DMA_DOCA_TEST_DEVICE") {
        options = options.with_address(address.parse().unwrap());
    }
    let engine = DocaEngine::open(&options).unwrap_or_else(|e| panic!("no BlueField to test: {e}"));
    println!("{:#?}", engine.info());
    for (name, case) in conformance::CASES {
        println!("{name}");
        case(&engine);
    }
}
