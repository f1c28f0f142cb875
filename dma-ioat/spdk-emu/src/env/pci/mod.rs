//! PCI functions: which there are, who has them, and their configuration space.
#![expect(unsafe_code, reason = "calls back into the program; shares functions between threads")]

pub(crate) mod addr;
mod bar;
mod calls;
mod config_space;

use std::cell::Cell;
use std::cmp::Ordering;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{Config, Driver, FunctionConfig, Reattach};
use crate::door::{Ptr, c};
use crate::ioat::channel::Channel;
use crate::ioat::socket::Socket;
use c::{spdk_pci_addr, spdk_pci_device};

pub(crate) use bar::Bar;

/// How long SPDK leaves a function alone that was plugged in.
const SETTLING: Duration = Duration::from_secs(2);

/// A PCI function. C knows it by the address of its first field.
#[repr(C)]
pub(crate) struct Function {
    pub(crate) device: spdk_pci_device,
    pub(crate) config: FunctionConfig,
    pub(crate) socket: Arc<Socket>,
    /// Its number on its socket.
    pub(crate) number: u32,
    /// The channel, once it was attached.
    pub(crate) channel: OnceLock<Box<Channel>>,
    reattach: Reattach,
    /// A driver has it.
    attached: AtomicBool,
    settling: Mutex<Settling>,
    /// Mappings of its registers.
    mapped: AtomicU32,
    bar: Mutex<Option<Bar>>,
    space: Mutex<config_space::Space>,
    allowed: AtomicBool,
}

/// SPDK waits a while before it offers a function that was plugged in.
#[derive(Clone, Copy, Debug, Default)]
enum Settling {
    #[default]
    Settled,
    /// Plugged in since the last probe.
    Unseen,
    /// Seen by a probe then.
    Since(Instant),
}

// SAFETY: the pointers in the device are never followed; everything that changes is atomic or behind a lock.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which functions the program wants to see.
pub(crate) struct Filter {
    addresses: Vec<spdk_pci_addr>,
    /// These, or all but these.
    only: bool,
}

impl Filter {
    /// These; all if there are none.
    pub(crate) fn allow(addresses: &[spdk_pci_addr]) -> Self {
        Self { addresses: addresses.to_vec(), only: !addresses.is_empty() }
    }

    pub(crate) fn block(addresses: &[spdk_pci_addr]) -> Self {
        Self { addresses: addresses.to_vec(), only: false }
    }

    pub(crate) fn none() -> Self {
        Self { addresses: Vec::new(), only: true }
    }

    fn passes(&self, addr: &spdk_pci_addr) -> bool {
        self.addresses.iter().any(|listed| addr::compare(listed, addr) == Ordering::Equal) == self.only
    }
}

static FUNCTIONS: OnceLock<Vec<Function>> = OnceLock::new();
/// One walk over the functions at a time.
static WALK: Mutex<()> = Mutex::new(());

