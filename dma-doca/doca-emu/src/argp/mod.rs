//! Command lines: registered flags and commands, the parser, and the program's callbacks.
//!
//! There is one parser in a process, between `doca_argp_init` and `doca_argp_destroy`. It is not locked while
//! callbacks run: they may destroy it.

mod calls;
mod json;
mod line;
mod run;
mod spec;
mod usage;

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::c_abi::{Code, Handle, Mark, Outcome, c, object};
use spec::{CmdSpec, ParamSpec};

/// `struct doca_argp_param`.
pub(crate) struct Param {
    mark: Mark,
    /// The parser owns and destroys it.
    owned: AtomicBool,
    spec: Mutex<ParamSpec>,
}

/// `struct doca_argp_cmd`.
pub(crate) struct Cmd {
    mark: Mark,
    owned: AtomicBool,
    spec: Mutex<CmdSpec>,
    params: Mutex<Vec<Arc<Param>>>,
    cmds: Mutex<Vec<Arc<Self>>>,
}

object!(Param, 0xa49_0001);

object!(Cmd, 0xa49_0002);

impl Param {
    fn new() -> Self {
        Self { mark: Mark::of::<Self>(), owned: AtomicBool::new(false), spec: Mutex::default() }
    }
}

impl Cmd {
    fn new() -> Self {
        Self {
            mark: Mark::of::<Self>(),
            owned: AtomicBool::new(false),
            spec: Mutex::default(),
            params: Mutex::default(),
            cmds: Mutex::default(),
        }
    }

    /// A copy of the command and all below it.
    fn snapshot(&self) -> CmdSpec {
        let mut spec = lock(&self.spec).clone();
        spec.params = lock(&self.params).iter().map(|param| lock(&param.spec).clone()).collect();
        spec.cmds = lock(&self.cmds).iter().map(|cmd| cmd.snapshot()).collect();
        spec
    }
}

/// A pointer that is only passed back to the program.
#[derive(Clone, Copy)]
struct Config(*mut c_void);

/// The arguments for DPDK, as C strings.
struct DpdkArgs {
    strings: Vec<CString>,
    pointers: Vec<*mut c_char>,
}

struct Parser {
    program: Option<String>,
    config: Config,
    root: Arc<Cmd>,
    /// Registered flags and commands, destroyed with the parser.
    params: Vec<Handle<Param>>,
    cmds: Vec<Handle<Cmd>>,
    version: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> Code>,
    validation: Option<unsafe extern "C" fn(*mut c_void) -> Code>,
    logger: c::doca_argp_logger_cb_t,
    dpdk: Option<unsafe extern "C" fn(i32, *mut *mut c_char) -> Code>,
    dpdk_args: Option<DpdkArgs>,
}

/// The parser, and the levels of the command line, which outlive it.
struct State {
    parser: Option<Parser>,
    log_level: Option<u32>,
    sdk_log_level: Option<u32>,
}

static STATE: Mutex<State> = Mutex::new(State { parser: None, log_level: None, sdk_log_level: None });

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs with the parser; `BAD_STATE` if there is none.
fn with<T>(run: impl FnOnce(&mut Parser) -> Outcome<T>) -> Outcome<T> {
    lock(&STATE).parser.as_mut().map_or(Err(c::DOCA_ERROR_BAD_STATE), run)
}

impl Drop for Parser {
    fn drop(&mut self) {
        for param in self.params.drain(..) {
            drop(param.take_arc());
        }
        for cmd in self.cmds.drain(..) {
            drop(cmd.take_arc());
        }
    }
}
