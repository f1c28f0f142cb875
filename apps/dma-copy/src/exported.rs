//! The memory that the host exports.

use std::time::Duration;

use dma::Export;
use dma::prelude::*;

use crate::failure::{Failure, failure};
use crate::negotiate::Plan;
use crate::protocol::{self, MAX_DESCRIPTOR, Message, Role};
use crate::session::Session;

/// Maximum time to wait until the DPU has released the memory. A correct DPU needs less.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(2);

/// The exported window, divided into slots of one block each.
pub(crate) struct ExportedWindow {
    // This field comes before `window`, so that a drop revokes the export before it frees the memory.
    export: Export,
    pub(crate) window: Window,
}

impl ExportedWindow {
    /// Exports memory for `plan` and sends its descriptor to the DPU. Returns `None` if no bytes have
    /// to be copied.
    pub(crate) fn export(
        engine: &dyn DmaEngine,
        plan: &Plan,
        session: &Session,
    ) -> Result<Option<Self>, Failure> {
        if plan.slots == 0 {
            return Ok(None);
        }
        let len = plan.slots * plan.block;
        let export = |rights| {
            let window = engine.allocate_window(&MemoryRequest::new(len).exportable(rights))?;
            window.export(rights).map(|export| (window, export))
        };
        // Grants the minimum rights for the direction. PCI devices with write access can always read,
        // so their engines refuse write-only exports. The additional right to read is harmless, because
        // the window contains only bytes of this file.
        let rights = if plan.sender == Role::Host { Access::READ } else { Access::WRITE };
        let (window, export) = match export(rights) {
            Err(e) if e.kind() == ErrorKind::Unsupported => export(Access::all()),
            exported => exported,
        }
        .map_err(|e| failure!(Exporting, "{e}"))?;
        let descriptor = export.descriptor().to_bytes();
        let limit = session.max_message.saturating_sub(64).min(MAX_DESCRIPTOR);
        if descriptor.len() > limit {
            return Err(failure!(
                Exporting,
                "the export descriptor has {} bytes, and the channel carries at most {limit}; use another --channel",
                descriptor.len()
            ));
        }
        session.send(&Message::Export(protocol::Export {
            address: window.region().as_raw().info().addr.0,
            len: len as u64,
            block: plan.block as u32,
            descriptor,
        }))?;
        Ok(Some(Self { export, window }))
    }

    /// Revokes the export. The copy is complete, so it does not matter if the DPU keeps the memory.
    pub(crate) fn revoke(self) {
        if let Err((_, e)) = self.export.revoke(REVOKE_TIMEOUT) {
            tracing::warn!("the DPU still uses the exported memory: {e}");
        }
    }
}
