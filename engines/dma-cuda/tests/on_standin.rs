//! Runs the conformance suite on the stand-in driver: with copies that take no time, with a delay in each
//! copy, with published times, with all copies by the kernel, and with drivers that lack calls.

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use dma_cuda::{CudaEngine, CudaOptions, Pieces};
use support::{HEALTHY, driver, driver_without, options};

/// The engine of a test, and the right to use the stand-in. One test at a time has this right, because the
/// stand-in has one lock for the whole process: two tests at once take more time than one after the other.
struct Alone {
    engine: CudaEngine,
    _turn: MutexGuard<'static, ()>,
}

fn alone(driver: &dma_cuda::Driver, options: &CudaOptions) -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { engine: support::open_with(driver, options).expect("it opens"), _turn: turn }
}

/// Opens a GPU of the stand-in.
fn open(ordinal: u32) -> Alone {
    alone(&driver(HEALTHY), &options(ordinal))
}

/// Opens an engine on a driver that lacks these calls.
fn older(lacks: &[&str]) -> Alone {
    alone(&driver_without(HEALTHY, lacks), &options(0))
}

dma_conformance::conformance_tests!(timeless, open(0).engine);
dma_conformance::conformance_tests!(delayed, open(2).engine);
dma_conformance::conformance_tests!(published_times, open(3).engine);
dma_conformance::conformance_tests!(cuda_12_8, older(&["cuMemcpyBatchAsync_v2"]).engine);
dma_conformance::conformance_tests!(
    cuda_11_4,
    older(&[
        "cuMemcpyBatchAsync_v2",
        "cuMemcpyBatchAsync",
        "cuMemGetHandleForAddressRange",
        "cuLaunchKernel"
    ])
    .engine
);
dma_conformance::conformance_tests!(
    by_kernel,
    alone(&driver(HEALTHY), &options(0).with_pieces(Pieces::Kernel)).engine
);
dma_conformance::conformance_tests!(without_host_functions, older(&["cuLaunchHostFunc"]).engine);
dma_conformance::conformance_tests!(shallow, alone(&driver(HEALTHY), &options(0).with_depth(2)).engine);
