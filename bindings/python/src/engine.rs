//! [`Engine`]: an opened engine.
#![expect(unsafe_code, reason = "registers memory of Python's objects")]

use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use dma::contract::DeviceAddr;
use dma::{
    Access, CacheHint, DeviceMemory, DmaEngine, DmaEngineExt, EngineInfo, EngineName, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, Place, QueueOptions, SharedQueueOptions,
};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet};

use crate::arguments::{Bytes, Size, rights, seconds_of};
use crate::buffer::{Buffer, Window};
use crate::core::Core;
use crate::dlpack;
use crate::error::{invalid, raise};
use crate::interpreter::detached;
use crate::memory::Memory;
use crate::pool::{Pool, pool_options};
use crate::queue::{Queue, SharedQueue};

/// An opened engine: a DMA device, or the processor used as one. Any thread may use it.
///
/// Open it by dma.open(name). It stays open while one of its buffers, queues or pools exists.
#[pyclass(name = "Engine", module = "dma", frozen, weakref)]
pub(crate) struct Engine {
    engine: Arc<dyn DmaEngine>,
    name: String,
    /// See [`cuda_number`](Self::cuda_number).
    cuda: OnceLock<Option<i32>>,
}

impl Engine {
    pub(crate) fn new(engine: Arc<dyn DmaEngine>, name: String) -> Self {
        Self { engine, name, cuda: OnceLock::new() }
    }
}

/// Sets the entries of a dict that describes an engine.
pub(crate) fn describe<'py>(py: Python<'py>, info: &EngineInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("backend", info.backend)?;
    dict.set_item("device", &info.device)?;
    dict.set_item("version", &info.version)?;
    dict.set_item("model", info.model.as_deref())?;
    dict.set_item("numa_node", info.numa_node)?;
    let names = info.capabilities.iter_names().map(|(name, _)| name.to_lowercase());
    dict.set_item("capabilities", PyFrozenSet::new(py, names.collect::<Vec<_>>())?)?;
    let limits = PyDict::new(py);
    let of = &info.limits;
    limits.set_item("max_transfer", of.max_transfer)?;
    limits.set_item("max_segments", of.max_segments)?;
    limits.set_item("max_queue_depth", of.max_queue_depth)?;
    limits.set_item("default_queue_depth", of.default_queue_depth)?;
    limits.set_item("max_queues", of.max_queues)?;
    limits.set_item("register_alignment", of.register_alignment)?;
    limits.set_item("preferred_alignment", of.preferred_alignment)?;
    dict.set_item("limits", limits)?;
    Ok(dict)
}

/// Makes the options of a queue from keywords. Times are in seconds.
fn queue_options(
    py: Python<'_>,
    depth: usize,
    hint: &str,
    stall_timeout: f64,
    drop_timeout: f64,
    doorbell_delay: f64,
) -> PyResult<QueueOptions> {
    let hint = match hint {
        "auto" => CacheHint::Auto,
        "hot" => CacheHint::Hot,
        "cold" => CacheHint::Cold,
        _ => {
            let error = invalid(format!("the hint {hint:?}"), "give \"auto\", \"hot\" or \"cold\"");
            return Err(raise(py, &error));
        }
    };
    Ok(QueueOptions::new()
        .with_depth(depth)
        .with_hint(hint)
        .with_stall_timeout(seconds_of(py, stall_timeout)?)
        .with_drop_timeout(seconds_of(py, drop_timeout)?)
        .with_doorbell_delay(seconds_of(py, doorbell_delay)?))
}

