//! The backend `standin-gpu`: GPUs of the stand-in driver. The driver runs in this process, so that no
//! library must be built and loaded. Copies of GPU 0 take no time, copies of GPU 1 take 20 us longer, the
//! driver refuses some copies of GPU 2, and one of GPU 3 ends its context for the whole process.
#![expect(unsafe_code, reason = "passes the stand-in's functions to the engine")]

use std::sync::Arc;

use dma::cuda::{CudaDevice, CudaEngine, CudaOptions, Driver};
use dma::{Backend, Discovered, DmaEngine, EngineName, Finding, NameFormat, Result};

const GPUS: &str = "memory = '64M'
[[gpu]]
[[gpu]]
delay = '20us'
[[gpu]]
faults = 'refuse:p=0.05+slow:p=0.05:for=20us'
[[gpu]]
faults = 'fail@5'
";

/// The backend: see the module's documentation.
#[derive(Debug)]
pub(crate) struct StandinGpu;

impl Backend for StandinGpu {
    fn name_format(&self) -> NameFormat {
        NameFormat::new("standin-gpu", CudaOptions::INFO).with_device("0 to 3")
    }

    fn about(&self) -> &'static str {
        "GPUs of the stand-in driver"
    }

    fn is_hardware(&self) -> bool {
        false
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        cuda_emu::use_config(GPUS).expect("a valid configuration");
        // SAFETY: the stand-in's functions have the declared signatures, and are never unloaded.
        let driver = unsafe { Driver::load(cuda_emu::symbol) }.expect("the stand-in has all functions");
        let ordinal = name.device().and_then(|device| device.parse().ok()).expect("a number");
        let mut options = CudaOptions::new().with_device(CudaDevice::Ordinal(ordinal));
        if let Some(depth) = name.option("depth") {
            options = options.with_depth(depth.parse().expect("a depth"));
        }
        // SAFETY: the stand-in's functions behave as CUDA's, and are never unloaded.
        Ok(Arc::new(unsafe { CudaEngine::open_with(&driver, &options) }?))
    }

    fn discover(&self) -> Vec<Discovered> {
        Vec::new()
    }

    fn doctor(&self) -> Vec<Finding> {
        Vec::new()
    }
}
