//! Declarations of the calls of CUDA's driver API that the backend uses, under C's names, and the table of
//! these calls. The signatures and values are those of NVIDIA's public reference of the driver API, and of
//! the declarations in its Python package `cuda-bindings` 13.5.
#![expect(non_camel_case_types, non_snake_case, reason = "declares C's calls under their C names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Handle of a context, stream or event. Only the driver dereferences it. 0 means none.
pub(crate) type Handle = usize;
/// `CUdeviceptr`: an address of device memory, or of host memory that devices reach.
pub(crate) type Address = u64;

/// `CU_STREAM_NON_BLOCKING`: no order with the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE` and `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all contexts.
pub(crate) const HOST_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`: kernels reach the memory too.
pub(crate) const HOST_DEVICE_MAP: c_uint = 2;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
pub(crate) const HOST_READ_ONLY: c_uint = 8;
/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`: sources are read in the stream's order.
pub(crate) const ORDER_STREAM: c_int = 1;

/// `CUdevice_attribute`.
pub(crate) mod attribute {
    pub(crate) const MULTIPROCESSOR_COUNT: i32 = 16;
    pub(crate) const UNIFIED_ADDRESSING: i32 = 41;
    pub(crate) const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: i32 = 91;
    pub(crate) const HOST_REGISTER_SUPPORTED: i32 = 99;
    pub(crate) const READ_ONLY_HOST_REGISTER_SUPPORTED: i32 = 113;
}

/// `CUpointer_attribute`.
pub(crate) mod pointer {
    pub(crate) const CONTEXT: i32 = 1;
    pub(crate) const MEMORY_TYPE: i32 = 2;
    pub(crate) const RANGE_START: i32 = 11;
    pub(crate) const RANGE_SIZE: i32 = 12;
    /// `CU_MEMORYTYPE_DEVICE`.
    pub(crate) const DEVICE: u32 = 2;
}

/// `CUmemcpyAttributes` of CUDA 12.8 and later.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CUmemcpyAttributes {
    /// When sources are read: 1 in stream order, 2 during the call, 3 at any time.
    pub order: c_int,
    /// Type and number of the source's place. The driver uses this hint for managed memory only.
    pub src: [c_int; 2],
    /// Type and number of the destination's place. The driver uses this hint for managed memory only.
    pub dst: [c_int; 2],
    /// Flags.
    pub flags: c_uint,
}

/// `CUhostFn`.
pub(crate) type CUhostFn = unsafe extern "C" fn(*mut c_void);

/// Types of the calls, by their names.
mod types {
    use super::*;

    macro_rules! types {
        ($($call:ident($($arg:ty),* $(,)?);)*) => {
            $(pub(super) type $call = unsafe extern "C" fn($($arg),*) -> c_int;)*
        };
    }
    types! {
        cuInit(c_uint);
        cuDriverGetVersion(*mut c_int);
        cuGetErrorName(c_int, *mut *const c_char);
        cuGetErrorString(c_int, *mut *const c_char);
        cuDeviceGetCount(*mut c_int);
        cuDeviceGet(*mut c_int, c_int);
        cuDeviceGetName(*mut c_char, c_int, c_int);
        cuDeviceGetAttribute(*mut c_int, c_int, c_int);
        cuDeviceGetPCIBusId(*mut c_char, c_int, c_int);
        cuDevicePrimaryCtxRetain(*mut Handle, c_int);
        cuDevicePrimaryCtxRelease_v2(c_int);
        cuCtxPushCurrent_v2(Handle);
        cuCtxPopCurrent_v2(*mut Handle);
        cuMemAlloc_v2(*mut Address, usize);
        cuMemFree_v2(Address);
        cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
        cuMemFreeHost(*mut c_void);
        cuMemHostRegister_v2(*mut c_void, usize, c_uint);
        cuMemHostUnregister(*mut c_void);
        cuPointerGetAttribute(*mut c_void, c_int, Address);
        cuStreamCreate(*mut Handle, c_uint);
        cuStreamDestroy_v2(Handle);
        cuStreamSynchronize(Handle);
        cuStreamWaitEvent(Handle, Handle, c_uint);
        cuEventCreate(*mut Handle, c_uint);
        cuEventDestroy_v2(Handle);
        cuEventRecord(Handle, Handle);
        cuEventQuery(Handle);
        cuMemcpyAsync(Address, Address, usize, Handle);
        cuMemsetD8Async(Address, u8, usize, Handle);
        cuMemsetD16Async(Address, u16, usize, Handle);
        cuMemsetD32Async(Address, c_uint, usize, Handle);
        cuMemsetD2D32Async(Address, usize, c_uint, usize, usize, Handle);
        cuMemcpyBatchAsync(
            *mut Address,
            *mut Address,
            *mut usize,
            usize,
            *mut CUmemcpyAttributes,
            *mut usize,
            usize,
            *mut usize,
            Handle,
        );
        cuMemcpyBatchAsync_v2(
            *const Address,
            *const Address,
            *const usize,
            usize,
            *mut CUmemcpyAttributes,
            *mut usize,
            usize,
            Handle,
        );
        cuEventElapsedTime(*mut f32, Handle, Handle);
        cuModuleLoadDataEx(*mut Handle, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
        cuModuleUnload(Handle);
        cuModuleGetFunction(*mut Handle, Handle, *const c_char);
        cuLaunchKernel(
            Handle,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            c_uint,
            Handle,
            *mut *mut c_void,
            *mut *mut c_void,
        );
        cuLaunchHostFunc(Handle, CUhostFn, *mut c_void);
        cuMemGetHandleForAddressRange(*mut c_void, Address, usize, c_int, u64);
        cuda_emu_model(*mut c_char, c_int);
    }
}

dma_vendor::calls! {
    /// The calls of `libcuda.so.1`.
    pub struct Driver of types;

    required:
    cuInit, cuDriverGetVersion, cuGetErrorName, cuGetErrorString, cuDeviceGetCount, cuDeviceGet, cuDeviceGetName,
    cuDeviceGetAttribute, cuDeviceGetPCIBusId, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRelease_v2,
    cuCtxPushCurrent_v2, cuCtxPopCurrent_v2, cuMemAlloc_v2, cuMemFree_v2, cuMemHostAlloc, cuMemFreeHost,
    cuMemHostRegister_v2, cuMemHostUnregister, cuPointerGetAttribute, cuStreamCreate, cuStreamDestroy_v2,
    cuStreamSynchronize, cuStreamWaitEvent, cuEventCreate, cuEventDestroy_v2, cuEventRecord, cuEventQuery,
    cuMemcpyAsync, cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async, cuMemsetD2D32Async;

    optional:
    cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, cuEventElapsedTime, cuModuleLoadDataEx, cuModuleUnload,
    cuModuleGetFunction, cuLaunchKernel, cuLaunchHostFunc, cuMemGetHandleForAddressRange, cuda_emu_model;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the layout with the one that NVIDIA's Python package prints.
    #[test]
    fn layouts_are_those_of_c() {
        assert_eq!(size_of::<CUmemcpyAttributes>(), 24);
        assert_eq!(std::mem::offset_of!(CUmemcpyAttributes, flags), 20);
    }
}
