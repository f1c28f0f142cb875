//! Opens simulated devices by name.

use std::sync::Arc;

use dma_core::{Discovered, EngineName, StaticBackend};

use crate::sim::{SimEngine, SimOptions};

/// The backend `sim`.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: SimOptions::NAME_FORMAT,
    about: "a simulated device: deterministic, with the latency, reordering and faults of real devices",
    is_hardware: false,
    open: |name| Ok(Arc::new(SimEngine::open(&SimOptions::from_name(name)?)?)),
    discover: || {
        vec![Discovered::opened(EngineName::of(SimOptions::NAME_FORMAT), SimEngine::open(&SimOptions::new()))]
    },
    // There is nothing to check, because the simulator does not depend on the machine.
    doctor: Vec::new,
};
