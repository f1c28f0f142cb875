//! Opens simulated devices by name.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::{SimEngine, SimOptions};

/// The backend `sim`.
pub static BACKEND: StaticBackend = StaticBackend {
    name: crate::sim::NAME,
    about: "a simulated device: deterministic, with the latency, reordering and faults of real devices",
    device: None,
    is_hardware: false,
    options: SimOptions::INFO,
    open: |name| Ok(Arc::new(SimEngine::open(&SimOptions::from_name(name)?)?)),
    discover: || vec![Discovered::opened(EngineName::of(&BACKEND), SimEngine::open(&SimOptions::new()))],
    // There is nothing to check, because the simulator does not depend on the machine.
    doctor: Vec::new,
};
