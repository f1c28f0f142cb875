//! CUDA devices: an opened device with its primary context, and the list of devices.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use dma_core::{Error, ErrorKind, NativeError, PciAddress, Result};

use crate::driver::{Address, Driver, Handle, STREAM_NON_BLOCKING, attribute, pointer};
use crate::error::{self, error};
use crate::options::{CudaDevice, CudaOptions};

/// The oldest supported driver version, as `cuDriverGetVersion` returns it: CUDA 11.4.
const OLDEST: c_int = 11_040;

/// An opened device, shared by an engine, its regions and its queues.
///
/// The context is the device's primary one. PyTorch, CuPy and cudarc use it as well, so their memory can be
/// registered.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) driver: Driver,
    ordinal: c_int,
    context: Handle,
    pub(crate) name: String,
    pub(crate) pci: Option<PciAddress>,
    pub(crate) version: c_int,
    /// The profiles of a stand-in; `None` for a real driver.
    pub(crate) model: Option<String>,
    pub(crate) registers: bool,
    pub(crate) registers_read_only: bool,
    /// The stream that clears new memory.
    setup: Handle,
}

/// Returns the code, the name and the text of a driver's result.
pub(crate) fn explain(driver: &Driver, code: c_int) -> NativeError {
    let read = |get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
        let mut text = ptr::null();
        // SAFETY: the call at most writes a pointer to a string to the local variable.
        unsafe { get(code, &raw mut text) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the pointer is to a string of the driver, which ends in NUL and is never freed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    let (name, description) = (read(driver.cuGetErrorName), read(driver.cuGetErrorString));
    NativeError { code, name: name.into(), description: description.into() }
}

/// Returns the error of a call that returned `code`.
pub(crate) fn failed(driver: &Driver, what: impl Into<String>, code: c_int) -> Error {
    error(error::kind(code), what.into()).with_native(explain(driver, code)).with_hint(error::hint(code))
}

/// Loads the library. Converts a failure to an error of this backend.
pub(crate) fn load(options: &CudaOptions) -> Result<Driver> {
    crate::library::open(options.lib_dir.as_deref()).map_err(error::load)
}

/// Initializes the driver, and returns its version and the number of devices.
pub(crate) fn initialize(driver: &Driver) -> Result<(c_int, c_int)> {
    let mut version = 0;
    // SAFETY: the call writes the version to a local variable, and is allowed before `cuInit`.
    let code = unsafe { (driver.cuDriverGetVersion)(&raw mut version) };
    if code == 0 && version < OLDEST {
        let message = format!("the driver has CUDA {}, which is too old", version_text(version));
        return Err(error(ErrorKind::MissingSdk, message)
            .with_hint("update NVIDIA's driver to 470 or later, which has CUDA 11.4"));
    }
    // SAFETY: `cuInit` may be called any number of times, by any thread.
    let code = unsafe { (driver.cuInit)(0) };
    if code != 0 {
        return Err(match code {
            // The driver returns this code in a child of a process that called `cuInit`.
            error::NOT_INITIALIZED => {
                failed(driver, "CUDA was initialized before this process was forked", code)
            }
            _ => failed(driver, "CUDA cannot be initialized", code),
        });
    }
    let mut number = 0;
    // SAFETY: the call writes the number to a local variable.
    match unsafe { (driver.cuDeviceGetCount)(&raw mut number) } {
        0 if number > 0 => Ok((version, number)),
        0 => Err(failed(driver, "there is no device", error::NO_DEVICE)),
        code => Err(failed(driver, "the devices cannot be listed", code)),
    }
}

/// Formats a version: 13000 becomes "13.0".
pub(crate) fn version_text(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Calls a function that writes a text of at most 255 bytes, and returns the text.
fn text(call: impl FnOnce(*mut c_char, c_int) -> c_int) -> Result<String, c_int> {
    let mut bytes = [0; 256];
    match call(bytes.as_mut_ptr(), 255) {
        0 => {
            let bytes: Vec<u8> = bytes.iter().map(|c| *c as u8).take_while(|byte| *byte != 0).collect();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        code => Err(code),
    }
}

/// Returns the PCI address of a device.
pub(crate) fn pci_address(driver: &Driver, device: c_int) -> Option<PciAddress> {
    // SAFETY: the call writes at most `room` bytes to `to`, which has more bytes.
    let read = text(|to, room| unsafe { (driver.cuDeviceGetPCIBusId)(to, room, device) }).ok()?;
    read.parse().ok()
}

/// Returns an attribute of a device; 0 if the driver does not know it.
fn attribute_of(driver: &Driver, device: c_int, attribute: c_int) -> c_int {
    let mut value = 0;
    // SAFETY: the call writes the value to a local variable.
    match unsafe { (driver.cuDeviceGetAttribute)(&raw mut value, attribute, device) } {
        0 => value,
        _ => 0,
    }
}

/// Returns the driver's number of the device that the options name.
fn choose(driver: &Driver, number: c_int, wanted: Option<&CudaDevice>) -> Result<c_int> {
    let missing = |device: &CudaDevice| {
        let there: Vec<_> = (0..number)
            .map(|device| match pci_address(driver, device) {
                Some(address) => format!("{device} ({address})"),
                None => device.to_string(),
            })
            .collect();
        error(ErrorKind::NotFound, format!("there is no CUDA device {device}")).with_hint(format!(
            "there are: {}; CUDA_VISIBLE_DEVICES and the container's settings may hide others",
            there.join(", ")
        ))
    };
    match wanted {
        None => Ok(0),
        Some(device @ CudaDevice::Ordinal(ordinal)) => {
            c_int::try_from(*ordinal).ok().filter(|ordinal| *ordinal < number).ok_or_else(|| missing(device))
        }
        Some(device @ CudaDevice::Pci(address)) => (0..number)
            .find(|device| pci_address(driver, *device) == Some(*address))
            .ok_or_else(|| missing(device)),
    }
}

impl Device {
    pub(crate) fn open(driver: &Driver, options: &CudaOptions) -> Result<Arc<Self>> {
        let (version, number) = initialize(driver)?;
        let ordinal = choose(driver, number, options.device.as_ref())?;
        let mut device = 0;
        // SAFETY: the call writes the device to a local variable.
        let code = unsafe { (driver.cuDeviceGet)(&raw mut device, ordinal) };
        let fail = |what: &str, code| failed(driver, format!("{what} of CUDA device {ordinal}"), code);
        if code != 0 {
            return Err(fail("no handle", code));
        }
        // SAFETY: the call writes at most `room` bytes to `to`, which has more bytes.
        let name = text(|to, room| unsafe { (driver.cuDeviceGetName)(to, room, device) })
            .map_err(|code| fail("no name", code))?;
        let is = |attribute| attribute_of(driver, device, attribute) != 0;
        if !is(attribute::UNIFIED_ADDRESSING) {
            return Err(error(ErrorKind::Unsupported, format!("{name} has no unified addressing"))
                .with_hint("use a device and a system with 64-bit addresses"));
        }
        let model = driver.cuda_emu_model.and_then(|model| {
            // SAFETY: the call writes at most `room` bytes to `to`, which has more bytes.
            text(|to, room| unsafe { model(to, room) }).ok()
        });
        let (registers, registers_read_only) =
            (is(attribute::HOST_REGISTER_SUPPORTED), is(attribute::READ_ONLY_HOST_REGISTER_SUPPORTED));
        let mut context = 0;
        // SAFETY: the call writes the context to a local variable.
        let code = unsafe { (driver.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        if code != 0 {
            return Err(fail("no context", code));
        }
        let mut opened = Self {
            driver: *driver,
            ordinal: device,
            context,
            name,
            pci: pci_address(driver, device),
            version,
            model,
            registers,
            registers_read_only,
            setup: 0,
        };
        opened.setup = opened.stream().map_err(|code| fail("no stream", code))?;
        Ok(Arc::new(opened))
    }

    /// Returns an attribute of the device; 0 if the driver does not know it.
    pub(crate) fn attribute(&self, attribute: c_int) -> c_int {
        attribute_of(&self.driver, self.ordinal, attribute)
    }

    /// Makes a stream.
    pub(crate) fn stream(&self) -> Result<Handle, c_int> {
        let mut stream = 0;
        // SAFETY: the call writes its result to the local variable, and the context is current.
        self.call(|driver| unsafe { (driver.cuStreamCreate)(&raw mut stream, STREAM_NON_BLOCKING) })?;
        Ok(stream)
    }

    /// Calls the driver with this device's context. Afterwards the context that the thread had before is
    /// current again.
    #[inline]
    pub(crate) fn call(&self, call: impl FnOnce(&Driver) -> c_int) -> Result<(), c_int> {
        // SAFETY: this value keeps the context retained.
        match unsafe { (self.driver.cuCtxPushCurrent_v2)(self.context) } {
            0 => {}
            code => return Err(code),
        }
        let code = call(&self.driver);
        let mut popped = 0;
        // SAFETY: this removes the context that was pushed above, and writes it to a local variable.
        unsafe { (self.driver.cuCtxPopCurrent_v2)(&raw mut popped) };
        if code == 0 { Ok(()) } else { Err(code) }
    }

    /// Returns the error of a call that returned `code`.
    pub(crate) fn failed(&self, what: impl Into<String>, code: c_int) -> Error {
        failed(&self.driver, what, code)
    }

    /// Writes zeros to new device memory, and waits until they are written.
    pub(crate) fn clear(&self, addr: Address, len: usize) -> Result<(), c_int> {
        // SAFETY: the memory was just allocated with this length, and the stream belongs to this value.
        self.call(|driver| match unsafe { (driver.cuMemsetD8Async)(addr, 0, len, self.setup) } {
            // SAFETY: the stream exists as long as this value.
            0 => unsafe { (driver.cuStreamSynchronize)(self.setup) },
            code => code,
        })
    }

    /// Returns start and length of the device allocation that contains an address.
    pub(crate) fn allocation_of(&self, addr: Address) -> Result<Option<(Address, usize)>, c_int> {
        let (mut kind, mut start, mut len) = (0_u32, 0_u64, 0_usize);
        self.call(|driver| {
            // SAFETY: the attribute's value is an `unsigned int`, like the local variable that it is written
            // to.
            match unsafe {
                (driver.cuPointerGetAttribute)((&raw mut kind).cast(), pointer::MEMORY_TYPE, addr)
            } {
                0 => {}
                code => return code,
            }
            // SAFETY: the attribute's value is a `CUdeviceptr`, like the local variable that it is written
            // to.
            match unsafe {
                (driver.cuPointerGetAttribute)((&raw mut start).cast(), pointer::RANGE_START, addr)
            } {
                0 => {}
                code => return code,
            }
            // SAFETY: the attribute's value is a `size_t`, like the local variable that it is written to.
            unsafe { (driver.cuPointerGetAttribute)((&raw mut len).cast(), pointer::RANGE_SIZE, addr) }
        })?;
        Ok((kind == pointer::DEVICE).then_some((start, len)))
    }

    /// Returns true if device memory belongs to this context, so that its kernels reach it.
    pub(crate) fn owns(&self, addr: Address) -> bool {
        let mut context: Handle = 0;
        let owner = self.call(|driver| {
            // SAFETY: the attribute's value is a `CUcontext`, like the local variable that it is written to.
            unsafe { (driver.cuPointerGetAttribute)((&raw mut context).cast(), pointer::CONTEXT, addr) }
        });
        owner.is_ok() && context == self.context
    }

    /// Returns the device's directory in sysfs.
    pub(crate) fn sysfs(&self) -> Option<std::path::PathBuf> {
        self.pci.map(|pci| Path::new("/sys/bus/pci/devices").join(pci.to_string()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.setup != 0 {
            // SAFETY: the stream belongs to this value, and no work is queued on it.
            let _ = self.call(|driver| unsafe { (driver.cuStreamDestroy_v2)(self.setup) });
        }
        // SAFETY: `open` retained the context once. Regions and queues, which use the context, hold this
        // value, so all of them have been dropped.
        unsafe { (self.driver.cuDevicePrimaryCtxRelease_v2)(self.ordinal) };
    }
}
