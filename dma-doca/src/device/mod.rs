//! Devices: listing, capabilities, opening.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

mod list;

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use dma_core::{EngineName, Error, ErrorKind, PciAddress, Result};
use doca_sys::bindings::*;

use crate::error::{error, failed};
use crate::ffi::{Sdk, creation, out, pointers, text, text_of};
use crate::options::DocaOptions;

pub(crate) use list::{List, pick};

/// A device that the SDK lists.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The device's PCI address, `DDDD:BB:DD.F`. Sub-functions have the address of their physical function.
    pub address: String,
    /// The name of the network interface, such as `p0`; `None` if the library reports no name.
    pub interface: Option<String>,
    /// The name of the InfiniBand device, such as `mlx5_0`; `None` if the library reports no name.
    pub ib_device: Option<String>,
    /// The kind of function, if the library reports it.
    pub function: Option<FunctionKind>,
    /// The device's capabilities.
    pub capabilities: DeviceCapabilities,
    /// Representors of the host's functions. Empty except on the DPU.
    pub representors: Vec<Representor>,
    /// The reason why the device cannot copy, with the remedy. `None` if it can copy.
    pub problem: Option<Error>,
}

impl DeviceInfo {
    /// Returns the engine name that opens this device: `doca:0000:03:00.0`, with `interface=` for a
    /// sub-function.
    #[must_use]
    pub fn engine_name(&self) -> EngineName {
        let plain = EngineName::of(DocaOptions::NAME_FORMAT);
        let name = plain.clone().with_device(self.address.clone()).unwrap_or(plain);
        let interface = self.interface.as_ref().or(self.ib_device.as_ref());
        match (self.function, interface) {
            // An engine name cannot contain an interface name with a comma, so only the address is used.
            (Some(FunctionKind::Sub), Some(interface)) => {
                name.clone().with_option("interface", interface).unwrap_or(name)
            }
            _ => name,
        }
    }
}

/// The kind of function of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FunctionKind {
    /// Physical.
    Physical,
    /// Virtual (SR-IOV).
    Virtual,
    /// A sub-function of a physical function.
    Sub,
}

impl FunctionKind {
    const fn of(kind: doca_pci_func_type) -> Option<Self> {
        match kind {
            DOCA_PCI_FUNC_TYPE_PF => Some(Self::Physical),
            DOCA_PCI_FUNC_TYPE_VF => Some(Self::Virtual),
            DOCA_PCI_FUNC_TYPE_SF => Some(Self::Sub),
            _ => None,
        }
    }
}

/// Capabilities of a device, as reported by its library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCapabilities {
    /// True if the device copies memory.
    pub dma: bool,
    /// The longest copy, in bytes.
    pub max_buf_size: u64,
    /// The maximum number of buffers in a list; 1 means no lists.
    pub max_list_len: u32,
    /// True if the device exports memory over PCI.
    pub export_pci: bool,
    /// True if the device imports memory that was exported over PCI.
    pub import_pci: bool,
    /// True if the device can be a client of the comm channel.
    pub comch_client: bool,
    /// True if the device can be a server of the comm channel.
    pub comch_server: bool,
}

/// The representor of a function of the host, as listed on the DPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Representor {
    /// The function's PCI address, as the DPU lists it.
    pub address: String,
    /// The representor's network interface, if the library reports it.
    pub interface: Option<String>,
    /// The function's globally unique identifier, if the library reports it.
    pub vuid: Option<String>,
    /// The kind of function, if the library reports it.
    pub function: Option<FunctionKind>,
}

/// Lists the devices of the SDK. The SDK is found as by [`DocaEngine::open`](crate::DocaEngine::open). Each
/// device is opened for a short time, to list its representors.
///
/// # Errors
///
/// `MissingSdk` if no usable SDK is installed; errors of the SDK. If there is no device, the list is empty,
/// which is not an error.
pub fn discover() -> Result<Vec<DeviceInfo>> {
    discover_with(&DocaOptions::new())
}

