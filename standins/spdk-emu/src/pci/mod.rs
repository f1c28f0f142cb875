//! PCI functions: enumeration, attachment, registers and configuration space.
#![expect(unsafe_code, reason = "calls back into the program; shares functions between threads")]

mod calls;
mod config_space;

use std::cell::Cell;
use std::cmp::Ordering;
use std::ffi::c_int;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::c_abi::{Addr, Outcome, Ptr, c};
use crate::channel::Channel;
use crate::config::{Config, FunctionConfig, KernelDriver, Reattach};
use crate::engine::RegisterEngine;
use crate::lock;
use crate::pci_addr;
use crate::socket::Socket;
use c::{spdk_pci_addr, spdk_pci_device, spdk_pci_id};

/// Size of BAR 0, in bytes.
const BAR_LEN: usize = 0x4000;
/// Minimum time between the first probe that sees a plugged-in function and the first probe that SPDK offers
/// the function to.
const SETTLING: Duration = Duration::from_secs(2);

/// A PCI function. C has the address of its first field.
#[repr(C)]
pub(crate) struct Function {
    pub(crate) device: spdk_pci_device,
    pub(crate) config: FunctionConfig,
    pub(crate) socket: Arc<Socket>,
    /// The function's index on its socket.
    pub(crate) number: u32,
    /// The channel, which is created when the function is first attached.
    channel: OnceLock<Box<Channel>>,
    reattach: Reattach,
    /// Set if a driver owns the function.
    attached: AtomicBool,
    settling: Mutex<Settling>,
    /// Number of mappings of the function's registers.
    mapped: AtomicU32,
    /// The engine behind BAR 0, while BAR 0 is mapped.
    bar: Mutex<Option<RegisterEngine>>,
    space: Mutex<config_space::Space>,
    allowed: AtomicBool,
}

/// State of a plugged-in function. SPDK waits before it offers such a function.
#[derive(Clone, Copy, Debug, Default)]
enum Settling {
    #[default]
    Settled,
    /// The function was plugged in after the last probe.
    Unseen,
    /// A probe first saw the function at this time.
    Since(Instant),
}

// SAFETY: the pointers in the device are never dereferenced. All mutable fields are atomic or behind a lock.
unsafe impl Send for Function {}
// SAFETY: all fields are immutable, atomic or behind a lock, or are `Sync` themselves (`Channel`).
unsafe impl Sync for Function {}

static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
/// Lock that is held by enumerations, so that only one runs at a time.
static WALK: Mutex<()> = Mutex::new(());

/// False before the environment is set up, and after it was shut down.
static READY: AtomicBool = AtomicBool::new(false);

/// Makes the functions visible, or hides all of them.
pub(crate) fn set_ready(ready: bool) {
    READY.store(ready, Relaxed);
}

/// Plugs in the functions of a configuration. `allows` returns true for functions that the program allows.
pub(crate) fn start(config: Config, allows: impl Fn(&spdk_pci_addr) -> bool) {
    FUNCTIONS.get_or_init(|| {
        let reattach = config.machine.reattach;
        let mut functions = Vec::new();
        for socket in config.sockets {
            let own = socket.function.clone();
            let socket = Arc::new(Socket::new(socket));
            let function = |(number, config): (u32, FunctionConfig)| {
                let allowed = allows(&config.pci);
                Function::new(config, Arc::clone(&socket), number, reattach, allowed)
            };
            functions.extend((0..).zip(own).map(function));
        }
        functions.sort_by(|a, b| pci_addr::compare(&a.config.pci, &b.config.pci));
        functions
    });
}

impl Function {
    fn new(
        config: FunctionConfig,
        socket: Arc<Socket>,
        number: u32,
        reattach: Reattach,
        allowed: bool,
    ) -> Self {
        let id = spdk_pci_id {
            class_id: 0x08_80_00,
            vendor_id: c::SPDK_PCI_VID_INTEL as u16,
            device_id: config.device,
            subvendor_id: c::SPDK_PCI_VID_INTEL as u16,
            subdevice_id: 0,
        };
        let space = Mutex::new(config_space::Space::new(&id, &config.pci));
        Self {
            device: device(config.pci, id, socket.config.numa),
            config,
            socket,
            number,
            channel: OnceLock::new(),
            reattach,
            attached: AtomicBool::new(false),
            settling: Mutex::default(),
            mapped: AtomicU32::new(0),
            bar: Mutex::default(),
            space,
            allowed: AtomicBool::new(allowed),
        }
    }

