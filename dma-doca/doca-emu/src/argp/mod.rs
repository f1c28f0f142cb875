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

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::c_abi::{Code, Handle, Mark, Object, Outcome, c, object};
use spec::{CmdCallback, CmdSpec, ParamCallback, ParamSpec};

/// `struct doca_argp_param`, or with another description `struct doca_argp_cmd`.
pub(crate) struct Described<T> {
    mark: Mark,
    /// The parser owns and destroys it.
    owned: AtomicBool,
    spec: Mutex<T>,
}

pub(crate) type Param = Described<ParamSpec>;
pub(crate) type Cmd = Described<CmdSpec>;

object!(Param, 0xa49_0001);

object!(Cmd, 0xa49_0002);

impl<T: Default> Described<T>
where
    Self: Object,
{
    fn new() -> Self {
        Self { mark: Mark::of::<Self>(), owned: AtomicBool::new(false), spec: Mutex::default() }
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

/// What the program registered.
#[derive(Clone)]
struct Program {
    name: Option<String>,
    config: Config,
    root: CmdSpec,
    version: Option<ParamCallback>,
    validation: Option<CmdCallback>,
    logger: c::doca_argp_logger_cb_t,
    dpdk: Option<unsafe extern "C" fn(c_int, *mut *mut c_char) -> Code>,
}

struct Parser {
    program: Program,
    /// Registered flags and commands, destroyed with the parser.
    params: Vec<Handle<Param>>,
    cmds: Vec<Handle<Cmd>>,
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
