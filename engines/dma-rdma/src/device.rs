//! RDMA devices: the library's list, an opened device with its port, and memory regions.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::ffi::{CStr, c_int};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dma_core::{Error, ErrorKind, Result};
use rustix::io::Errno;

use crate::RdmaOptions;
use crate::error::{error, failed};
use crate::gid;
use crate::handle::{Handle, checked};
use crate::verbs::*;

/// An object of the library, which is destroyed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Owned<T: 'static> {
    handle: Handle<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    /// The device to which the object belongs. The device outlives the object.
    _device: Arc<Device>,
}

impl<T> Owned<T> {
    /// Takes the ownership of an object that a call has made, or returns an error if the call failed.
    ///
    /// # Safety
    ///
    /// Only the caller owns the object, `destroy` destroys it, and all users of the object are dropped before
    /// it.
    pub(crate) unsafe fn new(
        device: &Arc<Device>,
        made: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
        lacking: &'static str,
    ) -> Result<Self> {
        let handle = Handle::new(made).map_err(|errno| failed(lacking, errno))?;
        Ok(Self { handle, destroy, _device: Arc::clone(device) })
    }

    pub(crate) const fn handle(&self) -> Handle<T> {
        self.handle
    }

    pub(crate) const fn as_ptr(&self) -> *mut T {
        self.handle.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: the caller of `new` ensures that `destroy` destroys this object and that nothing uses it
        // now.
        unsafe { (self.destroy)(self.as_ptr()) };
    }
}

/// A port, and the path on which it reaches itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) attr: ibv_port_attr,
    /// The GID and its index, if the port is addressed by GID.
    pub(crate) gid: Option<(u8, ibv_gid)>,
    /// The code of the MTU.
    pub(crate) mtu: c_int,
}

impl Port {
    pub(crate) const fn is_ethernet(&self) -> bool {
        self.attr.link_layer == LINK_LAYER_ETHERNET
    }
}

/// An opened device with its protection domain, shared by an engine, its regions and its queues.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) verbs: Verbs,
    pub(crate) context: Handle<ibv_context>,
    pub(crate) pd: Handle<ibv_pd>,
    pub(crate) name: String,
    pub(crate) attr: ibv_device_attr,
    pub(crate) port: Port,
    pub(crate) options: RdmaOptions,
    fatal: AtomicBool,
}

/// Returns the names of the devices, in the library's order.
pub(crate) fn names(verbs: &Verbs) -> Result<Vec<String>> {
    with_list(verbs, |devices| Ok(devices.iter().map(|(name, _)| name.clone()).collect()))
}

/// Calls `work` with the names and entries of the library's list.
fn with_list<T>(verbs: &Verbs, work: impl FnOnce(&[(String, *mut ibv_device)]) -> Result<T>) -> Result<T> {
    let mut number = 0;
    // SAFETY: the call writes the number to a local variable.
    let list = unsafe { (verbs.ibv_get_device_list)(&raw mut number) };
    let list = Handle::new(list).map_err(|errno| match errno {
        Errno::NOSYS | Errno::NOENT => error(ErrorKind::NotFound, "the kernel has no RDMA support")
            .with_hint("load the driver of the NIC, such as `modprobe mlx5_ib`, and `modprobe ib_uverbs`"),
        other => failed("the devices cannot be listed", other),
    })?;
    let entry = |at: usize| {
        // SAFETY: the list has `number` entries.
        let place = unsafe { list.as_ptr().add(at) };
        // SAFETY: this is an entry of the list, which lives until it is freed below.
        let device = unsafe { *place };
        // SAFETY: `device` is an entry of the list, which is not freed yet.
        let name = unsafe { (verbs.ibv_get_device_name)(device) };
        // SAFETY: the name ends with 0, and lives as long as the list.
        let name = unsafe { CStr::from_ptr(name) };
        (name.to_string_lossy().into_owned(), device)
    };
    let devices: Vec<_> = (0..usize::try_from(number).unwrap_or(0)).map(entry).collect();
    let result = work(&devices);
    // SAFETY: the list is from the call above, and its entries are not used any more.
    unsafe { (verbs.ibv_free_device_list)(list.as_ptr()) };
    result
}