/// Plugs in the functions of a configuration.
pub(super) fn start(config: Config, filter: Filter) {
    FUNCTIONS.get_or_init(|| {
        let reattach = config.machine.reattach;
        let mut functions = Vec::new();
        for socket in config.sockets {
            let own = socket.function.clone();
            let socket = Arc::new(Socket::new(socket));
            let function = |(number, config): (u32, FunctionConfig)| {
                let allowed = filter.passes(&config.pci);
                Function::new(config, Arc::clone(&socket), number, reattach, allowed)
            };
            functions.extend((0..).zip(own).map(function));
        }
        functions.sort_by(|a, b| addr::compare(&a.config.pci, &b.config.pci));
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
        let id = c::spdk_pci_id {
            class_id: 0x08_80_00,
            vendor_id: c::SPDK_PCI_VID_INTEL as u16,
            device_id: config.device,
            subvendor_id: c::SPDK_PCI_VID_INTEL as u16,
            subdevice_id: 0,
        };
        let space = Mutex::new(config_space::Space::new(&id, &config.pci));
        Self {
            device: calls::device(config.pci, id, socket.config.numa),
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

    /// The function that C means.
    pub(crate) fn of(device: Ptr<spdk_pci_device>) -> Option<&'static Self> {
        functions().iter().find(|function| std::ptr::eq(&raw const function.device, device.raw()))
    }

    pub(crate) fn handle(&self) -> Ptr<spdk_pci_device> {
        // From the whole: the device is its first field, and `of` finds it by the address.
        Ptr::of(self).cast()
    }

    fn is_seen(&self) -> bool {
        let bound = matches!(self.config.driver, Driver::Vfio | Driver::Uio);
        bound && self.allowed.load(Relaxed) && crate::env::init::is_ready()
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

    /// A driver has it now.
    fn attach(&self) {
        self.attached.store(true, Relaxed);
    }

    /// The driver of I/OAT was told that the program does not want it.
    pub(crate) fn declined(&self) -> Taken {
        match self.reattach {
            Reattach::Easy => Taken::No,
            Reattach::Spdk => Taken::Yes,
        }
    }

    /// A driver let go of it; with `unplug` in the way that makes SPDK offer it again.
    pub(crate) fn release(&self, unplug: bool) {
        if unplug || self.reattach == Reattach::Easy {
            self.attached.store(false, Relaxed);
        }
        if unplug && self.reattach == Reattach::Spdk {
            *lock(&self.settling) = Settling::Unseen;
        }
    }
}

pub(crate) fn functions() -> &'static [Function] {
    FUNCTIONS.get().map_or(&[], Vec::as_slice)
}

/// What a driver does with a function that it is offered.
pub(crate) enum Taken {
    Yes,
    No,
    /// It failed, and wants to see no more.
    Stop,
}

thread_local! {
    /// This thread is in `walk`, and so are callbacks.
    static WALKING: Cell<bool> = const { Cell::new(false) };
}

/// Offers the functions to a driver. False: it stopped, or none could be had though there are some, or it was called from a callback of
/// itself, which would wait for itself for ever.
pub(crate) fn walk(offer: impl FnMut(&'static Function) -> Taken) -> bool {
    if !crate::env::init::is_ready() {
        return false;
    }
    if WALKING.replace(true) {
        crate::log::error("a callback of a probe or an enumeration begins another");
        return false;
    }
    let whole = walk_alone(offer);
    WALKING.set(false);
    whole
}

fn walk_alone(mut offer: impl FnMut(&'static Function) -> Taken) -> bool {
    let _walk = lock(&WALK);
    let (mut seen, mut failed) = (0, 0);
    for function in functions().iter().filter(|function| function.is_seen()) {
        seen += 1;
        if function.config.taken {
            failed += 1;
            crate::log::error(&format!(
                "{} cannot be had: another process has it",
                addr::format(&function.config.pci)
            ));
            continue;
        }
        if !function.is_offered() {
            continue;
        }
        match offer(function) {
            Taken::Yes => function.attach(),
            Taken::No => {}
            Taken::Stop => return false,
        }
    }
    seen == 0 || failed < seen
}

/// Offers the functions to a driver of C's.
fn walk_c(call: c::spdk_pci_enum_cb, ctx: Ptr<c_void>, only: Option<&spdk_pci_addr>) -> (bool, c_int) {
    let Some(call) = call else { return (false, -libc::EINVAL) };
    let mut last = -libc::ENODEV;
    let whole = walk(|function| {
        if only.is_some_and(|only| addr::compare(only, &function.config.pci) != Ordering::Equal) {
            return Taken::No;
        }
        // SAFETY: the driver's own function, with the context that it gave.
        last = unsafe { call(ctx.raw(), function.handle().raw()) };
        match last {
            // It need not have taken it: some answer so to all. It has if it looked at the registers.
            0 if function.reattach == Reattach::Easy && function.mapped.load(Relaxed) == 0 => Taken::No,
            0 => Taken::Yes,
            1.. => Taken::No,
            _ => Taken::Stop,
        }
    });
    (whole, last)
}
