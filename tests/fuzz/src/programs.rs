//! Random sequences of calls to the stand-in SDK's command line parser and log, in any order, also from
//! callbacks.
#![expect(unsafe_code, reason = "calls a C interface")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

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

const OK: c::doca_error_t = c::DOCA_SUCCESS;
/// Words, and names of flags and commands. No word requests help or the version, because both exit the
/// process.
const WORDS: [&CStr; 24] = [
    c"p",
    c"param",
    c"-p",
    c"--param",
    c"-pq",
    c"--param=3",
    c"--param=",
    c"q",
    c"-q",
    c"--",
    c"-",
    c"",
    c"true",
    c"17",
    c"-7",
    c"99999999999999999999",
    c"-l",
    c"--log-level",
    c"30",
    c"-j",
    c"/nowhere/at/all",
    c"cmd",
    c"sub",
    c"\xff\xfe",
];
/// Log backends live as long as the process.
const MOST_BACKENDS: usize = 12;
static BACKENDS: AtomicUsize = AtomicUsize::new(0);
/// The buffer of log backends that write to a buffer.
static ROOMS: [[AtomicU8; 64]; MOST_BACKENDS] = [const { [const { AtomicU8::new(0) }; 64] }; MOST_BACKENDS];
/// Maximum nesting of callbacks.
const NESTING: u32 = 3;

struct CommandLineProgram {
    input: Input,
    depth: Cell<u32>,
    /// Flags that the program owns.
    params: RefCell<Vec<*mut c::doca_argp_param>>,
    /// Commands that the program owns.
    cmds: RefCell<Vec<*mut c::doca_argp_cmd>>,
    /// Flags and commands that the parser owns. The program can configure them while the parser exists.
    owned: RefCell<Vec<*mut c::doca_argp_param>>,
    backends: RefCell<Vec<*mut c::doca_log_backend>>,
    sources: RefCell<Vec<c_int>>,
}

thread_local! {
    static PROGRAM: RefCell<Option<Rc<CommandLineProgram>>> = const { RefCell::new(None) };
}

/// Redirects standard output to /dev/null, because invalid command lines print the usage.
struct Quiet(c_int);

impl Quiet {
    fn new() -> Self {
        // SAFETY: the call duplicates a file descriptor and accesses no memory.
        let before = unsafe { libc::dup(1) };
        // SAFETY: the path is a string that ends with NUL.
        let nowhere = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY) };
        // SAFETY: no Rust object owns standard output's descriptor, so it may be replaced.
        unsafe { libc::dup2(nowhere, 1) };
        // SAFETY: the descriptor was opened above, and no other code uses it.
        unsafe { libc::close(nowhere) };
        Self(before)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: both descriptors are open: `new` duplicated the previous standard output.
        unsafe { libc::dup2(self.0, 1) };
        // SAFETY: `new` duplicated this descriptor, and no other code closes it.
        unsafe { libc::close(self.0) };
    }
}

/// Runs a program that the input determines.
///
/// # Panics
///
/// If a call fails that must succeed, or succeeds that must fail.
pub fn doca_programs(input: &[u8]) {
    let _quiet = Quiet::new();
    let program = Rc::new(CommandLineProgram {
        input: Input::new(input),
        depth: Cell::new(0),
        params: RefCell::default(),
        cmds: RefCell::default(),
        owned: RefCell::default(),
        backends: RefCell::default(),
        sources: RefCell::default(),
    });
    PROGRAM.set(Some(Rc::clone(&program)));
    while !program.input.is_over() {
        program.step();
    }
    program.destroy();
    for param in program.params.take() {
        assert_eq!(call!(doca_argp_param_destroy(param)), OK);
    }
    for cmd in program.cmds.take() {
        assert_eq!(call!(doca_argp_cmd_destroy(cmd)), OK);
    }
    for source in program.sources.take() {
        assert_eq!(call!(doca_log_unregister_source(source)), OK);
    }
    PROGRAM.set(None);
}

/// Makes random calls within a callback. Returns the callback's result, which is sometimes an error.
fn in_callback() -> c::doca_error_t {
    let Some(program) = PROGRAM.with_borrow(Clone::clone) else { return OK };
    if program.depth.get() >= NESTING {
        return OK;
    }
    program.depth.set(program.depth.get() + 1);
    if program.input.byte() % 2 == 0 {
        program.step();
    }
    program.depth.set(program.depth.get() - 1);
    if program.input.byte() % 8 == 0 { c::DOCA_ERROR_INVALID_VALUE } else { OK }
}