impl Device {
    /// Opens the device that the options name, or the first one with an active port.
    pub(crate) fn open(verbs: &Verbs, options: &RdmaOptions) -> Result<Arc<Self>> {
        with_list(verbs, |devices| match &options.device {
            Some(name) => {
                let found = devices.iter().find(|(known, _)| known == name);
                let (_, device) = found.ok_or_else(|| nothing(devices, name))?;
                Self::open_one(verbs, *device, name, options)
            }
            None => {
                let mut first: Option<Error> = None;
                for (name, device) in devices {
                    match Self::open_one(verbs, *device, name, options) {
                        Ok(opened) => return Ok(opened),
                        Err(why) => first = first.or(Some(why)),
                    }
                }
                Err(first.unwrap_or_else(|| nothing(devices, "")))
            }
        })
    }

    fn open_one(
        verbs: &Verbs,
        device: *mut ibv_device,
        name: &str,
        options: &RdmaOptions,
    ) -> Result<Arc<Self>> {
        // SAFETY: the device is an entry of the library's list, which is not freed yet.
        let context = Handle::new(unsafe { (verbs.ibv_open_device)(device) })
            .map_err(|errno| failed(format!("{name} cannot be opened"), errno))?;
        let opened = Self::on(verbs, context, name, options);
        if opened.is_err() {
            // SAFETY: the device was just opened, and nothing uses it.
            unsafe { (verbs.ibv_close_device)(context.as_ptr()) };
        }
        opened.map(Arc::new)
    }

    fn on(verbs: &Verbs, context: Handle<ibv_context>, name: &str, options: &RdmaOptions) -> Result<Self> {
        let mut attr = std::mem::MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the device is open, and `attr` has room for its properties.
        checked(unsafe { (verbs.ibv_query_device)(context.as_ptr(), attr.as_mut_ptr()) })
            .map_err(|errno| failed(format!("the properties of {name} cannot be read"), errno))?;
        // SAFETY: all fields are numbers, for which zero is a valid value.
        let attr = unsafe { attr.assume_init() };
        let port = choose_port(verbs, context, name, attr.phys_port_cnt, options)?;
        // SAFETY: the device is open, and its `async_fd` never changes.
        let events = unsafe { (*context.as_ptr()).async_fd };
        // SAFETY: the file is open as long as the device.
        let events = unsafe { std::os::fd::BorrowedFd::borrow_raw(events) };
        nonblocking(events)?;
        // SAFETY: the device is open.
        let pd = Handle::new(unsafe { (verbs.ibv_alloc_pd)(context.as_ptr()) })
            .map_err(|errno| failed(format!("{name} has no protection domain left"), errno))?;
        Ok(Self {
            verbs: *verbs,
            context,
            pd,
            name: name.to_owned(),
            attr,
            port,
            options: options.clone(),
            fatal: AtomicBool::new(false),
        })
    }

    /// Returns an error if the port or the device does not work now.
    pub(crate) fn check(&self) -> Result<()> {
        self.read_events();
        if self.fatal.load(Ordering::Relaxed) {
            return Err(error(ErrorKind::DeviceLost, format!("{} reported a fatal failure", self.name))
                .with_hint("see `dmesg`; once the driver has reset the device, open the engine again"));
        }
        let attr = query_port(&self.verbs, self.context, self.port.number).map_err(|errno| {
            failed(format!("port {} of {} cannot be read", self.port.number, self.name), errno)
        })?;
        if attr.state == PORT_ACTIVE {
            return Ok(());
        }
        Err(down(&self.name, self.port.number))
    }

    /// Takes the device's events since the last call.
    fn read_events(&self) {
        let mut event = ibv_async_event { element: std::ptr::null_mut(), event_type: -1 };
        // SAFETY: the device is open, its file does not block, and the variable has room for an event.
        while unsafe { (self.verbs.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) } == 0 {
            let (device, event_type) = (self.name.clone(), event.event_type);
            dma_core::deferred_log!(warn, device, event = event_type, "an RDMA device reported an event");
            self.fatal.fetch_or(event.event_type == EVENT_DEVICE_FATAL, Ordering::Relaxed);
            // SAFETY: the call above has written the event.
            unsafe { (self.verbs.ibv_ack_async_event)(&raw mut event) };
        }
    }

