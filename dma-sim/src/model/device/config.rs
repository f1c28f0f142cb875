//! What a device is to be like.

use crate::model::fault::{FaultPlan, FaultPlanError};
use crate::model::profile::{Profile, ProfileError};
use crate::model::trace::TraceMode;

/// What a device is to be like.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Which device is modelled.
    pub profile: Profile,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// What goes wrong.
    pub faults: FaultPlan,
    /// What is recorded.
    pub trace: TraceMode,
    /// Bytes of a task move in parts. Otherwise all at its end.
    pub tearing: bool,
}

impl DeviceConfig {
    /// The device of a profile: seed 0, no faults, no trace, tearing.
    #[must_use]
    pub const fn new(profile: Profile) -> Self {
        Self { profile, seed: 0, faults: FaultPlan::none(), trace: TraceMode::Off, tearing: true }
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// The same with these faults.
    #[must_use]
    pub fn with_faults(self, faults: FaultPlan) -> Self {
        Self { faults, ..self }
    }

    /// The same with this much recorded.
    #[must_use]
    pub fn with_trace(self, trace: TraceMode) -> Self {
        Self { trace, ..self }
    }
}

/// A device that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// Because of its profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// Because of its faults.
    #[error(transparent)]
    Faults(#[from] FaultPlanError),
}
