//! Random sequences of calls to the stand-in SDK's comm channel and events: servers, clients and events in
//! one process. The program passes only NULL and live handles, but in any state and order, also from
//! callbacks.
#![expect(unsafe_code, reason = "calls a C interface")]

mod comch;
mod events;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::rc::Rc;

use doca_sys::bindings as c;

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

const OK: c::doca_error_t = c::DOCA_SUCCESS;
/// Configurations of the card: default, and with low limits.
const CARDS: [&str; 2] =
    ["", "[comch]\nmax_msg_size = 40\nmax_send_tasks = 2\nmax_clients = 1\nmax_recv_queue_size = 4\n"];
/// Maximum nesting of callbacks.
const NESTING: u32 = 3;

/// An allocated task.
#[derive(Clone, Copy)]
struct Task {
    task: *mut c::doca_task,
    ctx: *mut c::doca_ctx,
    in_flight: bool,
    /// The task was freed while in flight; it is removed when it completes.
    freed: bool,
}

/// The program's objects.
struct ContextProgram {
    input: Input,
    depth: Cell<u32>,
    /// True while the program destroys its objects.
    over: Cell<bool>,
    /// The panic of a callback, which must not unwind through C.
    failed: RefCell<Option<Box<dyn Any + Send>>>,
    dpu: *mut c::doca_dev,
    host: *mut c::doca_dev,
    rep: *mut c::doca_dev_rep,
    pes: RefCell<Vec<*mut c::doca_pe>>,
    tasks: RefCell<Vec<Task>>,
    servers: RefCell<Vec<*mut c::doca_comch_server>>,
    clients: RefCell<Vec<*mut c::doca_comch_client>>,
    /// Servers' connections that are established and not yet closed.
    connections: RefCell<Vec<*mut c::doca_comch_connection>>,
    events: RefCell<Vec<events::Event>>,
    /// Export descriptors of events.
    exports: RefCell<Vec<Vec<u8>>>,
    /// Memory for messages to send.
    bytes: Box<[u8; 8192]>,
    /// Memory for event values.
    numbers: Box<[Cell<u64>; 8]>,
}

thread_local! {
    static PROGRAM: RefCell<Option<Rc<ContextProgram>>> = const { RefCell::new(None) };
}

/// Runs a program that the input determines: the first byte chooses the card, the other bytes the calls
/// and arguments.
///
/// # Panics
///
/// If a callback is for a task or connection that expects no callback, a message or value is wrong, or an
/// object cannot be stopped, freed and destroyed at the end.
pub fn doca_contexts(input: &[u8]) {
    let input = Input::new(input);
    doca_emu::use_config(Some(CARDS[usize::from(input.byte()) % CARDS.len()])).expect("right");
    let (dpu, host) = (open("0000:03:00.0"), open("0000:3b:00.0"));
    let program = Rc::new(ContextProgram {
        input,
        depth: Cell::new(0),
        over: Cell::new(false),
        failed: RefCell::default(),
        dpu,
        host,
        rep: comch::representor(dpu),
        pes: RefCell::default(),
        tasks: RefCell::default(),
        servers: RefCell::default(),
        clients: RefCell::default(),
        connections: RefCell::default(),
        events: RefCell::default(),
        exports: RefCell::default(),
        bytes: Box::new(std::array::from_fn(|at| at as u8)),
        numbers: Box::default(),
    });
    PROGRAM.set(Some(Rc::clone(&program)));
    for _ in 0..2 {
        program.create_pe();
    }
    while !program.input.is_over() {
        program.step();
        program.pass_on();
    }
    program.tear_down();
    program.pass_on();
    PROGRAM.set(None);
    doca_emu::use_config(None).expect("arguments that are always valid");
}

/// Opens the device with this PCI address.
fn open(address: &str) -> *mut c::doca_dev {
    let (mut list, mut count) = (ptr::null_mut(), 0);
    assert_eq!(call!(doca_devinfo_create_list(&mut list, &mut count)), OK);
    let wanted = CString::new(address).expect("no NUL");
    let mut dev = ptr::null_mut();
    for at in 0..count as usize {
        // SAFETY: the index is within the list, which lives until it is destroyed below.
        let info = unsafe { *list.add(at) };
        let mut equal = 0;
        assert_eq!(call!(doca_devinfo_is_equal_pci_addr(info, wanted.as_ptr(), &mut equal)), OK);
        if equal == 1 {
            assert_eq!(call!(doca_dev_open(info, &mut dev)), OK);
        }
    }
    assert_eq!(call!(doca_devinfo_destroy_list(list)), OK);
    assert!(!dev.is_null());
    dev
}