#[pymethods]
impl Engine {
    /// The name by which the engine was opened.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The backend's name, such as "cpu", "doca" or "sim".
    #[getter]
    fn backend(&self) -> &'static str {
        self.engine.info().backend
    }

    /// A dict of backend, device, version, model, numa_node, capabilities (a frozenset of names) and limits
    /// (a dict; bytes, or numbers of operations).
    #[getter]
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        describe(py, self.engine.info())
    }

    /// Returns a text for a status page, or None: the decisions of auto, the counts of meter+NAME.
    fn explain(&self) -> Option<String> {
        self.engine.explain()
    }

    /// Allocates memory that the engine can reach, filled with zeros. May block while the system maps and
    /// pins it.
    ///
    /// Args:
    ///     size: bytes, or a text such as "64K".
    ///     align: alignment of the first byte in bytes, a power of two.
    ///     node: the NUMA node to allocate on; None lets the system choose.
    ///     huge_pages: prefers huge pages.
    ///
    /// Raises:
    ///     dma.OutOfMemory (a MemoryError), dma.PermissionDenied (a PermissionError: the limit of locked
    ///     memory),
    ///     dma.InvalidArgument (a ValueError): see the hint.
    #[pyo3(signature = (size, *, align=4096, node=None, huge_pages=false))]
    fn allocate(
        &self,
        py: Python<'_>,
        size: Size,
        align: usize,
        node: Option<u32>,
        huge_pages: bool,
    ) -> PyResult<Buffer> {
        let request =
            MemoryRequest::new(size.0).with_align(align).with_node(node).with_huge_pages(huge_pages);
        let allocated = detached(py, || self.engine.allocate_with(&request));
        let window = allocated.map_err(|e| raise(py, &e))?.share();
        Ok(Buffer::whole(Memory::ruled(window, false)))
    }

    /// Allocates memory as a window: for exports, or the device's own memory.
    ///
    /// Args:
    ///     size: bytes, or a text such as "64K".
    ///     export: the rights that exports may grant: "", "r", "w" or "rw".
    ///     device: allocates the device's own memory, such as a GPU's.
    ///     align, node, huge_pages: as for allocate().
    ///
    /// Raises:
    ///     dma.Unsupported: the engine has no such memory.
    ///     The errors of allocate().
    #[pyo3(signature = (size, *, export="", device=false, align=4096, node=None, huge_pages=false))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn allocate_window(
        &self,
        py: Python<'_>,
        size: Size,
        export: &str,
        device: bool,
        align: usize,
        node: Option<u32>,
        huge_pages: bool,
    ) -> PyResult<Window> {
        let export = if export.is_empty() { Access::empty() } else { rights(py, export)? };
        let place = if device { Place::Device } else { Place::Host };
        let request = MemoryRequest::new(size.0)
            .with_align(align)
            .with_node(node)
            .with_huge_pages(huge_pages)
            .with_place(place)
            .exportable(export);
        let allocated = detached(py, || self.engine.allocate_window(&request));
        let cuda = if device { self.cuda_number(py) } else { None };
        Ok(Window::whole(Memory::unruled(allocated.map_err(|e| raise(py, &e))?, cuda)))
    }

    /// Registers the memory of an object without a copy: a bytearray, a numpy array, an mmap, an array, a
    /// pyarrow buffer, or another object with the buffer protocol; a tensor with `__dlpack__` on the host; or
    /// a GPU's memory with `__cuda_array_interface__` or `__dlpack__`, which becomes a Window. The bytes must
    /// be adjacent.
    ///
    /// The object keeps its memory until the buffer is released: a bytearray cannot be resized until then, an
    /// mmap not closed. A read-only object, such as bytes, can only be a source. Through the object itself,
    /// the program can reach the bytes at any time. While a device writes them, it may read old or new ones.
    ///
    /// Raises:
    ///     TypeError: the object has none of these protocols. BufferError: its bytes are not adjacent.
    ///     dma.PermissionDenied (a PermissionError): the limit of locked memory.
    ///     dma.Unsupported: the engine cannot register such memory.
    fn register(&self, py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        // SAFETY: the call accepts any object.
        let has_buffer = unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) } == 1;
        if !has_buffer {
            if let Ok(interface) = object.getattr("__cuda_array_interface__") {
                return self.register_cuda(py, object, &interface);
            }
            if !object.hasattr("__dlpack__")? {
                let name = object.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "'{name}' has no memory to register; pass an object with the buffer protocol, __dlpack__ or \
                     __cuda_array_interface__, such as a bytearray or a numpy array"
                )));
            }
            if object.is_exact_instance_of::<Window>() {
                return Err(PyTypeError::new_err("a window is registered memory; pass it to operations"));
            }
            return self.register_tensor(py, object, Access::all());
        }
        // Read-only objects refuse a view that can write.
        let bytes = match Bytes::new(object, true).or_else(|_| Bytes::new(object, false)) {
            Ok(bytes) => bytes,
            // The buffer protocol lacks types that DLPack has, such as bfloat16. JAX's arrays must not be
            // written, which their DLPack does not say. If DLPack fails, too, the first error is clearer.
            Err(e) if object.hasattr("__dlpack__")? => {
                return self.register_tensor(py, object, Access::READ).map_err(|_| e);
            }
            Err(e) => return Err(e),
        };
        let (len, read_only) = (bytes.len(), bytes.is_read_only());
        let start = NonNull::new(bytes.as_ptr()).unwrap_or(NonNull::dangling());
        self.register_host(py, start, len, read_only, bytes)
    }

    /// Makes a pool of registered buffers that are reused.
    ///
    /// Args:
    ///     sizes: a dict of the number of buffers of each size, such as {4096: 64, "1M": 8}.
    ///     max: a dict of the number of buffers to which a size may grow.
    ///     label: the name in warnings and metrics.
    ///     node: the NUMA node to allocate on.
    ///     wait_warning: seconds after which a wait for a buffer is logged.
    ///
    /// Raises:
    ///     The errors of allocate().
    #[pyo3(signature = (sizes, *, max=None, label="", node=None, wait_warning=5.0))]
    fn pool(
        &self,
        py: Python<'_>,
        sizes: &Bound<'_, PyDict>,
        max: Option<&Bound<'_, PyDict>>,
        label: &str,
        node: Option<u32>,
        wait_warning: f64,
    ) -> PyResult<Pool> {
        let (options, grows) = pool_options(sizes, max)?;
        let options = options.with_node(node).with_wait_warning(seconds_of(py, wait_warning)?);
        let options = if label.is_empty() { options } else { options.with_label(label.to_owned()) };
        let engine = Arc::clone(&self.engine);
        let pool = detached(py, || {
            if grows {
                dma::BufferPool::growing(engine, &options)
            } else {
                dma::BufferPool::new(&*engine, &options)
            }
        });
        Ok(Pool(pool.map_err(|e| raise(py, &e))?))
    }

    /// Imports a peer's memory, by the descriptor of its export. May block for a bounded time.
    ///
    /// Raises:
    ///     dma.Malformed (a ValueError): the bytes are no descriptor.
    ///     dma.Revoked (a ConnectionResetError): the peer has revoked the export or has exited.
    ///     dma.Unsupported: the engine cannot import this memory.
    fn import_window(&self, py: Python<'_>, descriptor: &[u8]) -> PyResult<Window> {
        let imported = ExportDescriptor::from_bytes(descriptor)
            .and_then(|descriptor| detached(py, || self.engine.import(&descriptor)));
        Ok(Window::whole(Memory::unruled(imported.map_err(|e| raise(py, &e))?, None)))
    }

    /// Opens a queue for one thread at a time: a call while another thread uses the queue raises InUse. It is
    /// faster than a shared queue, and has fences.
    ///
    /// Args:
    ///     depth: the maximum number of operations in flight; 0 for the engine's default.
    ///     hint: "hot" if the data is in the caches, "cold" if it is used once, "auto" to measure.
    ///     stall_timeout: seconds after which a device that completes nothing counts as stalled.
    ///     drop_timeout: seconds that dropping the queue waits for operations in flight.
    ///     doorbell_delay: seconds that an awaited operation may wait for others, to share a doorbell.
    ///
    /// Raises:
    ///     dma.OutOfRange (a ValueError): the depth exceeds the engine's limit.
    ///     dma.OutOfResources: the device has no more channels.
    #[pyo3(signature = (*, depth=0, hint="auto", stall_timeout=30.0, drop_timeout=5.0, doorbell_delay=50e-6))]
    fn queue(
        slf: &Bound<'_, Self>,
        depth: usize,
        hint: &str,
        stall_timeout: f64,
        drop_timeout: f64,
        doorbell_delay: f64,
    ) -> PyResult<Queue> {
        let py = slf.py();
        let options = queue_options(py, depth, hint, stall_timeout, drop_timeout, doorbell_delay)?;
        let engine = &slf.get().engine;
        let core = detached(py, || engine.open_queue(&options).map(|queue| Core::local(queue, &options)));
        Ok(Queue::new(core.map_err(|e| raise(py, &e))?))
    }

    /// Opens a queue that any number of threads and tasks use at the same time.
    ///
    /// Args:
    ///     lanes: the number of device queues, each with a thread of its own.
    ///     cores: the numbers of the cores that these threads may run on; empty for all.
    ///     depth, hint, stall_timeout, drop_timeout, doorbell_delay: as for queue(), for each lane.
    ///
    /// Raises:
    ///     The errors of queue().
    #[pyo3(signature = (*, lanes=1, cores=Vec::new(), depth=0, hint="auto", stall_timeout=30.0, drop_timeout=5.0, doorbell_delay=50e-6))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn shared_queue(
        &self,
        py: Python<'_>,
        lanes: usize,
        cores: Vec<usize>,
        depth: usize,
        hint: &str,
        stall_timeout: f64,
        drop_timeout: f64,
        doorbell_delay: f64,
    ) -> PyResult<SharedQueue> {
        let options = queue_options(py, depth, hint, stall_timeout, drop_timeout, doorbell_delay)?;
        let options = SharedQueueOptions::new().with_lanes(lanes).with_cores(cores).with_queue(options);
        let queue = detached(py, || self.engine.open_shared_queue(&options)).map_err(|e| raise(py, &e))?;
        Ok(SharedQueue::new(Core::shared(queue, &options.queue)))
    }

    fn __repr__(&self) -> String {
        format!("dma.open({:?})", self.name)
    }
}

