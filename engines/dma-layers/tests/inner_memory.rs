//! Tests that an outer engine refuses memory of its inner engine, and the inner engine refuses memory of the
//! outer one.

mod engines;

use std::sync::Arc;

use dma_conformance::inner_memory_is_rejected;
use dma_core::DmaEngine;
use dma_layers::auto::{AutoEngine, AutoOptions, Prefer};
use engines::{cpu, meter, record, sim, verify};

/// Returns an engine made of `cpu` and `device`, for each value of `Prefer`.
fn autos(cpu: &Arc<dyn DmaEngine>, device: &Arc<dyn DmaEngine>) -> [AutoEngine; 2] {
    [Prefer::Measured, Prefer::Device].map(|prefer| {
        let options = AutoOptions::new().with_prefer(prefer);
        AutoEngine::new(Arc::clone(cpu), Arc::clone(device), &options).expect("it opens")
    })
}

#[test]
fn auto_takes_no_memory_of_its_engines() {
    let (cpu, device) = (cpu("cpu"), sim("sim"));
    for auto in autos(&cpu, &device) {
        inner_memory_is_rejected(&auto, &*cpu);
        inner_memory_is_rejected(&auto, &*device);
    }
}

#[test]
fn a_nested_auto_takes_no_memory_of_any_engine_within() {
    let (cpu, near, far) = (cpu("cpu"), sim("sim:seed=1"), sim("sim:seed=2"));
    let [inner, _] = autos(&cpu, &near);
    let inner: Arc<dyn DmaEngine> = Arc::new(inner);
    for auto in autos(&inner, &far) {
        for within in [&cpu, &near, &inner, &far] {
            inner_memory_is_rejected(&auto, within);
        }
    }
}

#[test]
fn wrappers_take_no_memory_of_the_engine_within() {
    let folder = tempfile::tempdir().expect("a folder");
    let inner = sim("sim:seed=3");
    inner_memory_is_rejected(&verify(Arc::clone(&inner)), &inner);
    inner_memory_is_rejected(&meter(Arc::clone(&inner)), &inner);
    inner_memory_is_rejected(&record(Arc::clone(&inner), folder.path()), &inner);
}