unsafe extern "C" fn on_param(value: *mut c_void, config: *mut c_void) -> c::doca_error_t {
    assert!(!value.is_null() && config.addr() == 5);
    in_callback()
}

unsafe extern "C" fn on_config(config: *mut c_void) -> c::doca_error_t {
    assert_eq!(config.addr(), 5);
    in_callback()
}

unsafe extern "C" fn on_mistake(_: c::doca_log_level, _: *const c_char, _: *mut c_void) -> c::doca_error_t {
    in_callback()
}

unsafe extern "C" fn on_line(line: *mut c_char) {
    // SAFETY: the pointer is the registered buffer, which ends with NUL.
    let line = unsafe { CStr::from_ptr(line) };
    assert!(line.to_bytes().len() < 64);
    in_callback();
}

impl CommandLineProgram {
    fn word(&self) -> *const c_char {
        let byte = usize::from(self.input.byte());
        if byte >= 250 { ptr::null() } else { WORDS[byte % WORDS.len()].as_ptr() }
    }

    fn destroy(&self) {
        self.owned.take();
        call!(doca_argp_destroy());
    }

    fn step(&self) {
        match self.input.byte() % 16 {
            0 => {
                if call!(doca_argp_init(self.word(), ptr::without_provenance_mut(5))) == OK {
                    assert_eq!(call!(doca_argp_register_logger_callback(Some(on_mistake))), OK);
                }
            }
            1 => self.destroy(),
            2..5 => self.create(),
            5..7 => self.set_up(),
            7..9 => self.register(),
            9 => self.callbacks(),
            10..13 => self.start(),
            13 => self.limits(),
            _ => self.log(),
        }
    }

    fn create(&self) {
        let (mut param, mut cmd) = (ptr::null_mut(), ptr::null_mut());
        match self.input.byte() % 6 {
            0..4 => {
                if call!(doca_argp_param_create(&mut param)) == OK {
                    self.params.borrow_mut().push(param);
                    call!(doca_argp_param_set_short_name(param, self.word()));
                    call!(doca_argp_param_set_long_name(param, self.word()));
                    call!(doca_argp_param_set_description(param, self.word()));
                    call!(doca_argp_param_set_callback(param, Some(on_param)));
                    call!(doca_argp_param_set_type(param, u32::from(self.input.byte() % 6)));
                }
            }
            4 => {
                if call!(doca_argp_cmd_create(&mut cmd)) == OK {
                    self.cmds.borrow_mut().push(cmd);
                    call!(doca_argp_cmd_set_name(cmd, self.word()));
                    call!(doca_argp_cmd_set_description(cmd, self.word()));
                    call!(doca_argp_cmd_set_callback(cmd, Some(on_config)));
                }
            }
            _ => {
                let (param, cmd) = (self.input.handle(&self.params), self.input.handle(&self.cmds));
                if call!(doca_argp_param_destroy(param)) == OK {
                    self.params.borrow_mut().retain(|other| *other != param);
                }
                if call!(doca_argp_cmd_destroy(cmd)) == OK {
                    self.cmds.borrow_mut().retain(|other| *other != cmd);
                }
            }
        }
    }

    fn set_up(&self) {
        let all = if self.input.byte().is_multiple_of(2) { &self.params } else { &self.owned };
        let param = self.input.handle(all);
        match self.input.byte() % 8 {
            0 => call!(doca_argp_param_set_mandatory(param)),
            1 => call!(doca_argp_param_set_cli_only(param)),
            2 => call!(doca_argp_param_set_multiplicity(param)),
            3 => call!(doca_argp_param_set_singular(param)),
            4 => call!(doca_argp_param_set_inherited(param)),
            5 => call!(doca_argp_param_set_hidden(param)),
            6 => call!(doca_argp_param_set_arguments(param, self.word())),
            _ => call!(doca_argp_param_set_type(param, u32::from(self.input.byte()))),
        }
    }

    /// Registers a flag or command. From then on the parser owns it, even if registering fails, unless
    /// the parser is not initialized or the object is invalid.
    fn register(&self) {
        let (param, cmd, inner) =
            (self.input.handle(&self.params), self.input.handle(&self.cmds), self.input.handle(&self.cmds));
        match self.input.byte() % 4 {
            0 | 1 => call!(doca_argp_register_param(param)),
            2 => call!(doca_argp_cmd_register_param(cmd, param)),
            _ if inner == cmd => call!(doca_argp_register_cmd(cmd)),
            _ => call!(doca_argp_cmd_register_cmd(cmd, inner)),
        };
        // Destroying an object must succeed only if the program owns it.
        self.params.borrow_mut().retain(|other| *other != param);
        if !param.is_null() && call!(doca_argp_param_destroy(param)) != OK {
            self.owned.borrow_mut().push(param);
        }
        for cmd in [cmd, inner] {
            let mine = self.cmds.borrow().contains(&cmd);
            self.cmds.borrow_mut().retain(|other| *other != cmd);
            if mine {
                call!(doca_argp_cmd_destroy(cmd));
            }
        }
    }

