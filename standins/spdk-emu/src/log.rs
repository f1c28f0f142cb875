//! The log: levels, flags and sinks. Formatting is in `variadic.c`.
#![expect(unsafe_code, reason = "the names are C's; writes to streams of the C library")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::c_abi::{Ptr, Text, c, c_calls};
use crate::lock;
use c::spdk_log_flag as Flag;

/// Most verbose level that goes to the system log.
static LEVEL: AtomicI32 = AtomicI32::new(c::SPDK_LOG_NOTICE);
/// Most verbose level that goes to stderr.
static PRINT_LEVEL: AtomicI32 = AtomicI32::new(c::SPDK_LOG_NOTICE);
static TIMESTAMPS: AtomicBool = AtomicBool::new(true);
static FLAGS: Mutex<Vec<Ptr<Flag>>> = Mutex::new(Vec::new());

unsafe extern "C" {
    static stderr: *mut libc::FILE;
}

/// Writes a text to a `FILE` of C, so that the text keeps its order with the program's own output.
pub(crate) fn write_to(file: Ptr<libc::FILE>, text: &str) {
    if !file.is_null() {
        // SAFETY: `text` has `text.len()` bytes, and C guarantees that the stream is open.
        unsafe { libc::fwrite(text.as_ptr().cast::<c_void>(), 1, text.len(), file.raw()) };
        // SAFETY: C guarantees that the stream is open.
        unsafe { libc::fflush(file.raw()) };
    }
}

/// Logs an error of the stand-in to the program's log.
pub(crate) fn error(problem: &str) {
    let line = CString::new(format!("spdk-emu: {problem}\n")).unwrap_or_default();
    let none = std::ptr::null();
    // SAFETY: the format takes one string, and `line` ends in NUL.
    unsafe { c::spdk_log(c::SPDK_LOG_ERROR, none, -1, none, c"%s".as_ptr(), line.as_ptr()) };
}

/// Returns the local time with microseconds. The text is empty if timestamps are off.
fn stamp() -> String {
    if !TIMESTAMPS.load(Relaxed) {
        return String::new();
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = libc::time_t::try_from(now.as_secs()).unwrap_or_default();
    // SAFETY: the struct has numbers, for which zeros are valid, and a pointer, which may be null.
    let mut at: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to local variables, of which the second can be written.
    unsafe { libc::localtime_r(&raw const seconds, &raw mut at) };
    let (year, month) = (at.tm_year + 1900, at.tm_mon + 1);
    let (day, hour, minute, second) = (at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec);
    let micros = now.subsec_micros();
    format!("[{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{micros:06}] ")
}

fn name(level: c_int) -> &'static str {
    const NAMES: [&str; 5] = ["ERROR", "WARNING", "NOTICE", "INFO", "DEBUG"];
    usize::try_from(level).ok().and_then(|level| NAMES.get(level)).copied().unwrap_or("LOG")
}

fn syslog_level(level: c_int) -> c_int {
    match level {
        c::SPDK_LOG_DISABLED => -1,
        c::SPDK_LOG_ERROR => libc::LOG_ERR,
        c::SPDK_LOG_WARN => libc::LOG_WARNING,
        c::SPDK_LOG_NOTICE => libc::LOG_NOTICE,
        _ => libc::LOG_INFO,
    }
}

/// Returns the message with its prefix.
fn line(level: Option<c_int>, file: Text, number: c_int, function: Text, message: &str) -> String {
    let Some(file) = file.get() else { return message.to_owned() };
    let function = function.get().unwrap_or(c"?").to_string_lossy();
    let level = level.map(|level| format!("*{}*: ", name(level))).unwrap_or_default();
    format!("{}:{number:4}:{function}: {level}{message}", file.to_string_lossy())
}