/// Runs a callback of the program.
fn within(callback: impl FnOnce(&ContextProgram)) {
    let Some(program) = PROGRAM.with_borrow(Clone::clone) else { return };
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(&program))) {
        program.over.set(true);
        program.failed.borrow_mut().get_or_insert(panic);
    }
}

unsafe extern "C" fn on_state(_: c::doca_data, ctx: *mut c::doca_ctx, before: u32, after: u32) {
    within(|program| {
        let mut state = u32::MAX;
        assert_eq!(call!(doca_ctx_get_state(ctx, &mut state)), OK);
        assert!(state == after && before != after, "the callback and the context report different states");
        program.step_in_callback();
    });
}

impl ContextProgram {
    /// Resumes the panic of a callback.
    fn pass_on(&self) {
        if let Some(panic) = self.failed.take() {
            resume_unwind(panic);
        }
    }

    /// Makes one call, or a few related ones.
    fn step(&self) {
        match self.input.byte() % 16 {
            0..3 => self.progress(),
            3 => self.use_task(),
            4 => self.use_ctx(self.any_ctx()),
            5 => self.use_pe(),
            6..9 => self.server_step(),
            9..12 => self.client_step(),
            _ => self.event_step(),
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

    fn create_pe(&self) {
        let mut pe = ptr::null_mut();
        assert_eq!(call!(doca_pe_create(&mut pe)), OK);
        self.pes.borrow_mut().push(pe);
    }

    fn progress(&self) {
        let pe = self.input.handle(&self.pes);
        for _ in 0..=self.input.byte() % 16 {
            if pe.is_null() || self.pes.borrow().contains(&pe) {
                call!(doca_pe_progress(pe));
            }
        }
    }

    fn use_pe(&self) {
        let (pe, mut handle, mut count) = (self.input.handle(&self.pes), -1, 0);
        match self.input.byte() % 6 {
            0 => self.create_pe(),
            1 => {
                if call!(doca_pe_destroy(pe)) == OK {
                    self.pes.borrow_mut().retain(|other| *other != pe);
                }
            }
            2 => {
                call!(doca_pe_get_notification_handle(pe, &mut handle));
                call!(doca_pe_clear_notification(pe, handle));
            }
            3 => {
                call!(doca_pe_request_notification(pe));
            }
            4 => {
                call!(doca_pe_set_event_mode(pe, u32::from(self.input.byte() % 3)));
            }
            _ => {
                call!(doca_pe_get_num_inflight_tasks(pe, &mut count));
            }
        }
    }

    /// Picks any context. An event that is not yet a context becomes a context.
    fn any_ctx(&self) -> *mut c::doca_ctx {
        match self.input.byte() % 3 {
            0 => call!(doca_comch_server_as_ctx(self.input.handle(&self.servers))),
            1 => call!(doca_comch_client_as_ctx(self.input.handle(&self.clients))),
            _ => self.event_ctx(),
        }
    }

    fn use_ctx(&self, ctx: *mut c::doca_ctx) {
        match self.input.byte() % 6 {
            0 => {
                call!(doca_pe_connect_ctx(self.input.handle(&self.pes), ctx));
            }
            1..3 => {
                call!(doca_ctx_start(ctx));
            }
            3 => {
                call!(doca_ctx_stop(ctx));
            }
            4 => call!(doca_ctx_flush_tasks(ctx)),
            _ => {
                let mut in_flight = usize::MAX;
                if call!(doca_ctx_get_num_inflight_tasks(ctx, &mut in_flight)) == OK {
                    let tasks = self.tasks.borrow();
                    let counted = tasks.iter().filter(|task| task.ctx == ctx && task.in_flight).count();
                    assert_eq!(in_flight, counted, "tasks in flight");
                }
            }
        }
    }

    /// Configures a new context, usually correctly.
    fn adopt(&self, ctx: *mut c::doca_ctx) {
        assert_eq!(call!(doca_ctx_set_state_changed_cb(ctx, Some(on_state))), OK);
        if !self.input.byte().is_multiple_of(8) {
            call!(doca_pe_connect_ctx(self.input.handle(&self.pes), ctx));
            call!(doca_ctx_start(ctx));
        }
    }

    /// Adds a task that was allocated.
    fn keep(&self, task: *mut c::doca_task) {
        let ctx = call!(doca_task_get_ctx(task));
        let mut tasks = self.tasks.borrow_mut();
        assert!(!tasks.iter().any(|other| other.task == task), "a task was allocated twice");
        tasks.push(Task { task, ctx, in_flight: false, freed: false });
    }

    /// Submits or frees a task.
    fn use_task(&self) {
        let task = match self.input.pick(&self.tasks) {
            Some(Task { freed: true, .. }) => return,
            Some(Task { task, .. }) => task,
            None => {
                assert_ne!(call!(doca_task_submit(ptr::null_mut())), OK);
                return call!(doca_task_free(ptr::null_mut()));
            }
        };
        match self.input.byte() % 4 {
            0 => self.free(task),
            1 => {
                let flags = u32::from(self.input.byte() % 6);
                self.submit(task, || call!(doca_task_submit_ex(task, flags)));
            }
            _ => self.submit(task, || call!(doca_task_submit(task))),
        }
    }

    fn submit(&self, task: *mut c::doca_task, submit: impl FnOnce() -> c::doca_error_t) {
        if submit() == OK {
            let mut tasks = self.tasks.borrow_mut();
            let found = tasks.iter_mut().find(|other| other.task == task).expect("picked from these");
            assert!(!std::mem::replace(&mut found.in_flight, true), "a task in flight was submitted");
        }
    }

    fn free(&self, task: *mut c::doca_task) {
        call!(doca_task_free(task));
        let mut tasks = self.tasks.borrow_mut();
        tasks.retain(|other| other.task != task || other.in_flight);
        tasks.iter_mut().filter(|other| other.task == task).for_each(|other| other.freed = true);
    }

    /// Checks the callback of a completed task, and removes the task.
    fn ended(&self, task: *mut c::doca_task, well: bool) {
        let status = call!(doca_task_get_status(task));
        assert_eq!(status == OK, well, "the callback and the status disagree");
        let freed = {
            let mut tasks = self.tasks.borrow_mut();
            let found = tasks.iter_mut().find(|other| other.task == task).expect("a callback without a task");
            let before = std::mem::replace(&mut found.in_flight, false);
            assert!(before, "a callback for a task that is not in flight");
            found.freed
        };
        if self.input.byte().is_multiple_of(4) && !freed {
            self.free(task);
        }
        self.step_in_callback();
        if freed {
            self.tasks.borrow_mut().retain(|other| other.task != task);
        }
    }

    /// Stops, frees and destroys every object.
    fn tear_down(&self) {
        self.over.set(true);
        let mut ctxs: Vec<_> =
            self.servers.borrow().iter().map(|server| call!(doca_comch_server_as_ctx(*server))).collect();
        ctxs.extend(self.clients.borrow().iter().map(|client| call!(doca_comch_client_as_ctx(*client))));
        self.stop_events(&mut ctxs);
        let idle = || {
            ctxs.iter().all(|ctx| {
                let mut state = u32::MAX;
                assert_eq!(call!(doca_ctx_get_state(*ctx, &mut state)), OK);
                state == c::DOCA_CTX_STATE_IDLE
            })
        };
        for _ in 0..100 {
            ctxs.iter().for_each(|ctx| {
                call!(doca_ctx_stop(*ctx));
            });
            for pe in &*self.pes.borrow() {
                while call!(doca_pe_progress(*pe)) != 0 {}
            }
            let mut held = self.tasks.borrow().clone();
            held.retain(|task| !task.in_flight);
            held.iter().for_each(|task| self.free(task.task));
            if idle() {
                break;
            }
        }
        assert!(idle(), "a context does not stop");
        assert!(self.tasks.borrow().is_empty(), "idle contexts have tasks in flight");
        assert!(self.connections.borrow().is_empty(), "idle servers have connections");
        self.destroy_comch();
        self.destroy_events();
        for pe in self.pes.take() {
            assert_eq!(call!(doca_pe_destroy(pe)), OK);
        }
        assert_eq!(call!(doca_dev_rep_close(self.rep)), OK);
        for dev in [self.dpu, self.host] {
            assert_eq!(call!(doca_dev_close(dev)), OK);
        }
    }
}
