//! Random sequences of calls to the memory and DMA functions of the stand-in DOCA SDK. The program passes
//! only NULL and live handles, but in any state and order, also from callbacks.
#![expect(unsafe_code, reason = "calls a C interface")]

mod oracle;
mod steps;
mod teardown;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::rc::Rc;

use doca_sys::bindings as c;
use oracle::Oracle;

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

/// Configurations of the card: default, slow, failing, limited.
const CARDS: [&str; 10] = [
    "",
    "profile = 'bluefield3'\nclock = 'virtual'",
    "order = 'any'",
    "faults = 'fail@3+reset@7'",
    "faults = 'refuse:p=0.2+lose@4+fail@every=9'\nclock = 'virtual'\nprofile = 'bluefield3'",
    "faults = 'stick@5'",
    "faults = 'gone@6'",
    "max_list_len = 1\nqueue_depth = 2\nmax_tasks = 3",
    "over_limit = 'submit'\nmax_buf_size = 100",
    "memlock = 6000\nmax_contexts = 1",
];

/// Length of each of the two memories in bytes.
const LEN: usize = 4096;
/// Maximum nesting of callbacks.
const NESTING: u32 = 3;

/// A DMA context.
#[derive(Clone, Copy)]
struct Dma {
    dma: *mut c::doca_dma,
    ctx: *mut c::doca_ctx,
}

/// An allocated task.
#[derive(Clone, Copy)]
struct Task {
    task: *mut c::doca_dma_task_memcpy,
    dma: *mut c::doca_dma,
    /// Number of the submission, while the task is in flight.
    flight: Option<u32>,
    /// The task was freed while in flight; it is removed when it completes.
    freed: bool,
}

/// A live buffer.
#[derive(Clone, Copy)]
struct Buf {
    buf: *mut c::doca_buf,
    inventory: *mut c::doca_buf_inventory,
}

/// The program's objects.
struct MemoryProgram {
    input: Input,
    depth: Cell<u32>,
    /// True while the program destroys its objects.
    over: Cell<bool>,
    /// Memory that devices only read.
    source: Box<[u8; LEN]>,
    /// Memory that devices may write.
    target: *mut u8,
    /// The panic of a callback, which must not unwind through C.
    failed: RefCell<Option<Box<dyn Any + Send>>>,
    oracle: RefCell<Oracle>,
    devs: RefCell<Vec<*mut c::doca_dev>>,
    pes: RefCell<Vec<*mut c::doca_pe>>,
    dmas: RefCell<Vec<Dma>>,
    mmaps: RefCell<Vec<*mut c::doca_mmap>>,
    inventories: RefCell<Vec<*mut c::doca_buf_inventory>>,
    bufs: RefCell<Vec<Buf>>,
    tasks: RefCell<Vec<Task>>,
    exports: RefCell<Vec<Vec<u8>>>,
}

thread_local! {
    static PROGRAM: RefCell<Option<Rc<MemoryProgram>>> = const { RefCell::new(None) };
}

/// Runs a program that the input determines: the first byte chooses the card, the other bytes the calls and
/// arguments.
///
/// # Panics
///
/// If a callback is for a task that is not in flight, bytes are wrong, a task in flight is not counted, or
/// an object cannot be stopped, freed and destroyed at the end.
pub fn doca_calls(input: &[u8]) {
    let input = Input::new(input);
    let card = usize::from(input.byte()) % CARDS.len();
    doca_emu::use_config(Some(CARDS[card])).expect("the configurations above are valid");
    let target = Box::into_raw(Box::new(oracle::initial(LEN))).cast::<u8>();
    let program = Rc::new(MemoryProgram {
        input,
        depth: Cell::new(0),
        over: Cell::new(false),
        source: Box::new(oracle::initial(0)),
        target,
        failed: RefCell::default(),
        oracle: RefCell::default(),
        devs: RefCell::default(),
        pes: RefCell::default(),
        dmas: RefCell::default(),
        mmaps: RefCell::default(),
        inventories: RefCell::default(),
        bufs: RefCell::default(),
        tasks: RefCell::default(),
        exports: RefCell::default(),
    });
    PROGRAM.set(Some(Rc::clone(&program)));
    while !program.input.is_over() {
        program.step();
        program.pass_on();
    }
    program.tear_down();
    program.pass_on();
    program.oracle.borrow().check_rest(&program);
    PROGRAM.set(None);
    // SAFETY: the pointer was made from a box above, and no device uses it any more.
    drop(unsafe { Box::from_raw(target.cast::<[u8; LEN]>()) });
    doca_emu::use_config(None).expect("arguments that are always valid");
}