    /// Returns the function of a channel.
    pub(crate) fn of_channel(channel: &Channel) -> Option<&'static Self> {
        let has = |function: &&Self| function.channel.get().is_some_and(|own| std::ptr::eq(&**own, channel));
        functions().iter().find(has)
    }

    /// Returns the function behind the pointer. Returns `None` for any other pointer.
    pub(crate) fn of(device: Ptr<spdk_pci_device>) -> Option<&'static Self> {
        functions().iter().find(|function| std::ptr::eq(&raw const function.device, device.raw()))
    }

    pub(crate) fn handle(&self) -> Ptr<spdk_pci_device> {
        // SAFETY: the struct begins with the device, and functions are never freed. C only reads the device,
        // and this crate only compares its address.
        unsafe { Addr::new(from_ref(self).cast_mut().cast()).to() }
    }

    /// Returns the function's channel. Log lines of the channel contain the PCI address.
    pub(crate) fn channel(&self) -> &Channel {
        let name = || pci_addr::format(&self.config.pci);
        self.channel.get_or_init(|| Box::new(Channel::new(&self.socket, self.number, name())))
    }

    /// Adds a mapping of BAR 0. The first mapping starts the engine.
    fn map_bar(&'static self) -> Outcome<(Addr, u64)> {
        let mut bar = lock(&self.bar);
        let engine = match &mut *bar {
            Some(engine) => engine,
            none => {
                let name = pci_addr::format(&self.config.pci);
                let channel = || self.channel.get().map(|channel| &**channel);
                none.insert(RegisterEngine::start(&self.socket.config, self.number, &name, channel, BAR_LEN)?)
            }
        };
        self.mapped.fetch_add(1, Relaxed);
        Ok((engine.registers(), BAR_LEN as u64))
    }

    /// Removes one mapping. Removing the last mapping stops the engine. Returns false if `mapped` is not the
    /// address of a mapping.
    fn unmap_bar(&self, mapped: Addr) -> bool {
        let mut bar = lock(&self.bar);
        if bar.as_ref().is_none_or(|engine| engine.registers().raw() != mapped.raw()) {
            return false;
        }
        if self.mapped.fetch_sub(1, Relaxed) == 1 {
            *bar = None;
            // If the channel is attached, the owner of the channel keeps the function, even if the owner
            // unmaps the registers.
            if !self.channel.get().is_some_and(|channel| channel.is_attached()) {
                self.release(false);
            }
        }
        true
    }

    fn is_seen(&self) -> bool {
        let bound = matches!(self.config.driver, KernelDriver::Vfio | KernelDriver::Uio);
        bound && self.allowed.load(Relaxed) && READY.load(Relaxed)
    }

    fn is_offered(&self) -> bool {
        if self.attached.load(Relaxed) {
            return false;
        }
        let mut settling = lock(&self.settling);
        *settling = match *settling {
            Settling::Unseen => Settling::Since(Instant::now()),
            Settling::Since(since) if since.elapsed() >= SETTLING => Settling::Settled,
            same => same,
        };
        matches!(*settling, Settling::Settled)
    }

    /// Returns the outcome of an offer that the program declined. With `Reattach::Spdk`, the function counts
    /// as attached, as in SPDK.
    pub(crate) fn declined(&self) -> Offer {
        match self.reattach {
            Reattach::Easy => Offer::Declined,
            Reattach::Spdk => Offer::Accepted,
        }
    }

    /// Ends a driver's ownership of the function. If `unplug` is set, the function is offered again even with
    /// `Reattach::Spdk`.
    pub(crate) fn release(&self, unplug: bool) {
        if unplug || self.reattach == Reattach::Easy {
            self.attached.store(false, Relaxed);
        }
        if unplug && self.reattach == Reattach::Spdk {
            *lock(&self.settling) = Settling::Unseen;
        }
    }
}

