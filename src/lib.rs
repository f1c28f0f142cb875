//! One API for hardware memory copies.
//!
//! Write a copy once, against [`DmaEngine`], and run it on any engine: chosen by name, by [`open`].
//!
//! ```
//! use dma::prelude::*;
//!
//! let engine = dma::open("auto")?;
//! let queue = engine.open_queue(&QueueOptions::new())?;
//!
//! let mut src = engine.allocate(1 << 20)?;
//! src.fill(7);
//! let dst = engine.allocate(1 << 20)?;
//!
//! // The buffers move into the operation and come back when the device is done with them.
//! let (src, dst) = queue.copy(src, dst)?.wait()?;
//! assert_eq!(src[..], dst[..]);
//! # Ok::<(), dma::Error>(())
//! ```
//!
//! | name | engine |
//! |---|---|
//! | `auto` | the best that this machine has: today `cpu` |
//! | `cpu` | [`sim::CpuEngine`]: copies with the CPU's fastest instructions, on as many threads as it has; real, and the default |
//! | `sim` | [`sim::SimEngine`]: a simulated device, deterministic, as slow, reordered and broken as real ones can be |
//! | `doca:03:00.0` | [`doca::DocaEngine`]: an NVIDIA BlueField through its SDK, which is loaded at run time |
//! | `ioat:00:04.0` | [`ioat::IoatEngine`]: Intel I/OAT through SPDK, which is loaded at run time |
//!
//! [`discover`] lists what there is on this machine. The documentation of `dma-core` describes the contract and the safe API, all of which is
//! re-exported here; those of `dma-sim`, `dma-doca` and `dma-ioat` the engines.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `conformance` | no | `dma::conformance` and `dma::conformance_tests!`: what every engine must do, for a backend of your own to run |
//!
//! All engines are always there: they need nothing to be installed before they are opened.

mod discover;
mod name;

use std::sync::Arc;

pub use discover::{Discovered, discover};
#[doc(inline)]
pub use dma_core::*;
pub use dma_doca as doca;
pub use dma_ioat as ioat;
pub use dma_sim as sim;
pub use name::{DeviceName, EngineName};

/// What most programs need: the traits, and the types that go into calls.
pub mod prelude {
    pub use dma_core::{
        Access, Batch, Buffer, BufferMut, CacheHint, DmaEngine, DmaEngineExt, ErrorKind, HostMemory,
        MemoryRequest, QueueOptions, SharedQueueOptions, Window,
    };
}

/// Opens an engine by name.
///
/// `auto` is the best engine of this machine: today always `cpu`. `cpu` takes the options of [`sim::CpuOptions::set`], `sim` those of
/// [`sim::SimOptions::set`](dma_sim::sim::SimOptions::set), as `cpu:threads=2` or `sim:seed=7,profile=bluefield3,faults=fail@5`. `doca:03:00.0` is a BlueField's
/// device, `doca` the first that has DMA; both take the options of [`doca::DocaOptions::set`]. `ioat:00:04.0` is a channel of I/OAT, `ioat` all that this process can have,
/// one for each queue; both take the options of [`ioat::IoatOptions::set`].
///
/// # Errors
///
/// `InvalidArgument` or `OutOfRange` for a name, option or value that does not exist, saying what would have been right; what opening the
/// engine answers: `MissingSdk` if the vendor's libraries cannot be used, `NotFound` if there is no such device.
pub fn open(name: &str) -> Result<Arc<dyn DmaEngine>> {
    let named = |e: Error| e.with_operation(format!("open engine `{name}`"));
    match name.parse().map_err(named)? {
        EngineName::Auto => Ok(Arc::new(sim::CpuEngine::open(&sim::CpuOptions::default()).map_err(named)?)),
        EngineName::Cpu(pairs) => {
            let mut options = sim::CpuOptions::default();
            for (key, value) in pairs {
                options.set(&key, &value).map_err(named)?;
            }
            Ok(Arc::new(sim::CpuEngine::open(&options).map_err(named)?))
        }
        EngineName::Sim(pairs) => {
            let mut options = sim::SimOptions::default();
            for (key, value) in pairs {
                options.set(&key, &value).map_err(Error::from).map_err(named)?;
            }
            Ok(Arc::new(sim::SimEngine::open(&options).map_err(named)?))
        }
        EngineName::Doca(device) => {
            let mut options = doca::DocaOptions::new();
            options.address = device.address.map(|address| address.to_string());
            for (key, value) in &device.options {
                options.set(key, value).map_err(named)?;
            }
            Ok(Arc::new(doca::DocaEngine::open(&options).map_err(named)?))
        }
        EngineName::Ioat(device) => {
            let mut options = ioat::IoatOptions::new();
            if let Some(address) = device.address {
                options.set("address", &address.to_string()).map_err(named)?;
            }
            for (key, value) in &device.options {
                options.set(key, value).map_err(named)?;
            }
            Ok(Arc::new(ioat::IoatEngine::open(&options).map_err(named)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_that_is_discovered_opens_by_its_name() {
        let found = discover();
        assert!(found.iter().any(|d| d.name == "cpu" && d.info.is_ok()), "the CPU is always there");
        for Discovered { name, info } in found {
            match (open(&name), info) {
                (Ok(engine), Ok(info)) => assert_eq!(engine.info().backend, info.backend),
                (Err(e), Err(why)) => {
                    assert_eq!(e.kind(), why.kind());
                    assert!(!e.hint().is_empty(), "it says what to do: {e}");
                }
                (opened, info) => panic!("{name}: discovered {info:?}, opened {opened:?}"),
            }
        }
    }

    #[test]
    fn bad_options_say_what_would_have_been_right() {
        for (name, kinds, says) in [
            ("cpu:thread=2", &[ErrorKind::InvalidArgument][..], "threads"),
            ("cpu:threads=many", &[ErrorKind::InvalidArgument], "number"),
            ("cpu:threads=100000", &[ErrorKind::OutOfRange], "100000"),
            ("sim:profile=bluefield9", &[ErrorKind::InvalidArgument], "bluefield3"),
            ("sim:seed=x", &[ErrorKind::InvalidArgument], "seed"),
            ("sim:faults=fial@5", &[ErrorKind::InvalidArgument], "fial"),
            ("sim:color=red", &[ErrorKind::InvalidArgument], "profile"),
            ("doca:03:00.0,colour=red", &[ErrorKind::InvalidArgument], "interface"),
            ("doca:03:00.0,depth=0", &[ErrorKind::InvalidArgument], "depth"),
            ("ioat:00:04.0,colour=red", &[ErrorKind::InvalidArgument], "cores"),
            ("ioat:00:04.0,lib=/nowhere", &[ErrorKind::MissingSdk], "/nowhere"),
            ("doca:03:00.0,lib=/nowhere", &[ErrorKind::MissingSdk], "/nowhere"),
        ] {
            let e = open(name).expect_err(name);
            assert!(kinds.contains(&e.kind()), "{name}: {e}");
            assert!(e.to_string().contains(says), "{name} should mention {says}: {e}");
            assert!(e.to_string().contains(name), "{name} should be named: {e}");
        }
    }
}