impl Engine {
    /// Registers the `len` bytes at `start`, which `owner` keeps.
    fn register_host(
        &self,
        py: Python<'_>,
        start: NonNull<u8>,
        len: usize,
        read_only: bool,
        owner: impl Send + Sync + 'static,
    ) -> PyResult<Py<PyAny>> {
        // SAFETY: the owner keeps the bytes mapped and in place: it is an export of the buffer protocol, or a
        // tensor that is not deleted. Python's code may access them at any time, which the function allows.
        // They are writable unless the registration is read-only. No reference to them exists in Rust.
        let memory = unsafe { HostMemory::from_shared(start, len, owner) };
        let access = if read_only { Access::READ } else { Access::all() };
        let request = MemoryRequest::new(0).with_access(access);
        let window =
            detached(py, || self.engine.register_window(memory, &request)).map_err(|e| raise(py, &e))?;
        Ok(Py::new(py, Buffer::whole(Memory::ruled(window, read_only)))?.into_any())
    }

    /// Registers the tensor of an object with `__dlpack__`, for this access at most.
    fn register_tensor(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        access: Access,
    ) -> PyResult<Py<PyAny>> {
        let tensor = dlpack::import(object)?;
        let (start, len, read_only) = (tensor.start, tensor.len, tensor.read_only || access == Access::READ);
        let Some(number) = tensor.cuda else {
            return self.register_host(py, start, len, read_only, tensor.into_owner());
        };
        if self.engine.info().backend == "cuda" && self.cuda_number(py) != Some(number) {
            let error = Error::new(ErrorKind::Unsupported, format!("memory of CUDA's device {number}"))
                .with_hint(format!("open the engine `cuda:{number}`"));
            return Err(raise(py, &error));
        }
        let at = DeviceAddr(start.addr().get() as u64);
        self.register_gpu(py, at, len, read_only, tensor.into_owner())
    }

