//! The start of the library, and the end of the process.
#![expect(unsafe_code, reason = "runs before and after the program")]

use core::fmt::Write;
use core::sync::atomic::{AtomicI32, Ordering};

use super::calls::{Policy, REAL, set_policy};
use super::text::Text;
use super::{LIMITS, dsa, report, system};
use crate::options::{Engine, Options};

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// The process that the library started in. Forked children write no report, because the counts are those of
/// their parent.
static PROCESS: AtomicI32 = AtomicI32::new(0);

extern "C" fn start() {
    let functions = [
        (&REAL.memmove, c"memmove"),
        (&REAL.memset, c"memset"),
        (&REAL.memcmp, c"memcmp"),
        (&REAL.memcpy_chk, c"__memcpy_chk"),
        (&REAL.memmove_chk, c"__memmove_chk"),
        (&REAL.memset_chk, c"__memset_chk"),
    ];
    for (to, name) in functions {
        to.store(system::next(name), Ordering::Relaxed);
    }
    let required = [&REAL.memmove, &REAL.memset, &REAL.memcmp];
    if required.iter().any(|function| function.load(Ordering::Relaxed).is_null()) {
        // The limits stay 0, and the calls before the start never end.
        return;
    }
    let is_off = system::is_privileged() || !system::is_glibc();
    let limits = if is_off { Taken::default() } else { configure() };
    for (limit, to) in
        [(limits.copy, &LIMITS.copy), (limits.copy, &LIMITS.fill), (limits.compare, &LIMITS.compare)]
    {
        to.store(limit, Ordering::Release);
    }
}

/// Reads the options, and opens a work queue.
fn configure() -> Taken {
    let text = system::variable(c"DMA_MEMCPY").unwrap_or_default().to_bytes();
    let options = match Options::parse(text) {
        Ok(options) => options,
        Err((part, allowed)) => {
            let mut message = Text::<512>::new();
            for piece in [b"libdma_memcpy: DMA_MEMCPY has `", part, b"`, but ", allowed.as_bytes()] {
                message.push(piece);
            }
            message.push(b"; the C library executes all calls\n");
            system::write_error(message.bytes());
            return Taken::default();
        }
    };
    let mut queue = Text::<16>::new();
    let (engine, has_device) = match options.engine {
        Engine::Off => return Taken::default(),
        Engine::Cpu => ("cpu", false),
        Engine::Auto => ("auto", dsa::open(None, &mut queue)),
        Engine::Dsa(name) => ("dsa", dsa::open(name, &mut queue)),
    };
    let policy = match options.engine {
        Engine::Cpu => Policy::Stream,
        Engine::Dsa(_) if has_device => Policy::Device,
        Engine::Dsa(_) => {
            system::write_error(
                b"libdma_memcpy: no work queue of DSA can be used; the C library executes all calls\n",
            );
            return Taken::default();
        }
        _ => Policy::Learn,
    };
    if let Some(path) = options.stats {
        let mut settings = Text::<64>::new();
        _ = write!(settings, "engine={engine},min={} KiB, ", options.min >> 10);
        settings.push(if has_device { queue.bytes() } else { b"no work queue" });
        report::SETTINGS.set(settings.bytes());
        report::PATH.set(path);
        PROCESS.store(system::process_id(), Ordering::Relaxed);
    }
    set_policy(policy, system::own_cache());
    // The CPU alone compares no faster than the C library.
    Taken { copy: options.min, compare: if has_device { options.min } else { usize::MAX } }
}

extern "C" fn end() {
    if PROCESS.load(Ordering::Relaxed) == system::process_id() {
        report::write();
    }
}

/// Lengths from which calls are taken.
struct Taken {
    copy: usize,
    compare: usize,
}

impl Default for Taken {
    fn default() -> Self {
        Self { copy: usize::MAX, compare: usize::MAX }
    }
}
