//! [`EngineState`]: the part of an engine that its regions and queues share.

use std::sync::Arc;

use dma_core::{Capabilities, EngineId, EngineInfo};

use crate::buffers::RegionTable;
use crate::device::Device;
use crate::options::Fabric;

/// The part of an engine that its regions and queues share.
#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) table: Arc<RegionTable>,
    pub(crate) id: EngineId,
    pub(crate) fabric: Fabric,
    pub(crate) info: EngineInfo,
    /// This is the last field, because the device must be closed last.
    pub(crate) device: Arc<Device>,
}

impl EngineState {
    /// Returns true if the device exports memory over the fabric of the options.
    pub(crate) const fn exports(&self) -> bool {
        self.info.capabilities.contains(Capabilities::EXPORT)
    }
}
