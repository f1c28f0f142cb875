//! Random sequences of calls to the stand-in SPDK. The program passes only NULL and live handles, but in any
//! state and order, also from callbacks.
#![expect(unsafe_code, reason = "calls a C interface")]

mod channels;
mod environment;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Once;

use spdk_sys::bindings as c;

use crate::input::Input;

/// Calls a function of the C interface.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: arguments are NULL or live objects, pointers to results are those of local variables, and
        // memory that is passed outlives the run.
        unsafe { c::$function($($argument),*) }
    };
}
use call;

/// Configurations of the channels: default, slow, failing, absent. A fault's position also counts the
/// operations of earlier runs in the same process.
const CONFIG: &str = "
    cores = 4
    [[socket]]
    xfercap = '4K'
    ring = 16
    function = [{ pci = '00:04.0' }, { pci = '00:04.1' }]
    [[socket]]
    profile = 'ioat'
    clock = 'virtual'
    fill = false
    xfercap = '4K'
    ring = 8
    function = [{ pci = '80:04.0' }, { pci = '80:04.1' }]
    [[socket]]
    faults = 'fail@every=11'
    ring = 32
    function = [{ pci = '81:04.0' }]
    [[socket]]
    function = [{ pci = '84:04.0', driver = 'ioatdma' }, { pci = '84:04.1', taken = true }]
";
/// Maximum nesting of callbacks.
const NESTING: u32 = 3;

/// An operation in flight.
struct Flight {
    channel: *mut c::spdk_ioat_chan,
    dst: (usize, usize),
    src: (usize, usize),
    /// Expected bytes of the destination.
    bytes: Vec<u8>,
    /// True if another operation in flight may access the same bytes.
    contested: bool,
    /// True if the operation was refused after a part of it was built. Its callback is never called.
    part: bool,
}

/// Memory that was allocated by the environment.
#[derive(Clone, Copy)]
struct Memory {
    ptr: *mut c_void,
    len: usize,
}

/// The program's objects.
struct SpdkProgram {
    input: Input,
    depth: Cell<u32>,
    over: Cell<bool>,
    /// The panic of a callback, which must not unwind through C.
    failed: RefCell<Option<Box<dyn Any + Send>>>,
    channels: RefCell<Vec<*mut c::spdk_ioat_chan>>,
    /// Operations by number. `None` for completed operations.
    flights: RefCell<Vec<Option<Flight>>>,
    memory: RefCell<Vec<Memory>>,
    pools: RefCell<Vec<*mut c::spdk_mempool>>,
    elements: RefCell<Vec<(*mut c::spdk_mempool, *mut c_void)>>,
    rings: RefCell<Vec<*mut c::spdk_ring>>,
    zones: RefCell<Vec<*const std::ffi::c_char>>,
    maps: RefCell<Vec<*mut c::spdk_mem_map>>,
    sets: RefCell<Vec<*mut c::spdk_cpuset>>,
}

thread_local! {
    static PROGRAM: RefCell<Option<Rc<SpdkProgram>>> = const { RefCell::new(None) };
}

fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        spdk_emu::use_config(CONFIG).expect("the configuration above is valid");
        call!(spdk_log_set_print_level(c::SPDK_LOG_DISABLED));
        let mut opts = MaybeUninit::<c::spdk_env_opts>::zeroed();
        // SAFETY: all bytes are zero, which is a valid value of each field: numbers, flags and pointers.
        let opts = unsafe { opts.assume_init_mut() };
        opts.opts_size = size_of::<c::spdk_env_opts>();
        call!(spdk_env_opts_init(opts));
        opts.mem_size = 256;
        opts.core_mask = c"0x3".as_ptr();
        assert_eq!(call!(spdk_env_init(opts)), 0);
        call!(spdk_unaffinitize_thread());
    });
}

/// Runs a program that the input determines.
///
/// # Panics
///
/// If a callback is for an operation that is not in flight, bytes are wrong, or an object cannot be released
/// at the end.
pub fn spdk_calls(input: &[u8]) {
    set_up();
    let program = Rc::new(SpdkProgram {
        input: Input::new(input),
        depth: Cell::new(0),
        over: Cell::new(false),
        failed: RefCell::default(),
        channels: RefCell::default(),
        flights: RefCell::default(),
        memory: RefCell::default(),
        pools: RefCell::default(),
        elements: RefCell::default(),
        rings: RefCell::default(),
        zones: RefCell::default(),
        maps: RefCell::default(),
        sets: RefCell::default(),
    });
    PROGRAM.set(Some(Rc::clone(&program)));
    while !program.input.is_over() {
        program.step();
        program.pass_on();
    }
    program.tear_down();
    program.pass_on();
    PROGRAM.set(None);
}

/// Runs a callback of the program.
fn within(callback: impl FnOnce(&SpdkProgram)) {
    let Some(program) = PROGRAM.with_borrow(Clone::clone) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(&program))) {
        program.over.set(true);
        program.failed.borrow_mut().get_or_insert(panic);
    }
}

impl SpdkProgram {
    /// Resumes the panic of a callback.
    fn pass_on(&self) {
        if let Some(panic) = self.failed.take() {
            resume_unwind(panic);
        }
    }

    /// Makes one call, or a few related ones.
    fn step(&self) {
        match self.input.byte() % 32 {
            0..14 => self.channel_step(),
            14..18 => self.memory_step(),
            18..20 => self.pool_step(),
            20 => self.ring_step(),
            21 => self.zone_step(),
            22 => self.map_step(),
            23 => self.thread_step(),
            24 => self.pci_step(),
            25 => self.text_step(),
            26 => self.pass_nulls(),
            _ => self.copy(),
        }
    }

    /// Makes random calls within a callback.
    fn step_in_callback(&self) {
        if self.over.get() || self.depth.get() >= NESTING || !self.input.byte().is_multiple_of(4) {
            return;
        }
        self.depth.set(self.depth.get() + 1);
        self.step();
        self.depth.set(self.depth.get() - 1);
    }

    /// Completes the operations in flight if possible, and releases every object.
    fn tear_down(&self) {
        self.over.set(true);
        for channel in self.channels.borrow().clone() {
            call!(spdk_ioat_flush(channel));
            let in_flight = || {
                let flights = self.flights.borrow();
                flights.iter().flatten().any(|flight| std::ptr::eq(flight.channel, channel) && !flight.part)
            };
            let mut calls = 0;
            // A failed channel returns errors and completes nothing.
            while in_flight() && call!(spdk_ioat_process_events(channel)) >= 0 {
                calls += 1;
                assert!(calls < 1_000_000, "an operation did not complete");
            }
        }
        for channel in self.channels.take() {
            call!(spdk_ioat_detach(channel));
        }
        self.give_back();
    }
}
