//! [`AutoShared`]: the state that the engine's queues and regions share.

use std::sync::Arc;

use dma_core::{DmaEngine, EngineId};

use super::options::AutoOptions;
use super::region::DeviceKeys;
use super::report::Ledger;

/// State that the engine's queues and regions share.
#[derive(Debug)]
pub(super) struct AutoShared {
    pub(super) id: EngineId,
    pub(super) device: Arc<dyn DmaEngine>,
    pub(super) options: AutoOptions,
    /// True if this engine's device memory belongs to its device. False if the device has no memory of its
    /// own; then the inner engine in the CPU's role may have device memory.
    pub(super) gives_memory: bool,
    pub(super) keys: Arc<DeviceKeys>,
    pub(super) ledger: Ledger,
}