/// Runs a callback of the program.
fn within(callback: impl FnOnce(&MemoryProgram)) {
    let Some(program) = PROGRAM.with_borrow(Clone::clone) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(&program))) {
        program.over.set(true);
        program.failed.borrow_mut().get_or_insert(panic);
    }
}

impl MemoryProgram {
    /// Resumes the panic of a callback.
    fn pass_on(&self) {
        if let Some(panic) = self.failed.take() {
            resume_unwind(panic);
        }
    }

    fn dma(&self) -> Dma {
        self.input.pick(&self.dmas).unwrap_or(Dma { dma: ptr::null_mut(), ctx: ptr::null_mut() })
    }

    fn buf(&self) -> *mut c::doca_buf {
        self.input.pick(&self.bufs).map_or(ptr::null_mut(), |buf| buf.buf)
    }

    fn owns_buf(&self, buf: *const c::doca_buf) -> bool {
        self.bufs.borrow().iter().any(|other| ptr::eq(other.buf, buf))
    }

    /// Checks a completed copy, and makes random calls within the callback.
    fn ended(&self, memcpy: *mut c::doca_dma_task_memcpy, well: bool) {
        let (flight, freed) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.iter_mut().find(|task| task.task == memcpy).expect("a callback without a task");
            (task.flight.take().expect("a callback for a task that is not in flight"), task.freed)
        };
        let task = call!(doca_dma_task_memcpy_as_task(memcpy));
        let status = call!(doca_task_get_status(task));
        assert_eq!(status == c::DOCA_SUCCESS, well, "the callback and the status disagree");
        self.oracle.borrow_mut().land(flight, well, self);
        if !self.over.get() && self.depth.get() < NESTING {
            self.depth.set(self.depth.get() + 1);
            match self.input.byte() % 8 {
                0..3 => {}
                3 if !freed => self.free(memcpy),
                4 if !freed => self.submit(memcpy, 0),
                _ => self.step(),
            }
            self.depth.set(self.depth.get() - 1);
        }
        if freed {
            self.tasks.borrow_mut().retain(|task| task.task != memcpy);
        }
    }
}

unsafe extern "C" fn on_done(task: *mut c::doca_dma_task_memcpy, _user: c::doca_data, _ctx: c::doca_data) {
    within(|program| program.ended(task, true));
}

unsafe extern "C" fn on_error(task: *mut c::doca_dma_task_memcpy, _user: c::doca_data, _ctx: c::doca_data) {
    within(|program| program.ended(task, false));
}

unsafe extern "C" fn on_state(_user: c::doca_data, ctx: *mut c::doca_ctx, _before: u32, after: u32) {
    within(|program| {
        let mut state = u32::MAX;
        assert_eq!(call!(doca_ctx_get_state(ctx, &mut state)), c::DOCA_SUCCESS);
        assert_eq!(state, after, "the callback and the context report different states");
        if !program.over.get() && program.depth.get() < NESTING && program.input.byte() % 4 == 3 {
            program.depth.set(program.depth.get() + 1);
            program.step();
            program.depth.set(program.depth.get() - 1);
        }
    });
}

/// Does not free the memory, because the program owns it.
unsafe extern "C" fn on_free(_addr: *mut std::ffi::c_void, _len: usize, _cookie: *mut std::ffi::c_void) {}
