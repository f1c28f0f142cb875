//! Opens simulated devices by name.

use std::sync::Arc;

use dma_core::{Backend, Discovered, DmaEngine, EngineName, Finding, OptionInfo, Result};

use crate::{SimEngine, SimOptions};

/// The backend `sim`.
pub static BACKEND: SimBackend = SimBackend;

/// Opens simulated devices by name: see [`BACKEND`].
#[derive(Debug)]
pub struct SimBackend;

impl Backend for SimBackend {
    fn name(&self) -> &'static str {
        crate::sim::NAME
    }

    fn about(&self) -> &'static str {
        "a simulated device, deterministic, as slow, reordered and faulty as real ones"
    }

    fn device(&self) -> Option<&'static str> {
        None
    }

    fn is_hardware(&self) -> bool {
        false
    }

    fn options(&self) -> &'static [OptionInfo] {
        SimOptions::INFO
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        Ok(Arc::new(SimEngine::open(&SimOptions::from_name(name)?)?))
    }

    fn discover(&self) -> Vec<Discovered> {
        vec![Discovered::opened(EngineName::of(self), SimEngine::open(&SimOptions::new()))]
    }

    /// The simulator depends on no setting of the machine.
    fn doctor(&self) -> Vec<Finding> {
        Vec::new()
    }
}
