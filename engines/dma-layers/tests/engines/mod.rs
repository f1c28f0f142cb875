//! Inner engines for tests of the wrappers.
#![allow(dead_code, reason = "each test uses only some of the engines")]

use std::sync::Arc;

use dma_core::DmaEngine;
use dma_cpu::{CpuEngine, CpuOptions};
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use dma_layers::meter::{MeterEngine, MeterOptions};
use dma_layers::record::{RecordEngine, RecordOptions};
use dma_layers::verify::{VerifyEngine, VerifyOptions};
use dma_sim::sim::{SimEngine, SimOptions};

pub(crate) fn cpu(name: &str) -> Arc<dyn DmaEngine> {
    let options = CpuOptions::from_name(&name.parse().expect("a name")).expect("options");
    Arc::new(CpuEngine::open(&options).expect("the CPU is always there"))
}

pub(crate) fn sim(name: &str) -> Arc<dyn DmaEngine> {
    let options = SimOptions::from_name(&name.parse().expect("a name")).expect("options");
    Arc::new(SimEngine::open(&options).expect("it opens"))
}

pub(crate) fn auto(device: Arc<dyn DmaEngine>) -> Arc<dyn DmaEngine> {
    let options = AutoOptions::new().with_prefer(Prefer::Device);
    Arc::new(AutoEngine::new(cpu("cpu"), device, &options).expect("it opens"))
}

pub(crate) fn verify(inner: Arc<dyn DmaEngine>) -> Arc<dyn DmaEngine> {
    Arc::new(VerifyEngine::new(inner, &VerifyOptions::new()))
}

pub(crate) fn meter(inner: Arc<dyn DmaEngine>) -> Arc<MeterEngine> {
    Arc::new(MeterEngine::new(inner, &MeterOptions::new()))
}

/// Returns an engine whose trace is in `folder`.
pub(crate) fn record(inner: Arc<dyn DmaEngine>, folder: &std::path::Path) -> Arc<RecordEngine> {
    let options = RecordOptions::new(folder.join("a.trace")).with_buffer(4096);
    Arc::new(RecordEngine::new(inner, &options).expect("a file"))
}
