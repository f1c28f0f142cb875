//! The SDK's list of devices.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use dma_core::{Error, ErrorKind, PciAddress, Result};
use doca_sys::bindings::*;

use super::{Device, DeviceCapabilities, DeviceInfo, FunctionKind};
use crate::error::{error, failed};
use crate::ffi::{Sdk, creation, out, pointers, text, text_of};
use crate::options::DocaOptions;

/// The SDK's list of devices, freed when dropped.
#[derive(Debug)]
pub(crate) struct List {
    sdk: Sdk,
    raw: *mut *mut doca_devinfo,
    items: Vec<*mut doca_devinfo>,
}

impl List {
    pub(crate) fn new(sdk: &Sdk) -> Result<Self> {
        let (mut raw, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: both pointers are to local variables, which can be written.
        let code = unsafe { (sdk.common.doca_devinfo_create_list)(&raw mut raw, &raw mut count) };
        match code {
            DOCA_SUCCESS => {}
            // Some versions return this code for an empty list.
            DOCA_ERROR_NOT_FOUND => count = 0,
            DOCA_ERROR_BAD_CONFIG => return Err(failed(sdk, "doca_devinfo_create_list", code)),
            _ => {
                return Err(failed(sdk, "doca_devinfo_create_list", code).with_hint(
                    "see whether a BlueField is installed (lspci -d 15b3:) and its drivers are loaded",
                ));
            }
        }
        // SAFETY: `raw` is a list of `count` entries, which the call returned, or `count` is 0.
        let items = unsafe { pointers(raw, count) };
        Ok(Self { sdk: Sdk::clone(sdk), raw, items })
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.items.iter().map(|&raw| Item { list: self, raw })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: `new` created the list, and no pointer into it is used any more.
            unsafe { (self.sdk.common.doca_devinfo_destroy_list)(self.raw) };
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    list: &'a List,
    raw: *mut doca_devinfo,
}

impl Item<'_> {
    pub(crate) fn address(&self) -> String {
        let call = self.list.sdk.common.doca_devinfo_get_pci_addr_str;
        // SAFETY: the device is an entry of a list that exists, and the buffer has the size that the
        // interface requires.
        let address =
            text::<{ DOCA_DEVINFO_PCI_ADDR_SIZE as usize }>(|buffer| unsafe { call(self.raw, buffer) });
        address.unwrap_or_default()
    }

    pub(crate) fn interface(&self) -> Option<String> {
        let call = self.list.sdk.common.doca_devinfo_get_iface_name;
        // SAFETY: the device is an entry of a list that exists, and so a valid argument of the call.
        unsafe { text_of::<{ DOCA_DEVINFO_IFACE_NAME_SIZE as usize }, _>(call, self.raw) }
    }

    pub(crate) fn ib_device(&self) -> Option<String> {
        let call = self.list.sdk.common.doca_devinfo_get_ibdev_name;
        // SAFETY: the device is an entry of a list that exists, and so a valid argument of the call.
        unsafe { text_of::<{ DOCA_DEVINFO_IBDEV_NAME_SIZE as usize }, _>(call, self.raw) }
    }

    pub(crate) fn function(&self) -> Option<FunctionKind> {
        let call = self.list.sdk.common.doca_devinfo_get_pci_func_type?;
        // SAFETY: the device is an entry of a list that exists, and `out` passes a pointer that can be
        // written.
        let kind = out(&self.list.sdk, "", 0, |p| unsafe { call(self.raw, p) });
        FunctionKind::of(kind.ok()?)
    }

    pub(crate) fn capabilities(&self) -> DeviceCapabilities {
        let sdk = &self.list.sdk;
        let (common, dma) = (&sdk.common, &sdk.dma);
        let yes = |call: Option<unsafe extern "C" fn(*const doca_devinfo, *mut u8) -> doca_error_t>| {
            call.is_some_and(|call| {
                // SAFETY: the device is an entry of a list that exists, and `out` passes a pointer that can
                // be written.
                out(sdk, "", 0, |p| unsafe { call(self.raw, p) }).is_ok_and(|yes| yes != 0)
            })
        };
        let can = |call: Option<unsafe extern "C" fn(*const doca_devinfo) -> doca_error_t>| {
            // SAFETY: the device is an entry of a list that exists, and so a valid argument of the call.
            call.is_some_and(|call| unsafe { call(self.raw) } == DOCA_SUCCESS)
        };
        let size = dma.doca_dma_cap_task_memcpy_get_max_buf_size;
        // SAFETY: the device is an entry of a list that exists, and `out` passes a pointer that can be
        // written.
        let max_buf_size = out(sdk, "", 0, |p| unsafe { size(self.raw, p) }).unwrap_or(0);
        let max_list_len = dma.doca_dma_cap_task_memcpy_get_max_buf_list_len.and_then(|call| {
            // SAFETY: the device is an entry of a list that exists, and `out` passes a pointer that can be
            // written.
            out(sdk, "", 1, |p| unsafe { call(self.raw, p) }).ok()
        });
        DeviceCapabilities {
            dma: can(Some(dma.doca_dma_cap_task_memcpy_is_supported)),
            max_buf_size,
            max_list_len: max_list_len.unwrap_or(1).max(1),
            export_pci: yes(common.doca_mmap_cap_is_export_pci_supported)
                && common.doca_mmap_export_pci.is_some(),
            import_pci: yes(common.doca_mmap_cap_is_create_from_export_pci_supported)
                && common.doca_mmap_create_from_export.is_some(),
            comch_client: can(sdk.comch.and_then(|c| c.doca_comch_cap_client_is_supported)),
            comch_server: can(sdk.comch.and_then(|c| c.doca_comch_cap_server_is_supported)),
        }
    }

    pub(crate) fn open(&self) -> Result<Device> {
        let sdk = &self.list.sdk;
        let _serial = creation();
        let call = sdk.common.doca_dev_open;
        // SAFETY: the device is an entry of a list that exists, and `out` passes a pointer that can be
        // written.
        let raw = out(sdk, "doca_dev_open", std::ptr::null_mut(), |p| unsafe { call(self.raw, p) });
        let raw = raw.map_err(|e| match e.kind() {
            ErrorKind::PermissionDenied => e.with_hint("run as root, or grant access to /dev/infiniband"),
            _ => e,
        })?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| error(ErrorKind::DeviceFault, "doca_dev_open returned no device"))?;
        Ok(Device {
            sdk: Sdk::clone(sdk),
            raw,
            address: self.address(),
            capabilities: self.capabilities(),
            maps: Mutex::new(()),
        })
    }

