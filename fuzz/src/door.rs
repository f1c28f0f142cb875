//! Random sequences of calls at the C interface of the stand-in SDK, by a program that only ever passes NULL and handles
//! that it has not given back, but in any state and order, from its callbacks as well.
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

/// The result of a call.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: arguments are NULL, or of objects that were not given back; memory that is passed outlives the run.
        unsafe { c::$function($($argument),*) }
    };
}
use call;

/// Cards that a run may have: without costs, slow, failing, and limited.
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
/// How deep callbacks may call what calls them.
const NESTING: u32 = 3;

/// What a run reads its decisions from; zeros behind its end.
struct Input<'a> {
    bytes: &'a [u8],
}

impl Input<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }
}

/// A DMA context of the program's.
#[derive(Clone, Copy)]
struct Dma {
    dma: *mut c::doca_dma,
    ctx: *mut c::doca_ctx,
}

/// A task that was allocated and not freed.
#[derive(Clone, Copy)]
struct Task {
    task: *mut c::doca_dma_task_memcpy,
    dma: *mut c::doca_dma,
    /// Number of the submission that has not ended.
    flight: Option<u32>,
    /// It was given back while in flight, and is gone once it has ended.
    freed: bool,
}

/// A buffer that was not given back.
#[derive(Clone, Copy)]
struct Buf {
    buf: *mut c::doca_buf,
    inventory: *mut c::doca_buf_inventory,
}

/// Everything that the program holds.
struct Program {
    input: RefCell<Vec<u8>>,
    depth: Cell<u32>,
    /// The program only cleans up any more.
    over: Cell<bool>,
    /// Read by devices, never written.
    source: Box<[u8; LEN]>,
    /// Where devices may write; they hold its address.
    target: *mut u8,
    /// What a callback panicked with, which must not unwind through C.
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
    static PROGRAM: RefCell<Option<Rc<Program>>> = const { RefCell::new(None) };
}

/// Runs a program that the input decides: its first byte the card, each other what is called with what.
///
/// # Panics
///
/// If a callback comes for a task that is not in flight, bytes are wrong, a task in flight is not counted, or in the end
/// something cannot be stopped, freed and destroyed.
pub fn doca_calls(input: &[u8]) {
    let mut input = Input { bytes: input };
    let card = usize::from(input.next().unwrap_or(0)) % CARDS.len();
    doca_emu::use_config(Some(CARDS[card])).expect("the configurations above are right");
    let mut decisions = input.bytes.to_vec();
    decisions.reverse();
    let target = Box::into_raw(Box::new(oracle::initial(LEN))).cast::<u8>();
    let program = Rc::new(Program {
        input: RefCell::new(decisions),
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
    while program.has_input() {
        program.step();
        program.pass_on();
    }
    program.tear_down();
    program.pass_on();
    program.oracle.borrow().check_rest(&program);
    PROGRAM.set(None);
    // SAFETY: made from a box above; every device has let go of it.
    drop(unsafe { Box::from_raw(target.cast::<[u8; LEN]>()) });
    doca_emu::use_config(None).expect("nothing to get wrong");
}

/// Runs a callback of the program.
fn within(callback: impl FnOnce(&Program)) {
    let Some(program) = PROGRAM.with_borrow(Clone::clone) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(&program))) {
        program.over.set(true);
        program.failed.borrow_mut().get_or_insert(panic);
    }
}

impl Program {
    /// Panics as a callback did.
    fn pass_on(&self) {
        if let Some(panic) = self.failed.take() {
            resume_unwind(panic);
        }
    }

    fn has_input(&self) -> bool {
        !self.input.borrow().is_empty()
    }

    fn byte(&self) -> u8 {
        self.input.borrow_mut().pop().unwrap_or(0)
    }

    fn number(&self, end: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % end
    }

    /// One of `all`, or now and then none.
    fn pick<T: Copy>(&self, all: &RefCell<Vec<T>>) -> Option<T> {
        let byte = usize::from(self.byte());
        let all = all.borrow();
        if byte >= 250 || all.is_empty() { None } else { Some(all[byte % all.len()]) }
    }

    /// As [`pick`](Self::pick), of handles.
    fn handle<T>(&self, all: &RefCell<Vec<*mut T>>) -> *mut T {
        self.pick(all).unwrap_or(ptr::null_mut())
    }

    fn dma(&self) -> Dma {
        self.pick(&self.dmas).unwrap_or(Dma { dma: ptr::null_mut(), ctx: ptr::null_mut() })
    }

    fn buf(&self) -> *mut c::doca_buf {
        self.pick(&self.bufs).map_or(ptr::null_mut(), |buf| buf.buf)
    }

    fn owns_buf(&self, buf: *const c::doca_buf) -> bool {
        self.bufs.borrow().iter().any(|other| ptr::eq(other.buf, buf))
    }

    /// A copy ended: looks at it, and does what a callback may do.
    fn ended(&self, memcpy: *mut c::doca_dma_task_memcpy, well: bool) {
        let (flight, freed) = {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.iter_mut().find(|task| task.task == memcpy).expect("a callback for no task");
            (task.flight.take().expect("a callback for a task that is not in flight"), task.freed)
        };
        let task = call!(doca_dma_task_memcpy_as_task(memcpy));
        let status = call!(doca_task_get_status(task));
        assert_eq!(status == c::DOCA_SUCCESS, well, "the callback and the status disagree");
        self.oracle.borrow_mut().land(flight, well, self);
        if !self.over.get() && self.depth.get() < NESTING {
            self.depth.set(self.depth.get() + 1);
            match self.byte() % 8 {
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
        assert_eq!(state, after, "the callback tells another state than the context");
        if !program.over.get() && program.depth.get() < NESTING && program.byte() % 4 == 3 {
            program.depth.set(program.depth.get() + 1);
            program.step();
            program.depth.set(program.depth.get() - 1);
        }
    });
}

/// The memory stays the program's.
unsafe extern "C" fn on_free(_addr: *mut std::ffi::c_void, _len: usize, _cookie: *mut std::ffi::c_void) {}
