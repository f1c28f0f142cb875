//! Opens simulated devices by name.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{SimEngine, SimOptions};

/// The backend `sim`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::sim::NAME,
    about: "a simulated device, deterministic, as slow, reordered and faulty as real ones",
    device: None,
    is_hardware: false,
    options: SimOptions::INFO,
    open: |name| Ok(Arc::new(SimEngine::open(&SimOptions::from_name(name)?)?)),
    discover: || vec![Discovered::opened(EngineName::of(&BACKEND), SimEngine::open(&SimOptions::new()))],
    // The simulator depends on no setting of the machine.
    doctor: Vec::new,
};
