//! `doca_log.h`: sources with names, and messages of limited rate.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::FIRST;
use crate::c_abi::{INVALID, Out, Text, c, c_calls};
use crate::log::calls as log;
use crate::log::{add_source, first_backend};

/// A bucket: at most so many messages of a place in a time.
struct Bucket {
    source: c_int,
    since: Option<Instant>,
    messages: u16,
}

struct Log {
    /// By the source's number. They stay, as messages may be underway.
    names: Vec<&'static CStr>,
    buckets: Vec<Bucket>,
    /// In seconds.
    bucket_time: u16,
    quantity: u16,
}

fn lock() -> MutexGuard<'static, Log> {
    static LOG: Mutex<Log> =
        Mutex::new(Log { names: Vec::new(), buckets: Vec::new(), bucket_time: 1, quantity: 10 });
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A string that lives as long as the process: the known one, if there is one.
fn keep(name: &CStr, known: &[&'static CStr]) -> &'static CStr {
    let found = known.iter().copied().find(|other| *other == name);
    found.unwrap_or_else(|| Box::leak(CString::from(name).into_boxed_c_str()))
}

c_calls! {
    /// Lets the first backend, which is standard error's, write to a stream that stays open.
    fn doca_log_stream_redirect(stream: *mut c::FILE) {
        // SAFETY: the program keeps the stream open as long as the backend, which is for ever.
        unsafe { log::redirect(stream) }
    }
    /// A source, whose name is in its lines.
    fn doca_log_source_register(name: Text, source: Out<c_int>) {
        let text = name.get()?;
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
    /// For `variadic.c`: the name of a source.
    fn doca_emu_log_source(source: c_int) -> *const c_char {
        let log = lock();
        usize::try_from(source).ok().and_then(|place| log.names.get(place)).unwrap_or(&c"").as_ptr()
    }
    /// For `variadic.c`: counts a message, and says whether the bucket has room for it.
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
