//! The tests of a generation with work queues.

#[path = "../../../tests/stand_ins/mod.rs"]
mod stand_ins;

use std::path::PathBuf;
use std::sync::LazyLock;

use dma_doca::{DocaEngine, DocaOptions};

static DIR: LazyLock<PathBuf> =
    LazyLock::new(|| stand_ins::library_dir(&stand_ins::doca_emu_generation(crate::GENERATION)));

fn options() -> DocaOptions {
    DocaOptions::new().with_address("03:00.0".parse().unwrap()).with_lib_dir(&*DIR)
}

fn engine() -> DocaEngine {
    DocaEngine::open(&options()).unwrap()
}

dma_core::conformance_tests!(conformance, engine());
