//! Runs the conformance suite on the stand-in driver: with copies that take no time, with a delay in each
//! copy, with published times, with all copies by the kernel, and with drivers that lack calls.

mod support;

use dma_cuda::{CudaEngine, Pieces};
use support::{HEALTHY, driver_without, open, options};

/// Opens an engine on a driver that lacks these calls.
fn older(lacks: &[&str]) -> CudaEngine {
    support::open_with(&driver_without(HEALTHY, lacks), &options(0)).expect("it opens")
}

dma_conformance::conformance_tests!(timeless, open(HEALTHY, 0));
dma_conformance::conformance_tests!(delayed, open(HEALTHY, 2));
dma_conformance::conformance_tests!(published_times, open(HEALTHY, 3));
dma_conformance::conformance_tests!(cuda_12_8, older(&["cuMemcpyBatchAsync_v2"]));
dma_conformance::conformance_tests!(
    cuda_11_4,
    older(&[
        "cuMemcpyBatchAsync_v2",
        "cuMemcpyBatchAsync",
        "cuMemGetHandleForAddressRange",
        "cuLaunchKernel"
    ])
);
dma_conformance::conformance_tests!(by_kernel, {
    let options = options(0).with_pieces(Pieces::Kernel);
    support::open_with(&support::driver(HEALTHY), &options).expect("it opens")
});
dma_conformance::conformance_tests!(without_host_functions, older(&["cuLaunchHostFunc"]));
dma_conformance::conformance_tests!(shallow, {
    let options = options(0).with_depth(2);
    support::open_with(&support::driver(HEALTHY), &options).expect("it opens")
});
