//! The kernel that copies the pieces of a table.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::ptr;

use dma_core::{Error, ErrorKind};

use crate::device::Device;
use crate::driver::{Address, Driver, Handle, attribute};
use crate::error::{self, error};

/// A piece, as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(super) src: Address,
    pub(super) dst: Address,
    pub(super) len: u64,
}

/// The kernel's text. The driver compiles it for the device.
const TEXT: &CStr = {
    const BYTES: &str = concat!(include_str!("pieces.ptx"), "\0");
    match CStr::from_bytes_with_nul(BYTES.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the text has a NUL"),
    }
};
/// Threads of a block: the text's `.maxntid`.
const THREADS: u32 = 256;
const WARPS: usize = THREADS as usize / 32;
/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG_OPTIONS: [c_int; 2] = [5, 6];
const LOG_LEN: usize = 1024;
/// The text uses instructions that devices have from this compute capability on.
const CAPABILITY_MIN: c_int = 7;

/// The compiled kernel of a context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    module: Handle,
    function: Handle,
}

/// The reason for which a device has no kernel.
#[derive(Clone, Debug)]
pub(crate) struct KernelError {
    reason: String,
    code: Option<c_int>,
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl KernelError {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), code: None }
    }

    fn failed(driver: &Driver, what: &str, code: c_int) -> Self {
        let native = crate::device::explain(driver, code);
        Self { reason: format!("{what}: {native}"), code: Some(code) }
    }

    /// Returns the error for an engine that must have the kernel.
    pub(crate) fn to_error(&self, driver: &Driver) -> Error {
        let kind = self.code.map_or(ErrorKind::Unsupported, |code| match error::kind(code) {
            ErrorKind::DeviceFault | ErrorKind::InvalidArgument => ErrorKind::Unsupported,
            kind => kind,
        });
        let made = error(kind, format!("the kernel of `pieces=kernel` cannot be used: {}", self.reason))
            .with_hint("leave `pieces` out: then the engine uses the driver's copies alone");
        match self.code {
            Some(code) => made.with_native(crate::device::explain(driver, code)),
            None => made,
        }
    }
}

impl Kernel {
    /// Compiles the kernel.
    pub(crate) fn load(device: &Device) -> Result<Self, KernelError> {
        let driver = &device.driver;
        let calls = (
            driver.cuModuleLoadDataEx,
            driver.cuModuleGetFunction,
            driver.cuModuleUnload,
            driver.cuLaunchKernel,
        );
        let (Some(load), Some(get), Some(unload), Some(_)) = calls else {
            return Err(KernelError::new("the driver lacks calls for kernels"));
        };
        let capability = device.attribute(attribute::COMPUTE_CAPABILITY_MAJOR);
        if capability < CAPABILITY_MIN {
            let reason = format!(
                "the device has compute capability {capability}, and the kernel needs {CAPABILITY_MIN}.0"
            );
            return Err(KernelError::new(reason));
        }
        // Elsewhere, registered memory has another address for the device.
        if device.attribute(attribute::CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM) == 0 {
            return Err(KernelError::new(
                "the device does not reach registered memory at the CPU's addresses",
            ));
        }
        let (mut module, mut function, mut log) = (0, 0, [0_u8; LOG_LEN]);
        let mut options = LOG_OPTIONS;
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_LEN)];
        // SAFETY: the text ends in NUL. The options have a buffer and its length, which are valid during the
        // call. The call writes the module to a local variable.
        let loaded = device.call(|_| unsafe {
            load(&raw mut module, TEXT.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr())
        });
        if let Err(code) = loaded {
            let mut failed = KernelError::failed(driver, "the driver does not compile it", code);
            let log = CStr::from_bytes_until_nul(&log).map(CStr::to_string_lossy).unwrap_or_default();
            if let Some(line) = log.lines().find(|line| !line.trim().is_empty()) {
                failed.reason = format!("{}: {}", failed.reason, line.trim());
            }
            return Err(failed);
        }
        // SAFETY: the module was loaded, and the call writes the function to a local variable.
        let found = device.call(|_| unsafe { get(&raw mut function, module, c"dma_copy_pieces".as_ptr()) });
        if let Err(code) = found {
            // SAFETY: nothing uses the module.
            let _ = device.call(|_| unsafe { unload(module) });
            return Err(KernelError::failed(driver, "the driver does not find it", code));
        }
        Ok(Self { module, function })
    }

    /// Unloads the kernel, which no queue uses any more.
    pub(crate) fn unload(self, device: &Device) {
        if let Some(unload) = device.driver.cuModuleUnload {
            // SAFETY: `load` loaded the module, and no launch is in progress.
            let _ = device.call(|_| unsafe { unload(self.module) });
        }
    }

    /// Launches the kernel for `number` entries of a table.
    ///
    /// # Safety
    ///
    /// The context is current, and the stream belongs to it. The entries lie in pinned memory, and name
    /// memory that the kernel reaches. All of it is valid until the stream has executed the launch.
    pub(crate) unsafe fn launch(
        self,
        driver: &Driver,
        entries: *const Entry,
        number: u32,
        blocks_max: u32,
        stream: Handle,
    ) -> c_int {
        let Some(launch) = driver.cuLaunchKernel else { return error::NOT_SUPPORTED };
        let blocks = number.div_ceil(WARPS as u32).clamp(1, blocks_max);
        let (mut table, mut count) = (entries.expose_provenance() as u64, number);
        let mut parameters: [*mut c_void; 2] = [(&raw mut table).cast(), (&raw mut count).cast()];
        // SAFETY: the kernel has these two parameters, whose values the call copies. The caller guarantees
        // the rest.
        unsafe {
            launch(
                self.function,
                blocks,
                1,
                1,
                THREADS,
                1,
                1,
                0,
                stream,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}
