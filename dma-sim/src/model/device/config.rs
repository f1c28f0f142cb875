//! Configuration of a device.

use crate::model::fault::{FaultPlan, FaultPlanError};
use crate::model::profile::{Profile, ProfileError};
use crate::model::trace::TraceMode;

/// Configuration of a device.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The modelled device.
    pub profile: Profile,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Injected faults.
    pub faults: FaultPlan,
    /// Extent of the trace.
    pub trace: TraceMode,
    /// True if the bytes of a task move in parts, and not all at its end.
    pub tearing: bool,
}

impl DeviceConfig {
    /// Returns the configuration for a profile: seed 0, no faults, no trace, bytes move in parts.
    #[must_use]
    pub const fn new(profile: Profile) -> Self {
        Self { profile, seed: 0, faults: FaultPlan::none(), trace: TraceMode::Off, tearing: true }
    }

    dma_core::setters! {
        with_seed(seed: u64);
        with_trace(trace: TraceMode);
    }

    /// Sets the faults.
    #[must_use]
    pub fn with_faults(self, faults: FaultPlan) -> Self {
        Self { faults, ..self }
    }
}

/// The configuration is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The fault plan is invalid.
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
}
