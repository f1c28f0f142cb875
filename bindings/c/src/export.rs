//! Exports.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_void;
use std::time::Duration;

use dma::{Error, ErrorKind, Export, Result};

use crate::arguments::{Out, OutArray};
use crate::error::guard;
use crate::handles::{Table, mark};
use crate::header::*;
use crate::region;

static EXPORTS: Table<Export> = Table::new("export", mark::EXPORT);

fn revoke(exported: dma_export, timeout: Duration) -> Result<()> {
    EXPORTS.exclusive(exported.id)?.remove_if(|export| export.revoke(timeout))
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_region_export(region: dma_region, offset: usize, len: usize, rights: u32, exported: *mut dma_export) {
            // SAFETY: the header requires that `exported` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("exported", exported) }?;
            let window = region::window(&dma_range { region, offset, len })?;
            let export = window.export(region::access(rights)?)?;
            out.write(dma_export { id: EXPORTS.insert(export)? });
            Ok(())
        }

        fn dma_export_descriptor(exported: dma_export, bytes: *mut c_void, capacity: usize, len: *mut usize) {
            // SAFETY: the header requires that `len` is NULL or leads to a place that this call may
            // write.
            let len = unsafe { Out::new("len", len) }?;
            // SAFETY: the header requires that `bytes` is NULL or leads to `capacity` places that this
            // call may write.
            let mut out = unsafe { OutArray::new("bytes", bytes.cast::<u8>(), capacity) }?;
            let descriptor = EXPORTS.get(exported.id)?.descriptor().to_bytes();
            len.write(descriptor.len());
            if capacity < descriptor.len() {
                let message = format!("the descriptor has {} bytes", descriptor.len());
                return Err(Error::new(ErrorKind::OutOfRange, message)
                    .with_numbers(descriptor.len() as u64, capacity as u64)
                    .with_hint("provide memory for the length that was written"));
            }
            descriptor.iter().for_each(|byte| out.push(*byte));
            Ok(())
        }

        fn dma_export_revoke(exported: dma_export, timeout_ms: u32) {
            revoke(exported, Duration::from_millis(timeout_ms.into()))
        }
    }
}
