//! Which engines this machine has.

use dma_core::{DmaEngine, EngineInfo, Error};
use dma_doca::{DocaEngine, DocaOptions};
use dma_ioat::IoatOptions;
use dma_sim::{CpuEngine, CpuOptions, SimEngine, SimOptions};

/// One engine that could be opened, or the reason why not.
#[derive(Debug)]
#[non_exhaustive]
pub struct Discovered {
    /// What [`open`](crate::open) takes.
    pub name: String,
    /// What the engine says of itself, or why it cannot be used and what to do about it.
    pub info: Result<EngineInfo, Error>,
}

/// Lists every engine with its devices, and for each that cannot be used, exactly why and what to do about it.
///
/// Opens each engine for a moment, which may take some milliseconds, and loads the vendors' libraries if they are there: SPDK's environment is then set up
/// for this process, with the default options. A missing SDK or device is an answer, not an error.
#[must_use]
pub fn discover() -> Vec<Discovered> {
    let mut found = vec![
        Discovered { name: "cpu".to_owned(), info: info(CpuEngine::open(&CpuOptions::default())) },
        Discovered { name: "sim".to_owned(), info: info(SimEngine::open(&SimOptions::default())) },
    ];
    found.extend(doca());
    let channels = dma_ioat::discover(&IoatOptions::new());
    found.extend(channels.into_iter().map(|channel| Discovered { name: channel.name, info: channel.info }));
    found
}

fn info(engine: dma_core::Result<impl DmaEngine>) -> dma_core::Result<EngineInfo> {
    engine.map(|engine| engine.info().clone())
}

/// One for each device that the SDK lists; if it lists none or cannot be used, one that says so.
fn doca() -> Vec<Discovered> {
    let devices = dma_doca::discover().unwrap_or_default();
    let mut found: Vec<_> = devices
        .into_iter()
        .map(|device| {
            let name = device.engine_name();
            let info = device.problem.map_or_else(|| crate::open(&name).map(|e| e.info().clone()), Err);
            Discovered { name, info }
        })
        .collect();
    if found.is_empty() {
        found.push(Discovered { name: "doca".to_owned(), info: info(DocaEngine::open(&DocaOptions::new())) });
    }
    found
}