    /// Registers a GPU's memory by CUDA's array interface.
    fn register_cuda(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        interface: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let (addr, read_only): (u64, bool) = interface.get_item("data")?.extract()?;
        let shape: Vec<usize> = interface.get_item("shape")?.extract()?;
        let kind: String = interface.get_item("typestr")?.extract()?;
        let item = kind.get(2..).and_then(|size| size.parse::<usize>().ok());
        let strides = interface.get_item("strides").ok().filter(|strides| !strides.is_none());
        let len = shape.iter().try_fold(item.unwrap_or(0), |len, extent| len.checked_mul(*extent));
        let (Some(len), None) = (len.filter(|_| item.is_some()), strides) else {
            let error = invalid("an array whose elements are not adjacent", "make it contiguous");
            return Err(raise(py, &error));
        };
        let owner: Py<PyAny> = object.clone().unbind();
        self.register_gpu(py, DeviceAddr(addr), len, read_only, owner)
    }

    /// Registers the `len` bytes of a GPU's memory at `addr`, which `owner` keeps.
    fn register_gpu(
        &self,
        py: Python<'_>,
        addr: DeviceAddr,
        len: usize,
        read_only: bool,
        owner: impl Send + Sync + 'static,
    ) -> PyResult<Py<PyAny>> {
        if self.engine.info().backend != "cuda" {
            // Another engine might take the address for one of the host, which a wrong object could choose.
            let error =
                Error::new(ErrorKind::Unsupported, "this engine cannot register a GPU's memory by address")
                    .with_hint("open the engine `cuda`");
            return Err(raise(py, &error));
        }
        // SAFETY: the object keeps the memory, as CUDA's array interface and DLPack say. No reference to a
        // GPU's memory exists.
        let memory = unsafe { DeviceMemory::from_raw(addr, len, owner) };
        let access = if read_only { Access::READ } else { Access::all() };
        let request = MemoryRequest::new(0).with_access(access);
        let window =
            detached(py, || self.engine.register_device_with(memory, &request)).map_err(|e| raise(py, &e))?;
        Ok(Py::new(py, Window::whole(Memory::unruled(window, self.cuda_number(py))))?.into_any())
    }