/// Returns the struct by which C sees a function.
fn device(addr: spdk_pci_addr, id: spdk_pci_id, numa: i32) -> spdk_pci_device {
    spdk_pci_device {
        parent: null_mut(),
        dev_handle: null_mut(),
        addr,
        id,
        __bindgen_anon_1: c::spdk_pci_device__bindgen_ty_1 { numa_id: numa },
        type_: c"pci".as_ptr(),
        map_bar: Some(c::spdk_pci_device_map_bar),
        unmap_bar: Some(c::spdk_pci_device_unmap_bar),
        cfg_read: Some(c::spdk_pci_device_cfg_read),
        cfg_write: Some(c::spdk_pci_device_cfg_write),
        internal: c::spdk_pci_device__spdk_pci_device_internal {
            driver: null_mut(),
            attached: false,
            claim_fd: -1,
            pending_removal: false,
            removed: false,
            tailq: c::spdk_pci_device__spdk_pci_device_internal__bindgen_ty_1 {
                tqe_next: null_mut(),
                tqe_prev: null_mut(),
            },
        },
    }
}

pub(crate) fn functions() -> &'static [Function] {
    FUNCTIONS.get().map_or(&[], Vec::as_slice)
}

/// A driver's response to an offered function.
pub(crate) enum Offer {
    Accepted,
    Declined,
    /// The driver failed, so the enumeration ends.
    Stop,
}

thread_local! {
    /// Set while this thread is in `walk`, or in a callback of `walk`.
    static WALKING: Cell<bool> = const { Cell::new(false) };
}

/// Calls `offer` for each function. Returns false if the driver stopped the walk, if other processes have all
/// functions, or if a callback of a walk starts another walk, which would deadlock.
pub(crate) fn walk(offer: impl FnMut(&'static Function) -> Offer) -> bool {
    if !READY.load(Relaxed) {
        return false;
    }
    if WALKING.replace(true) {
        crate::log::error("a callback of a probe or of an enumeration started another one");
        return false;
    }
    let whole = walk_alone(offer);
    WALKING.set(false);
    whole
}

fn walk_alone(mut offer: impl FnMut(&'static Function) -> Offer) -> bool {
    let _walk = lock(&WALK);
    let (mut seen, mut failed) = (0, 0);
    for function in functions().iter().filter(|function| function.is_seen()) {
        seen += 1;
        if function.config.taken {
            failed += 1;
            crate::log::error(&format!(
                "{} is not available: another process has it",
                pci_addr::format(&function.config.pci)
            ));
            continue;
        }
        if !function.is_offered() {
            continue;
        }
        match offer(function) {
            Offer::Accepted => function.attached.store(true, Relaxed),
            Offer::Declined => {}
            Offer::Stop => return false,
        }
    }
    seen == 0 || failed < seen
}

/// Calls a driver's function of the program for each PCI function, or for the one at the address `only`.
///
/// # Safety
///
/// The driver's function can be called with the context.
unsafe fn walk_c(call: c::spdk_pci_enum_cb, ctx: Addr, only: Option<&spdk_pci_addr>) -> (bool, c_int) {
    let Some(call) = call else { return (false, -libc::EINVAL) };
    let mut last = -libc::ENODEV;
    let whole = walk(|function| {
        if only.is_some_and(|only| pci_addr::compare(only, &function.config.pci) != Ordering::Equal) {
            return Offer::Declined;
        }
        // SAFETY: the caller of `walk_c` guarantees that the driver's function can be called with the
        // context.
        last = unsafe { call(ctx.raw(), function.handle().raw()) };
        match last {
            // Some drivers return 0 for every function. So a function counts as accepted only if the driver
            // has mapped its registers.
            0 if function.reattach == Reattach::Easy && function.mapped.load(Relaxed) == 0 => Offer::Declined,
            0 => Offer::Accepted,
            1.. => Offer::Declined,
            _ => Offer::Stop,
        }
    });
    (whole, last)
}