c_calls! {
    /// Returns true if a message of this level is written anywhere.
    fn spdk_emu_log_shown(level: c_int) -> bool {
        level <= LEVEL.load(Relaxed).max(PRINT_LEVEL.load(Relaxed)) && level > c::SPDK_LOG_DISABLED
    }

    /// Writes a formatted message to stderr and to the system log.
    fn spdk_emu_log(level: c_int, file: Text, number: c_int, function: Text, message: Text) {
        let message = message.get().unwrap_or_default().to_string_lossy();
        let line = line(Some(level), file, number, function, &message);
        if level <= PRINT_LEVEL.load(Relaxed) {
            // SAFETY: the C library sets this variable to an open stream before any code of this library
            // runs.
            let to = unsafe { Ptr::new(stderr) };
            write_to(to, &format!("{}{line}", stamp()));
        }
        if level <= LEVEL.load(Relaxed)
            && let Ok(line) = CString::new(line)
        {
            // SAFETY: the format takes one string, and `line` ends in NUL.
            unsafe { libc::syslog(syslog_level(level), c"%s".as_ptr(), line.as_ptr()) };
        }
    }

    /// Writes a formatted message to a stream.
    fn spdk_emu_flog(to: Ptr<libc::FILE>, file: Text, number: c_int, function: Text, message: Text) {
        let message = message.get().unwrap_or_default().to_string_lossy();
        write_to(to, &format!("{}{}", stamp(), line(None, file, number, function, &message)));
    }

    fn spdk_log_set_level(level: c_int) { LEVEL.store(level, Relaxed); }
    fn spdk_log_get_level() -> c_int { LEVEL.load(Relaxed) }
    fn spdk_log_set_print_level(level: c_int) { PRINT_LEVEL.store(level, Relaxed); }
    fn spdk_log_get_print_level() -> c_int { PRINT_LEVEL.load(Relaxed) }
    fn spdk_log_enable_timestamps(value: bool) { TIMESTAMPS.store(value, Relaxed); }

    fn spdk_log_to_syslog_level(level: c_int) -> c_int { syslog_level(level) }

    /// Writes a dump of the bytes, sixteen per line, in hexadecimal and as text.
    fn spdk_log_dump(to: Ptr<libc::FILE>, label: Text, buf: Ptr<u8>, len: usize) {
        // SAFETY: C passes `len` bytes, and does not change them during the call.
        let bytes = unsafe { buf.slice(len) };
        let mut text = format!("{}\n", label.get().unwrap_or_default().to_string_lossy());
        for (place, row) in (0..).step_by(16).zip(bytes.chunks(16)) {
            let mut numbers: String = row.iter().map(|byte| format!("{byte:02x} ")).collect();
            if row.len() > 8 {
                numbers.insert(24, ' ');
            }
            let letter = |byte: &u8| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' };
            let letters: String = row.iter().map(letter).collect();
            text += &format!("{place:08x}  {numbers:<49} {letters}\n");
        }
        write_to(to, &text);
    }
}

fn flag_name(flag: &Flag) -> &CStr {
    // SAFETY: the program never frees or changes the names of its flags, which end in NUL.
    unsafe { Text::new(flag.name) }.get().unwrap_or_default()
}

c_calls! {
    fn spdk_log_register_flag(name: Text, flag: Ptr<Flag>) {
        if let (Some(_), false) = (name.get(), flag.is_null()) {
            let mut flags = lock(&FLAGS);
            flags.push(flag);
            flags.sort_by_key(|flag| flag.get().map(|flag| flag_name(flag).to_bytes().to_ascii_lowercase()));
        }
    }

    fn spdk_log_get_first_flag() -> Ptr<Flag> { lock(&FLAGS).first().copied().unwrap_or(Ptr::NULL) }

    fn spdk_log_get_next_flag(flag: Ptr<Flag>) -> Ptr<Flag> {
        let flags = lock(&FLAGS);
        let place = flags.iter().position(|known| known.raw() == flag.raw());
        place.and_then(|place| flags.get(place + 1)).copied().unwrap_or(Ptr::NULL)
    }
}

/// Returns true if the pattern matches the name of the flag. The pattern `all` matches every flag. Other
/// patterns may have the wildcards `*` and `?`.
fn matches(pattern: &CStr, flag: &Flag) -> bool {
    let name = CString::new(flag_name(flag).to_bytes().to_ascii_lowercase()).unwrap_or_default();
    let pattern = CString::new(pattern.to_bytes().to_ascii_lowercase()).unwrap_or_default();
    // SAFETY: both pointers are to strings that end in NUL.
    pattern.as_c_str() == c"all" || unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), 0) } == 0
}

fn set_flag(pattern: Text, enabled: bool) -> c_int {
    let Some(pattern) = pattern.get() else { return -libc::EINVAL };
    let mut found = pattern.to_bytes().eq_ignore_ascii_case(b"all");
    for flag in &*lock(&FLAGS) {
        if let Some(&known) = flag.get().filter(|known| matches(pattern, known)) {
            found = true;
            flag.put(Flag { enabled, ..known });
        }
    }
    if found { 0 } else { -libc::EINVAL }
}

c_calls! {
    fn spdk_log_get_flag(name: Text) -> bool {
        let Some(name) = name.get() else { return false };
        let is = |flag: &Flag| flag_name(flag).to_bytes().eq_ignore_ascii_case(name.to_bytes());
        lock(&FLAGS).iter().filter_map(|flag| flag.get()).any(|flag| flag.enabled && is(flag))
    }

    fn spdk_log_set_flag(name: Text) -> c_int { set_flag(name, true) }
    fn spdk_log_clear_flag(name: Text) -> c_int { set_flag(name, false) }

    fn spdk_log_usage(to: Ptr<libc::FILE>, option: Text) {
        let known: Vec<_> = lock(&FLAGS)
            .iter()
            .filter_map(|flag| flag.get())
            .map(|flag| flag_name(flag).to_string_lossy().into_owned())
            .collect();
        let option = option.get().unwrap_or_default().to_string_lossy();
        write_to(to, &format!(" {option}, --logflag <flag>    enable log flag (all, {})\n", known.join(", ")));
    }
}
