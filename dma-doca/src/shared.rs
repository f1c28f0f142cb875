//! [`Inner`]: the part of an engine that its regions and queues share.

use std::sync::Arc;

use dma_core::{Capabilities, EngineId, EngineInfo};

use crate::buffers::Table;
use crate::device::Device;
use crate::options::Fabric;

/// The part of an engine that its regions and queues share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) table: Arc<Table>,
    pub(crate) id: EngineId,
    pub(crate) fabric: Fabric,
    pub(crate) info: EngineInfo,
    /// The last field, because it must be closed last.
    pub(crate) device: Arc<Device>,
}

impl Inner {
    /// True if the device exports memory.
    pub(crate) const fn exports(&self) -> bool {
        self.info.capabilities.contains(Capabilities::EXPORT)
    }
}