/// Like [`discover`], with the SDK that `options` name. The device in `options` is ignored.
///
/// # Errors
///
/// See [`discover`].
pub fn discover_with(options: &DocaOptions) -> Result<Vec<DeviceInfo>> {
    let sdk = Sdk::new(options.load()?);
    let list = List::new(&sdk)?;
    Ok(list.items().map(|item| item.describe()).collect())
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) sdk: Sdk,
    raw: NonNull<doca_dev>,
    pub(crate) address: String,
    pub(crate) capabilities: DeviceCapabilities,
    /// Held while buffers of a map are created or released, because maps count their buffers without thread
    /// safety.
    pub(crate) maps: Mutex<()>,
}

// SAFETY: calls that take only a device handle are thread-safe, and all others are serialized.
unsafe impl Send for Device {}
// SAFETY: calls that take only a device handle are thread-safe, and all others are serialized.
unsafe impl Sync for Device {}

impl Device {
    /// Returns the device's handle, which is valid as long as this `Device` exists.
    pub(crate) const fn raw(&self) -> *mut doca_dev {
        self.raw.as_ptr()
    }

    /// Returns the device's description, which capability calls take.
    pub(crate) fn info(&self) -> *const doca_devinfo {
        // SAFETY: the device is open as long as this value exists, so its handle is valid.
        unsafe { (self.sdk.common.doca_dev_as_devinfo)(self.raw()) }
    }

    /// Returns the name of the simulated model, if the SDK is the stand-in.
    pub(crate) fn model(&self) -> Option<String> {
        const ROOM: usize = 256;
        let describe = self.sdk.stand_in?;
        text::<ROOM>(|buffer| {
            // SAFETY: the info belongs to an open device, and the buffer has the stated size.
            unsafe { describe(self.info(), buffer, ROOM as u32) }
        })
    }

    /// Opens the representor of the function at the address `of`.
    pub(crate) fn open_representor(self: &Arc<Self>, of: PciAddress) -> Result<OpenRepresentor> {
        let common = &self.sdk.common;
        let (Some(open), Some(close), Some(address)) =
            (common.doca_dev_rep_open, common.doca_dev_rep_close, common.doca_devinfo_rep_get_pci_addr_str)
        else {
            return Err(error(ErrorKind::Unsupported, "the library has no representors"));
        };
        let mut seen = Vec::new();
        let mut found = None;
        self.each_representor(|info| {
            let here = text::<{ DOCA_DEVINFO_REP_PCI_ADDR_SIZE as usize }>(|buffer| {
                // SAFETY: the representor is an entry of a list that exists, and the buffer has the size
                // that the interface requires.
                unsafe { address(info, buffer) }
            });
            let Some(here) = here else { return };
            if found.is_none() && list::is_at(&here, of) {
                // SAFETY: the representor is an entry of a list that exists, and `out` passes a pointer that
                // can be written.
                found = Some(out(&self.sdk, "doca_dev_rep_open", std::ptr::null_mut(), |p| unsafe {
                    open(info, p)
                }));
            }
            seen.push(here);
        })?;
        match found {
            Some(raw) => Ok(OpenRepresentor { device: Arc::clone(self), raw: raw?, close }),
            None => {
                Err(error(ErrorKind::NotFound, format!("device {} has no representor of {of}", self.address))
                    .with_hint(if seen.is_empty() {
                        "representors exist on the DPU, for privileged processes".to_owned()
                    } else {
                        format!("the device has representors of {}", seen.join(", "))
                    }))
            }
        }
    }