    fn callbacks(&self) {
        match self.input.byte() % 5 {
            0 => call!(doca_argp_register_version_callback(Some(on_param))),
            1 => call!(doca_argp_register_validation_callback(Some(on_config))),
            2 => call!(doca_argp_register_validation_callback(None)),
            3 => {
                call!(doca_argp_disable_logger_callback());
                call!(doca_argp_register_logger_callback(Some(on_mistake)))
            }
            _ => call!(doca_argp_register_logger_callback(None)),
        };
    }

    fn start(&self) {
        let count = usize::from(self.input.byte() % 8);
        let mut words: Vec<*mut c_char> = vec![c"program".as_ptr().cast_mut()];
        words.extend((0..count).map(|_| self.word().cast_mut()));
        let argc = match self.input.byte() {
            0 => -1,
            1 => 0,
            _ => words.len() as c_int,
        };
        call!(doca_argp_start(argc, words.as_mut_ptr()));
        let mut level = 0;
        assert_eq!(call!(doca_argp_get_log_level(&mut level)), OK);
        assert_eq!(call!(doca_argp_get_sdk_log_level(&mut level)), OK);
        assert_ne!(call!(doca_argp_get_log_level(ptr::null_mut())), OK);
    }

    fn limits(&self) {
        let level = u32::from(self.input.byte() % 9) * 10 + u32::from(self.input.byte() == 0);
        let backend = self.input.handle(&self.backends);
        match self.input.byte() % 8 {
            0 => call!(doca_log_level_set_global_lower_limit(level)),
            1 => call!(doca_log_level_set_global_upper_limit(level)),
            2 => call!(doca_log_level_set_global_sdk_limit(level)),
            3 => call!(doca_log_backend_set_level_lower_limit(backend, level)),
            4 => call!(doca_log_backend_set_level_upper_limit(backend, level)),
            5 => call!(doca_log_backend_set_sdk_level(backend, level)),
            6 => call!(doca_log_backend_set_level_lower_limit_strict(backend)),
            _ => call!(doca_log_backend_set_level_upper_limit_strict(backend)),
        };
    }

    fn log(&self) {
        let (mut source, mut backend) = (0, ptr::null_mut());
        match self.input.byte() % 8 {
            0 => {
                if call!(doca_log_register_source(self.word(), &mut source)) == OK {
                    self.sources.borrow_mut().push(source);
                }
            }
            1 => {
                let source = self.input.pick(&self.sources).unwrap_or(c_int::from(self.input.byte()) - 1);
                let mine = self.sources.borrow().contains(&source);
                assert!(call!(doca_log_unregister_source(source)) != OK || mine);
                self.sources.borrow_mut().retain(|other| *other != source);
            }
            2 => {
                let made = BACKENDS.fetch_add(1, Ordering::Relaxed);
                let Some(room) = ROOMS.get(made) else { return };
                let capacity = usize::from(self.input.byte() % 65);
                let room = room.as_ptr().cast_mut().cast::<c_char>();
                let code = match self.input.byte() % 4 {
                    0 => call!(doca_log_backend_create_with_buf(room, capacity, Some(on_line), &mut backend)),
                    1 => call!(doca_log_backend_create_with_buf_sdk(
                        room,
                        capacity,
                        Some(on_line),
                        &mut backend
                    )),
                    2 => call!(doca_log_backend_create_with_fd(
                        c_int::from(self.input.byte()) + 1000,
                        &mut backend
                    )),
                    _ => call!(doca_log_backend_create_with_file(ptr::null_mut(), &mut backend)),
                };
                if code == OK {
                    self.backends.borrow_mut().push(backend);
                }
            }
            _ => {
                let source = self.input.pick(&self.sources).unwrap_or(c_int::from(self.input.byte()) - 1);
                let (level, text) = (u32::from(self.input.byte() % 9) * 10, self.word());
                let text = if text.is_null() { c"?".as_ptr() } else { text };
                let (file, line) = (c"file.c".as_ptr(), c_int::from(self.input.byte()));
                let width = c_int::from(self.input.byte());
                call!(doca_log(level, source, file, line, file, c"%*s %s".as_ptr(), width, text, text));
            }
        }
    }
}
