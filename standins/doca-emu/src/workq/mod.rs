//! The calls of DOCA 1.5 to 2.2, on the objects of later versions. Calls that were only renamed are declared
//! together with their later names.
//!
//! Choices of ours, where no public source describes the real library:
//!
//! - When a job fails, all other jobs of its work queue and context end with `IO_FAILED`. Submissions return
//!   `BAD_STATE` until the work queue was removed from the context and added again.
//! - A context with several devices copies with the first one.
//! - Lists of buffers also work without the inventory's extension for linked lists.
//! - 1.5: a map that was stopped keeps its chunks and devices. Memory is registered when the first buffer or
//!   export needs it, because devices may be added later.
//! - 1.5: buffers can be made in a map without devices. While a map has buffers, no device can be added.
//! - 2.2: a job of a sync event that does not wait is executed before its submission returns. Jobs that wait
//!   end in any order. Jobs that wait end with `IO_FAILED` if the exporter has destroyed the event or has
//!   died.
//! - `doca_buf_refcount_add` returns `NOT_SUPPORTED`, as the header of 1.5 says.
//! - A log line names its source instead of the file. The default rate limit is 10 messages a second.
//!   Immutable limits behave as strict limits: they can still be changed to show fewer messages. 1.5:
//!   `doca_log_global_level_set` changes all backends, as in 2.2.
//! - Command lines: `--sdk-log-level` is accepted.
//! - If 1.5 lacks a code of later generations, such as `ALREADY_EXIST`, the stand-in returns `INVALID_VALUE`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

mod events;
mod queue;

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::buf::Buf;
use crate::c_abi::{Handle, INVALID, In, Out, Outcome, Text, c, c_calls, require};
use crate::config::FunctionConfig;
use crate::dev::Info;
use crate::inventory::Inventory;
use crate::log::{add_source, calls as log, first_backend};
use crate::rep::RepInfo;
pub(crate) use queue::Context;

/// True for the generation of DOCA 1.5, false for that of 2.2.
pub(crate) const FIRST: bool = cfg!(feature = "generation-1-5");

/// Mask of all extensions. The only one is `DOCA_BUF_EXTENSION_LINKED_LIST`.
const EXTENSIONS: u32 = 1;

c_calls! {
    /// Returns `NOT_SUPPORTED`, or `INVALID_VALUE` for an invalid buffer.
    fn doca_buf_refcount_add(it: Handle<Buf>, _refcount: Out<u16>) {
        it.get().and(Err(c::DOCA_ERROR_NOT_SUPPORTED))
    }
    fn doca_buf_inventory_create(
        user_data: In<c::doca_data>,
        num_elements: usize,
        extensions: u32,
        inventory: Out<Handle<Inventory>>,
    ) {
        require(extensions & !EXTENSIONS == 0, INVALID)?;
        inventory.make(|| {
            let made = Inventory::new(num_elements)?;
            if let Some(user_data) = user_data.get() {
                made.set_user_data(user_data);
            }
            Ok(Handle::give_rc(made))
        })
    }
}

/// Packs the PCI address: the bus in bits 0 to 7, the device in bits 8 to 12, the function in bits 13 to 15.
fn bdf(function: &FunctionConfig) -> Outcome<u16> {
    let part = |at: std::ops::Range<usize>| {
        function.pci.get(at).and_then(|digits| u16::from_str_radix(digits, 16).ok()).ok_or(INVALID)
    };
    Ok(part(5..7)? | part(8..10)? << 8 | part(11..12)? << 13)
}

c_calls! {
    fn doca_devinfo_get_pci_addr(devinfo: Handle<Info>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo.get()?.function()))
    }
    fn doca_devinfo_rep_get_pci_addr(devinfo_rep: Handle<RepInfo>, pci_addr: Out<u16>) {
        pci_addr.make(|| bdf(devinfo_rep.get()?.function()))
    }
}

/// Rate limiter of a source. Counts the source's messages since the interval began.
struct Bucket {
    source: c_int,
    since: Option<Instant>,
    messages: u16,
}

struct Log {
    /// Names of sources, indexed by their numbers. They are never freed, because another thread may be
    /// logging with them.
    names: Vec<&'static CStr>,
    buckets: Vec<Bucket>,
    bucket_time: u16,
    quantity: u16,
}

fn lock() -> MutexGuard<'static, Log> {
    static LOG: Mutex<Log> =
        Mutex::new(Log { names: Vec::new(), buckets: Vec::new(), bucket_time: 1, quantity: 10 });
    dma_process::lock(&LOG)
}

/// Returns a copy of the name. The copy is never freed, and is reused for equal names.
fn keep(name: &CStr, known: &[&'static CStr]) -> &'static CStr {
    let found = known.iter().copied().find(|other| *other == name);
    found.unwrap_or_else(|| Box::leak(CString::from(name).into_boxed_c_str()))
}

c_calls! {
    /// Makes the first backend, which writes to standard error, write to a stream. The stream must stay open.
    fn doca_log_stream_redirect(stream: *mut c::FILE) {
        // SAFETY: backends are never destroyed, so the program keeps the stream open from now on, or passes
        // NULL.
        unsafe { log::redirect(stream) }
    }
    /// Registers a source. Its log lines contain its name.
    fn doca_log_source_register(name: Text, source: Out<c_int>) {
        let text = name.value()?;
        if FIRST {
            first_backend()?;
        }
        source.make(|| {
            let mut log = lock();
            let number = add_source();
            let name = keep(text, &log.names);
            let place = usize::try_from(number).map_err(|_| c::DOCA_ERROR_UNEXPECTED)?;
            if log.names.len() <= place {
                log.names.resize(place + 1, c"");
            }
            log.names[place] = name;
            Ok(number)
        })
    }
    fn doca_log_get_bucket_time() -> u16 { lock().bucket_time }
    fn doca_log_set_bucket_time(bucket_time: u16) -> () { lock().bucket_time = bucket_time }
    fn doca_log_get_quantity() -> u16 { lock().quantity }
    fn doca_log_set_quantity(quantity: u16) -> () { lock().quantity = quantity }
    fn doca_log_rate_bucket_register(source: c_int, bucket: Out<c_int>) {
        bucket.make(|| {
            let buckets = &mut lock().buckets;
            buckets.push(Bucket { source, since: None, messages: 0 });
            c_int::try_from(buckets.len() - 1).map_err(|_| c::DOCA_ERROR_NO_MEMORY)
        })
    }
    /// Returns the name of a source to `variadic.c`.
    fn doca_emu_log_source(source: c_int) -> *const c_char {
        let log = lock();
        usize::try_from(source).ok().and_then(|place| log.names.get(place)).unwrap_or(&c"").as_ptr()
    }
    /// Counts a message for `variadic.c`, and sets `shown` to false if the rate limit is exceeded.
    fn doca_emu_log_bucket(source: c_int, bucket: c_int, shown: Out<bool>) {
        let mut log = lock();
        let (limit, time) = (log.quantity, Duration::from_secs(log.bucket_time.into()));
        let place = usize::try_from(bucket).map_err(|_| INVALID)?;
        let bucket = log.buckets.get_mut(place).filter(|bucket| bucket.source == source).ok_or(INVALID)?;
        if bucket.since.is_none_or(|since| since.elapsed() >= time) {
            bucket.since = Some(Instant::now());
            bucket.messages = 0;
        }
        bucket.messages = bucket.messages.saturating_add(1);
        shown.put(bucket.messages <= limit)
    }
}
