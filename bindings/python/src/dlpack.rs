//! DLPack: tensors without a copy, from and to other libraries. Declarations of DLPack 1.x.
#![expect(unsafe_code, reason = "DLPack is an interface of C structs")]

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};

use dma::{Error, ErrorKind};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{invalid, raise};

/// A device: kind and number. Kind 1 is the host.
pub(crate) const HOST: (i32, i32) = (1, 0);
/// The kind of CUDA's devices.
pub(crate) const CUDA: i32 = 2;
/// Host memory that CUDA has pinned.
const CUDA_HOST: i32 = 3;

const NAME: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";
const READ_ONLY: u64 = 1;

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    data_type: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// The owned values of an exported tensor.
struct Context {
    shape: i64,
    stride: i64,
    _owner: Box<dyn Any + Send>,
}

/// Bytes to export.
pub(crate) struct Source {
    pub(crate) data: *mut c_void,
    pub(crate) len: usize,
    pub(crate) read_only: bool,
    pub(crate) device: (i32, i32),
}

/// Checks the arguments of `__dlpack__` of memory of the device `own`.
///
/// # Errors
///
/// `BufferError` for another device or a copy, as the protocol says.
pub(crate) fn check_request(own: (i32, i32), device: Option<(i32, i32)>, copy: Option<bool>) -> PyResult<()> {
    if copy == Some(true) {
        return Err(PyBufferError::new_err(
            "a copy is not made: copy the buffer by a queue, or use tobytes()",
        ));
    }
    if device.is_some_and(|device| device != own) {
        return Err(PyBufferError::new_err(format!(
            "the memory is on the device {own:?}: leave dl_device out, and copy the memory by a queue"
        )));
    }
    Ok(())
}

/// Makes the capsule of a tensor of bytes. `owner` is dropped when the consumer is done.
pub(crate) fn export(
    py: Python<'_>,
    source: &Source,
    max_version: Option<(u32, u32)>,
    owner: Box<dyn Any + Send>,
) -> PyResult<Py<PyAny>> {
    let is_versioned = max_version.is_some_and(|(major, _)| major >= 1);
    if source.read_only && !is_versioned {
        return Err(PyBufferError::new_err(
            "the memory is read-only, which only DLPack 1.0 can say: use a newer library, or numpy.frombuffer",
        ));
    }
    let context = Box::into_raw(Box::new(Context { shape: source.len as i64, stride: 1, _owner: owner }));
    let tensor = Tensor {
        data: source.data,
        device: Device { kind: source.device.0, number: source.device.1 },
        dimensions: 1,
        data_type: DataType { code: 1, bits: 8, lanes: 1 },
        // SAFETY: the box was just made, and lives until the deleter frees it.
        shape: unsafe { &raw mut (*context).shape },
        // SAFETY: the box was just made, and its field does not move until the deleter frees it.
        strides: unsafe { &raw mut (*context).stride },
        byte_offset: 0,
    };
    let context = context.cast::<c_void>();
    let capsule = if is_versioned {
        let flags = if source.read_only { READ_ONLY } else { 0 };
        let deleter: Option<unsafe extern "C" fn(*mut Versioned)> = Some(delete_versioned);
        let managed =
            Box::into_raw(Box::new(Versioned { major: 1, minor: 0, context, deleter, flags, tensor }));
        // SAFETY: the pointer and the name are valid while the capsule exists: the consumer renames it when
        // it takes the tensor.
        unsafe { ffi::PyCapsule_New(managed.cast(), VERSIONED.as_ptr(), Some(drop_capsule)) }
    } else {
        let deleter: Option<unsafe extern "C" fn(*mut Managed)> = Some(delete_managed);
        let managed = Box::into_raw(Box::new(Managed { tensor, context, deleter }));
        // SAFETY: the pointer and the name are valid until the capsule is dropped or the consumer has renamed
        // it.
        unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(drop_capsule)) }
    };
    // SAFETY: the call returns a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
}

/// # Safety
///
/// `managed` is a tensor of `export` that was not deleted.
unsafe extern "C" fn delete_managed(managed: *mut Managed) {
    // SAFETY: the pointer came from a box, and a tensor is deleted once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `export` made the context from a box, which only the deleter frees.
    drop(unsafe { Box::from_raw(managed.context.cast::<Context>()) });
}

/// # Safety
///
/// `managed` is a tensor of `export` that was not deleted.
unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: the pointer came from a box, and a tensor is deleted once.
    let managed = unsafe { Box::from_raw(managed) };
    // SAFETY: `export` made the context from a box, which only the deleter frees.
    drop(unsafe { Box::from_raw(managed.context.cast::<Context>()) });
}

/// Deletes the tensor of a capsule that nobody has taken.
///
/// # Safety
///
/// `capsule` is a capsule of `export`.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is alive, and Python calls this in an attached thread.
    if unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } == 1 {
        // SAFETY: the capsule is alive, and its name was checked.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()) };
        // SAFETY: nobody has taken the tensor, because the capsule still has its name.
        unsafe { delete_versioned(managed.cast()) };
    // SAFETY: the capsule is alive, and any name may be asked for.
    } else if unsafe { ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) } == 1 {
        // SAFETY: the capsule is alive, and its name was checked.
        let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()) };
        // SAFETY: nobody has taken the tensor, because the capsule still has its name.
        unsafe { delete_managed(managed.cast()) };
    }
}

/// A tensor of another library, which is deleted when this value is dropped.
enum Owner {
    Managed(NonNull<Managed>),
    Versioned(NonNull<Versioned>),
}

