//! `dma._dma`, the native part of the Python package `dma`: classes over the safe API of the crate `dma`.
//!
//! - `memory` has the rule for memory that both Python and devices use, `buffer` the classes of memory.
//! - `queue` submits operations. `operation` hides their types, and `transfer` waits for them.
//! - `core` has the queue behind a queue's object, and operations whose transfers were dropped.
//! - `interpreter` protects the state of these objects, with and without Python's global lock.

mod arguments;
mod batch;
mod buffer;
mod core;
mod device_files;
mod device_queue;
mod dlpack;
mod engine;
mod error;
mod export;
mod files;
mod interpreter;
mod memory;
mod notifier;
mod operand;
mod operation;
mod pool;
mod queue;
mod reports;
mod submission;
mod transfer;
mod view;

use pyo3::prelude::*;

use interpreter::detached;

/// Opens an engine by name, such as "auto", "cpu:threads=2", "sim:seed=7,faults=reset@1" or "verify+cpu".
///
/// A name is trusted like a command line: for names from elsewhere, pass untrusted=True, which refuses
/// options that load code or choose files.
///
/// Raises:
///     dma.InvalidArgument, dma.OutOfRange (ValueErrors): the name or an option does not exist; the hint
///     lists those that do.
///     dma.MissingSdk (a FileNotFoundError): the vendor's library cannot be used.
///     dma.NotFound (a FileNotFoundError): the device does not exist.
#[pyfunction]
#[pyo3(signature = (name="auto", *, untrusted=false))]
fn open(py: Python<'_>, name: &str, untrusted: bool) -> PyResult<engine::Engine> {
    let opened =
        detached(
            py,
            || if untrusted { dma::open_name(&dma::parse_untrusted(name)?) } else { dma::open(name) },
        );
    Ok(engine::Engine::new(opened.map_err(|e| error::raise(py, &e))?, name.to_owned()))
}

// Interpreters without the global lock run this module in parallel: see `interpreter::State`.
#[pymodule(gil_used = false)]
fn _dma(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(open, module)?)?;
    module.add_function(wrap_pyfunction!(reports::discover, module)?)?;
    module.add_function(wrap_pyfunction!(reports::doctor, module)?)?;
    module.add_function(wrap_pyfunction!(reports::backends, module)?)?;
    module.add_function(wrap_pyfunction!(core::close_all, module)?)?;
    module.add_class::<batch::PyBatch>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<export::PyExport>()?;
    module.add_class::<device_files::DeviceFiles>()?;
    module.add_class::<files::File>()?;
    // Its name is that of `dma.files`.
    module.add("FileQueue", module.py().get_type::<files::FileQueue>())?;
    module.add_class::<notifier::Notifier>()?;
    module.add_class::<operand::Rows>()?;
    module.add_class::<pool::Pool>()?;
    module.add_class::<queue::Queue>()?;
    module.add_class::<queue::SharedQueue>()?;
    module.add_class::<transfer::PyTransfer>()?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<buffer::Window>()?;
    Ok(())
}