    fn representors(&self) -> Result<Vec<Representor>> {
        let common = &self.sdk.common;
        let mut found = Vec::new();
        self.each_representor(|info| {
            let address = common.doca_devinfo_rep_get_pci_addr_str.and_then(|call| {
                // SAFETY: the representor is an entry of a list that exists, and the buffer has the size
                // that the interface requires.
                text::<{ DOCA_DEVINFO_REP_PCI_ADDR_SIZE as usize }>(|buffer| unsafe { call(info, buffer) })
            });
            let call = common.doca_devinfo_rep_get_iface_name;
            // SAFETY: the representor is an entry of a list that exists, and so a valid argument of the call.
            let interface = unsafe { text_of::<{ DOCA_DEVINFO_IFACE_NAME_SIZE as usize }, _>(call, info) };
            let call = common.doca_devinfo_rep_get_vuid;
            // SAFETY: the representor is an entry of a list that exists, and so a valid argument of the call.
            let vuid = unsafe { text_of::<{ DOCA_DEVINFO_REP_VUID_SIZE as usize }, _>(call, info) };
            let function = common.doca_devinfo_rep_get_pci_func_type.and_then(|call| {
                // SAFETY: the representor is an entry of a list that exists, and `out` passes a pointer
                // to a value of the result's type.
                out(&self.sdk, "", 0, |p| unsafe { call(info, p) }).ok()
            });
            let function = function.and_then(FunctionKind::of);
            found.push(Representor { address: address.unwrap_or_default(), interface, vuid, function });
        })?;
        Ok(found)
    }

    /// Calls `each` with every representor of the device. Libraries and devices without representors are not
    /// an error.
    fn each_representor(&self, mut each: impl FnMut(*mut doca_devinfo_rep)) -> Result<()> {
        let common = &self.sdk.common;
        let (Some(create), Some(destroy)) =
            (common.doca_devinfo_rep_create_list, common.doca_devinfo_rep_destroy_list)
        else {
            return Ok(());
        };
        let (mut list, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the device is open, and both pointers can be written.
        let code =
            unsafe { create(self.raw(), DOCA_DEVINFO_REP_FILTER_ALL as i32, &raw mut list, &raw mut count) };
        match code {
            DOCA_SUCCESS => {}
            // The device is a function of the host, or lacks this kind of representor.
            DOCA_ERROR_NOT_SUPPORTED | DOCA_ERROR_NOT_FOUND => return Ok(()),
            _ => return Err(failed(&self.sdk, "doca_devinfo_rep_create_list", code)),
        }
        // SAFETY: `list` has `count` entries, which the call above returned.
        unsafe { pointers(list, count) }.into_iter().for_each(&mut each);
        // SAFETY: the list was created above, and its entries are not used any more.
        unsafe { destroy(list) };
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let serial = creation();
        // SAFETY: all objects made from the device are destroyed, because each of them keeps the device.
        let code = unsafe { (self.sdk.common.doca_dev_close)(self.raw()) };
        drop(serial);
        if code != DOCA_SUCCESS {
            let (device, error) = (self.address.clone(), failed(&self.sdk, "doca_dev_close", code));
            dma_core::deferred_log!(error, target: "doca", device, %error, "a device stays open");
        }
    }
}

#[derive(Debug)]
pub(crate) struct OpenRepresentor {
    device: Arc<Device>,
    raw: *mut doca_dev_rep,
    close: unsafe extern "C" fn(*mut doca_dev_rep) -> doca_error_t,
}

// SAFETY: calls that take only a representor's handle are thread-safe, and all others are serialized.
unsafe impl Send for OpenRepresentor {}

impl OpenRepresentor {
    pub(crate) const fn raw(&self) -> *mut doca_dev_rep {
        self.raw
    }
}

impl Drop for OpenRepresentor {
    fn drop(&mut self) {
        // SAFETY: the representor is open, and the server that was created with it is destroyed.
        let code = unsafe { (self.close)(self.raw) };
        if code != DOCA_SUCCESS {
            let error = failed(&self.device.sdk, "doca_dev_rep_close", code);
            dma_core::deferred_log!(error, target: "doca", %error, "a representor stays open");
        }
    }
}

/// Converts a name to a C string. Returns an error if the name contains a NUL.
pub(crate) fn c_name(name: &str) -> Result<std::ffi::CString> {
    std::ffi::CString::new(name).map_err(|_| {
        error(ErrorKind::InvalidArgument, format!("the name {name:?} has a NUL byte"))
            .with_hint("leave it out")
    })
}