// SAFETY: DLPack lets any thread delete a tensor; this package does so attached to Python.
unsafe impl Send for Owner {}
// SAFETY: a shared reference gives no access.
unsafe impl Sync for Owner {}

impl Drop for Owner {
    fn drop(&mut self) {
        // After the interpreter's end, its objects are not released any more.
        let _ = Python::try_attach(|_| match self {
            Self::Managed(managed) => {
                // SAFETY: `import` took the tensor, which lives until its deleter is called, here.
                if let Some(delete) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: this value owns the tensor, and is not used afterwards.
                    unsafe { delete(managed.as_ptr()) };
                }
            }
            Self::Versioned(managed) => {
                // SAFETY: `import` took the tensor, which lives until its deleter is called, here.
                if let Some(delete) = unsafe { managed.as_ref() }.deleter {
                    // SAFETY: this value owns the tensor, and is not used afterwards.
                    unsafe { delete(managed.as_ptr()) };
                }
            }
        });
    }
}

/// The bytes of a tensor of another library.
pub(crate) struct Imported {
    pub(crate) start: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) read_only: bool,
    /// CUDA's number of the device; `None` for memory of the host.
    pub(crate) cuda: Option<i32>,
    owner: Owner,
}

impl Imported {
    /// Returns the owner, which keeps the bytes.
    pub(crate) fn into_owner(self) -> impl Send + Sync + 'static {
        self.owner
    }
}

/// Takes the tensor of an object with `__dlpack__`. It must be on the host or a device of CUDA, and its
/// elements adjacent.
///
/// # Errors
///
/// The exceptions of the object; `Unsupported` for memory of another device; `InvalidArgument` for other
/// tensors.
pub(crate) fn import(object: &Bound<'_, PyAny>) -> PyResult<Imported> {
    let py = object.py();
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if ![HOST.0, CUDA_HOST, CUDA].contains(&kind) {
        let error = Error::new(ErrorKind::Unsupported, format!("DLPack memory of a device of kind {kind}"))
            .with_hint("register memory of the host or of a CUDA device");
        return Err(raise(py, &error));
    }
    let keywords = pyo3::types::PyDict::new(py);
    keywords.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&keywords)) {
        Err(e) if e.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => {
            object.call_method0("__dlpack__")?
        }
        capsule => capsule?,
    };
    let capsule = capsule.as_ptr();
    // SAFETY: the object is alive. The call accepts any object.
    let is_versioned = unsafe { ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) } == 1;
    let (name, used) = if is_versioned { (VERSIONED, VERSIONED_USED) } else { (NAME, USED) };
    // SAFETY: the object is alive; without such a capsule, the call sets an exception.
    let Some(managed) = NonNull::new(unsafe { ffi::PyCapsule_GetPointer(capsule, name.as_ptr()) }) else {
        return Err(PyErr::fetch(py));
    };
    let (owner, tensor, flags) = if is_versioned {
        let managed = managed.cast::<Versioned>();
        // SAFETY: the capsule's name says what it points to, and nobody has taken it.
        let of = unsafe { managed.as_ref() };
        if of.major != 1 {
            return Err(raise(py, &invalid(format!("DLPack of version {}", of.major), "use DLPack 1.x")));
        }
        (Owner::Versioned(managed), &of.tensor, of.flags)
    } else {
        let managed = managed.cast::<Managed>();
        // SAFETY: the capsule's name says what it points to, and nobody has taken it.
        (Owner::Managed(managed), &unsafe { managed.as_ref() }.tensor, 0)
    };
    // SAFETY: the capsule is alive. From here on, this package owns the tensor.
    if unsafe { ffi::PyCapsule_SetName(capsule, used.as_ptr()) } != 0 {
        std::mem::forget(owner);
        return Err(PyErr::fetch(py));
    }
    // The first answer has chosen how the program may use the address.
    if (tensor.device.kind, tensor.device.number) != (kind, number) {
        return Err(raise(
            py,
            &invalid(
                "a tensor of another device than `__dlpack_device__` says",
                "pass a tensor of one device",
            ),
        ));
    }
    let bytes = size(tensor).ok_or_else(|| {
        raise(
            py,
            &invalid(
                "a tensor whose elements are not adjacent",
                "make it contiguous, for example by .contiguous()",
            ),
        )
    })?;
    let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    let start =
        if bytes == 0 { NonNull::dangling() } else { NonNull::new(start).unwrap_or(NonNull::dangling()) };
    if bytes > 0 && ptr::eq(start.as_ptr(), NonNull::dangling().as_ptr()) {
        return Err(raise(py, &invalid("a tensor without memory", "allocate it first")));
    }
    let cuda = (kind == CUDA).then_some(number);
    Ok(Imported { start, len: bytes, read_only: flags & READ_ONLY != 0, cuda, owner })
}

/// Returns the bytes of a tensor with adjacent elements in C's order.
fn size(tensor: &Tensor) -> Option<usize> {
    let dimensions = usize::try_from(tensor.dimensions).ok()?;
    let of = |pointer: *mut i64, at: usize| {
        // SAFETY: DLPack says that shape and strides have an entry for each dimension.
        unsafe { *pointer.wrapping_add(at) }
    };
    let bits = usize::from(tensor.data_type.bits) * usize::from(tensor.data_type.lanes);
    let mut elements = 1_i64;
    for at in (0..dimensions).rev() {
        let extent = of(tensor.shape, at);
        if !tensor.strides.is_null() && extent > 1 && of(tensor.strides, at) != elements {
            return None;
        }
        elements = elements.checked_mul(extent)?;
    }
    usize::try_from(elements).ok()?.checked_mul(bits).map(|bits| bits.div_ceil(8))
}
