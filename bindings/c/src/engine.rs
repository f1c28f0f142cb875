//! Engines.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CString, c_char};
use std::sync::Arc;

use dma::prelude::*;
use dma::{Error, Result};

use crate::arguments::{Out, OutStruct, invalid, text, write_text};
use crate::error::{c_string, guard};
use crate::handles::{Exclusive, Pin, Table, mark};
use crate::header::*;

/// An engine, with its description as C strings.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) engine: Arc<dyn DmaEngine>,
    backend: CString,
    device: CString,
    version: CString,
    model: Option<CString>,
}

static ENGINES: Table<Engine> = Table::new("engine", mark::ENGINE);

/// Returns the engine of a handle.
pub(crate) fn get(engine: dma_engine) -> Result<Pin<'static, Engine>> {
    ENGINES.get(engine.id)
}

fn open(abi_version: u32, name: &str, flags: u32) -> Result<Engine> {
    if abi_version != DMA_ABI_VERSION {
        let message = format!("the program was built for version {abi_version} of dma.h");
        return Err(Error::new(ErrorKind::VersionMismatch, message).with_hint(format!(
            "build it with the header of version {DMA_ABI_VERSION}, or install that library"
        )));
    }
    if flags & !DMA_OPEN_UNTRUSTED != 0 {
        let message = format!("unknown flags {flags:#x} in dma_open_abi");
        return Err(invalid(message).with_hint("use DMA_OPEN_UNTRUSTED or 0"));
    }
    let engine = if flags & DMA_OPEN_UNTRUSTED == 0 {
        dma::open(name)
    } else {
        dma::parse_untrusted(name).and_then(|name| dma::open_name(&name))
    }?;
    let info = engine.info();
    Ok(Engine {
        backend: c_string(info.backend),
        device: c_string(&info.device),
        version: c_string(&info.version),
        model: info.model.as_deref().map(c_string),
        engine,
    })
}

fn describe(engine: &Engine) -> dma_engine_info {
    let info = engine.engine.info();
    let limits = &info.limits;
    dma_engine_info {
        size: size_of::<dma_engine_info>(),
        backend: engine.backend.as_ptr(),
        device: engine.device.as_ptr(),
        version: engine.version.as_ptr(),
        model: engine.model.as_deref().map_or(std::ptr::null(), |model| model.as_ptr()),
        capabilities: info.capabilities.bits(),
        numa_node: info.numa_node.and_then(|node| i32::try_from(node).ok()).unwrap_or(-1),
        max_transfer: limits.max_transfer,
        max_segments: limits.max_segments,
        max_queue_depth: limits.max_queue_depth,
        default_queue_depth: limits.default_queue_depth,
        max_queues: limits.max_queues.unwrap_or(0),
        register_alignment: limits.register_alignment,
        preferred_alignment: limits.preferred_alignment,
    }
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_open_abi(abi_version: u32, name: *const c_char, flags: u32, engine: *mut dma_engine) {
            // SAFETY: the header requires that `engine` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("engine", engine) }?;
            // SAFETY: the header requires that `name` is NULL or a C string that does not change during
            // the call.
            let name = unsafe { text("name", name) }?;
            let id = ENGINES.insert(open(abi_version, name, flags)?)?;
            out.write(dma_engine { id });
            Ok(())
        }

        fn dma_close(engine: dma_engine) {
            drop(ENGINES.to_close(engine.id)?.map(Exclusive::remove));
            Ok(())
        }

        fn dma_engine_describe(engine: dma_engine, info: *mut dma_engine_info) {
            // SAFETY: the header requires that `info` is NULL or leads to a struct that begins with its
            // size and that this call may write.
            let out = unsafe { OutStruct::new("info", info) }?;
            out.write(describe(&*get(engine)?));
            Ok(())
        }

        fn dma_engine_explain(engine: dma_engine, text: *mut c_char, capacity: usize, len: *mut usize) {
            let explanation = get(engine)?.engine.explain().unwrap_or_default();
            // SAFETY: the header requires that `text` is NULL or leads to `capacity` bytes, `len` is NULL
            // or leads to a number, and this call may write both.
            unsafe { write_text(&explanation, text, capacity, len) }
        }
    }
}