    /// Returns CUDA's number of the engine's device, by which other libraries know it. `None` for other
    /// engines.
    fn cuda_number(&self, py: Python<'_>) -> Option<i32> {
        let info = self.engine.info();
        if info.backend != "cuda" {
            return None;
        }
        if let Some(number) = self.cuda.get() {
            return *number;
        }
        // Wrappers such as `verify+` precede the engine's own name.
        let head = self.name.split(':').next()?;
        let own = self.name.get(head.rfind('+').map_or(0, |at| at + 1)..)?;
        let name: EngineName = own.parse().ok()?;
        let number = match name.device() {
            None => Some(0),
            Some(device) => device.parse().ok().or_else(|| detached(py, || number_of(&name, &info.device))),
        };
        *self.cuda.get_or_init(|| number)
    }
}

/// Returns CUDA's number of a device. Opens the devices in the order of their numbers, with the options of
/// `like`, until one has this description.
fn number_of(like: &EngineName, description: &str) -> Option<i32> {
    for number in 0.. {
        let mut name = EngineName::new(like.backend()).and_then(|name| name.with_device(number.to_string()));
        for (key, value) in like.options() {
            name = name.and_then(|name| name.with_option(key, value));
        }
        let engine = name.and_then(|name| dma::open_name(&name)).ok()?;
        if engine.info().device == description {
            return Some(number);
        }
    }
    None
}