    pub(crate) fn describe(&self) -> DeviceInfo {
        let capabilities = self.capabilities();
        let (mut problem, mut representors) = (self.problem(&capabilities), Vec::new());
        match self.open().map(Arc::new).and_then(|device| device.representors()) {
            Ok(found) => representors = found,
            Err(e) => problem = problem.or(Some(e)),
        }
        DeviceInfo {
            address: self.address(),
            interface: self.interface(),
            ib_device: self.ib_device(),
            function: self.function(),
            capabilities,
            representors,
            problem,
        }
    }

    /// Returns the reason why the device cannot copy, according to its capabilities.
    pub(crate) fn problem(&self, capabilities: &DeviceCapabilities) -> Option<dma_core::Error> {
        if !capabilities.dma {
            let is = self.list.sdk.dma.doca_dma_cap_task_memcpy_is_supported;
            // SAFETY: the device is an entry of a list that exists, and so a valid argument of the call.
            let code = unsafe { is(self.raw) };
            return Some(
                error(ErrorKind::Unsupported, format!("device {} has no DMA", self.address()))
                    .with_native(crate::error::native(&self.list.sdk, code))
                    .with_hint("use a BlueField-2 or later, in DPU mode; a plain network card has no DMA"),
            );
        }
        if capabilities.max_buf_size < 64 {
            return Some(
                error(
                    ErrorKind::Unsupported,
                    format!(
                        "device {} declares a maximum copy length of {}, and 64 bytes are needed",
                        self.address(),
                        dma_process::count(capabilities.max_buf_size, "byte", "bytes"),
                    ),
                )
                .with_hint("update the card's firmware"),
            );
        }
        None
    }
}

/// Returns the device that `options` name. Without an address, returns the first matching device for which
/// `problem` returns `None`. If the device has a problem, returns that error.
pub(crate) fn pick<'a>(
    list: &'a List,
    options: &DocaOptions,
    problem: impl Fn(&Item<'_>) -> Option<Error>,
) -> Result<Item<'a>> {
    let named = |item: &Item<'_>| {
        options.address.is_none_or(|address| is_at(&item.address(), address))
            && options.interface.as_ref().is_none_or(|name| {
                item.interface().as_ref() == Some(name) || item.ib_device().as_ref() == Some(name)
            })
    };
    let found: Vec<_> = list.items().filter(named).collect();
    if found.is_empty() {
        return Err(none(list, options));
    }
    // Without an address, take the first usable device.
    if options.address.is_none() {
        let mut first = None;
        for item in &found {
            match problem(item) {
                None => return Ok(*item),
                Some(why) => first = first.or(Some(why)),
            }
        }
        return Err(first.unwrap_or_else(|| none(list, options)));
    }
    // Sub-functions share the address of their physical function. The physical function is preferred, unless
    // `interface` names a sub-function.
    let whole: Vec<_> = found.iter().filter(|item| item.function() != Some(FunctionKind::Sub)).collect();
    let item = match (&found[..], &whole[..]) {
        ([item], _) => item,
        (_, [item]) => *item,
        _ => {
            let which: Vec<_> = found.iter().map(describe).collect();
            return Err(error(
                ErrorKind::InvalidArgument,
                format!("{} devices match: {}", found.len(), which.join(", ")),
            )
            .with_hint("give the interface too"));
        }
    };
    problem(item).map_or(Ok(*item), Err)
}

fn none(list: &List, options: &DocaOptions) -> Error {
    let there: Vec<_> = list.items().map(|item| describe(&item)).collect();
    let asked = match (&options.address, &options.interface) {
        (Some(address), Some(name)) => format!("no device at {address} with the interface {name}"),
        (Some(address), None) => format!("no device at {address}"),
        (None, Some(name)) => format!("no device with the interface {name}"),
        (None, None) => "the SDK lists no device".to_owned(),
    };
    error(ErrorKind::NotFound, asked).with_hint(if there.is_empty() {
        "see whether a BlueField is installed (lspci -d 15b3:) and its drivers are loaded".to_owned()
    } else {
        format!("there are: {}", there.join(", "))
    })
}

fn describe(item: &Item<'_>) -> String {
    match item.interface().or_else(|| item.ib_device()) {
        Some(name) => format!("{} ({name})", item.address()),
        None => item.address(),
    }
}

/// Returns true if a device's address, in the SDK's format, is `wanted`.
pub(super) fn is_at(address: &str, wanted: PciAddress) -> bool {
    address.parse().is_ok_and(|address: PciAddress| address == wanted)
}
