//! The entry of I/OAT channels in the registry of backends.

use std::sync::Arc;

use dma_core::StaticBackend;

use crate::{IoatEngine, IoatOptions};

/// The backend `ioat`. If the system has I/OAT functions, discovery sets up SPDK's environment for the
/// process, with the default options.
pub static BACKEND: StaticBackend = StaticBackend {
    name_format: IoatOptions::NAME_FORMAT,
    about: "Intel I/OAT, through SPDK, which is loaded at run time",
    is_hardware: true,
    open: |name| Ok(Arc::new(IoatEngine::open(&IoatOptions::from_name(name)?)?)),
    discover: || crate::discover(&IoatOptions::new()),
    doctor: crate::doctor::findings,
};