    /// Returns the error of a provider that lacks the calls of the data path.
    pub(crate) fn lacks(&self) -> Error {
        error(ErrorKind::MissingSdk, format!("the provider of {} lacks required calls", self.name)).with_hint(
            "install the providers of the same release as libibverbs: `apt install ibverbs-providers`",
        )
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: regions and queues, which use the domain, hold this value, so all of them have been
        // dropped.
        unsafe { (self.verbs.ibv_dealloc_pd)(self.pd.as_ptr()) };
        // SAFETY: regions and queues, which use the device, have been dropped.
        unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// Makes a file of the library non-blocking.
pub(crate) fn nonblocking(file: std::os::fd::BorrowedFd<'_>) -> Result<()> {
    let set = rustix::fs::fcntl_getfl(file)
        .and_then(|flags| rustix::fs::fcntl_setfl(file, flags | rustix::fs::OFlags::NONBLOCK));
    set.map_err(|errno| failed("a file of the device cannot be made non-blocking", errno))
}

fn query_port(verbs: &Verbs, context: Handle<ibv_context>, port: u8) -> Result<ibv_port_attr, Errno> {
    let mut attr = ibv_port_attr::default();
    // SAFETY: the device is open, and `attr` has room for the properties, of which older libraries write only
    // the first fields.
    checked(unsafe { (verbs.ibv_query_port)(context.as_ptr(), port, &raw mut attr) })?;
    Ok(attr)
}

fn choose_port(
    verbs: &Verbs,
    context: Handle<ibv_context>,
    name: &str,
    ports: u8,
    options: &RdmaOptions,
) -> Result<Port> {
    let mtu = options.validate()?;
    let read = |number| {
        let attr = query_port(verbs, context, number);
        attr.map_err(|errno| failed(format!("port {number} of {name} cannot be read"), errno))
    };
    let (number, attr) = match options.port {
        Some(number) if number > ports => {
            return Err(error(ErrorKind::NotFound, format!("{name} has no port {number}"))
                .with_hint(format!("its ports are 1 to {ports}")));
        }
        Some(number) => (number, read(number)?),
        None => {
            let mut active = (1..=ports).filter_map(|number| Some((number, read(number).ok()?)));
            active.find(|(_, attr)| attr.state == PORT_ACTIVE).ok_or_else(|| down(name, 1))?
        }
    };
    if attr.state != PORT_ACTIVE {
        return Err(down(name, number));
    }
    if let Some(code) = mtu.filter(|code| *code > attr.max_mtu) {
        let bytes = |code: c_int| 128_u64 << code.clamp(1, 5);
        return Err(error(ErrorKind::OutOfRange, format!("an MTU of {} bytes", bytes(code)))
            .with_numbers(bytes(code), bytes(attr.max_mtu))
            .with_hint("choose a smaller one, or leave the option `mtu` out"));
    }
    let gid = match options.gid {
        Some(index) => Some((index, gid::query(verbs, context, number, index)?)),
        None if attr.link_layer == LINK_LAYER_ETHERNET => {
            let indices = 0..u8::try_from(attr.gid_tbl_len).unwrap_or(u8::MAX);
            let set = indices.filter_map(|i| Some((i, gid::query(verbs, context, number, i).ok()?)));
            Some(gid::choose(Path::new(gid::DEVICES), name, number, set)?)
        }
        None => None,
    };
    Ok(Port { number, attr, gid, mtu: mtu.unwrap_or(attr.active_mtu) })
}

/// A port may become active again, so the error has a kind that can be temporary.
fn down(name: &str, port: u8) -> Error {
    error(ErrorKind::DeviceFault, format!("port {port} of {name} is not active")).with_hint(
        "check the cable and the switch; set the network interface up (`ip link set DEV up`), or run a subnet manager on InfiniBand; \
         `ibv_devinfo` shows the state",
    )
}

fn nothing(devices: &[(String, *mut ibv_device)], name: &str) -> Error {
    let names: Vec<_> = devices.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return error(ErrorKind::NotFound, "there is no RDMA device").with_hint(
            "this needs a NIC with RDMA and its driver, such as `modprobe mlx5_ib`; `rdma link add rxe0 type rxe netdev DEV` (as root) makes \
             a software device",
        );
    }
    error(ErrorKind::NotFound, format!("there is no RDMA device `{name}`"))
        .with_hint(format!("there are: {}", names.join(", ")))
}

/// Returns true if a child after `fork` does not affect the parent's registered pages; `None` if the library
/// cannot tell.
pub(crate) fn is_fork_safe(verbs: &Verbs) -> Option<bool> {
    // SAFETY: the call has no arguments and no requirements.
    verbs.ibv_is_fork_initialized.map(|call| unsafe { call() } != FORK_DISABLED)
}

/// Loads the library by [`crate::library::open`]. Converts a failure to this backend's error.
pub(crate) fn load(dir: Option<&Path>) -> Result<Verbs> {
    crate::library::open(dir).map_err(crate::error::load)
}
