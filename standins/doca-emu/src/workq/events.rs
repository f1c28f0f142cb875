//! `doca_sync_event.h` of 2.2: jobs of sync events.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::{Rc, Weak};

use doca_sys::workq::bindings as old;

use crate::c_abi::{Code, Handle, INVALID, In, Out, Outcome, c, c_calls, require};
use crate::dev::Info;
use crate::sync_event::{Compare, Event, is_mask};

const WAIT_GT: u32 = old::DOCA_ACTION_SYNC_EVENT_FIRST + 1;
const GET: u32 = WAIT_GT + 1;
const SET: u32 = WAIT_GT + 2;
const ADD: u32 = WAIT_GT + 3;

/// The end of a job of any kind.
#[derive(Clone, Copy)]
pub(super) struct Ended {
    pub(super) kind: c_int,
    pub(super) user_data: c::doca_data,
    pub(super) status: Code,
}

/// The fields with which every job begins: `struct doca_job`, as words.
type Base = [u64; size_of::<old::doca_job>() / 8];

/// A job with a result: `struct doca_sync_event_job_get`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Get {
    _base: Base,
    value: Out<u64>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Set {
    _base: Base,
    value: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Add {
    _base: Base,
    value: u64,
    fetched: Out<u64>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct WaitGreater {
    _base: Base,
    value: u64,
    mask: u64,
}

/// Returns true if this type of job is for sync events.
pub(super) fn is_job(kind: c_int) -> bool {
    (WAIT_GT..=ADD).contains(&(kind as u32))
}

/// Executes a job of this kind, and returns its end, or adds a job that waits to `waits`.
pub(super) fn submit<B>(
    waits: &Waits,
    event: Rc<Event>,
    (kind, user_data): (c_int, c::doca_data),
    job: In<B>,
) -> Outcome<Option<Ended>> {
    let done = match kind as u32 {
        WAIT_GT => {
            // SAFETY: the kind says that C passes a job of this type.
            let WaitGreater { value, mask, .. } = unsafe { job.cast() }.get().ok_or(INVALID)?;
            require(is_mask(mask), INVALID)?;
            waits.0.borrow_mut().push(Wait { event, value, mask, kind, user_data });
            return Ok(None);
        }
        GET => {
            // SAFETY: the kind says that C passes a job of this type.
            let Get { value, .. } = unsafe { job.cast() }.get().ok_or(INVALID)?;
            value.check()?;
            event.get().map(|number| value.put_if(number))
        }
        SET => {
            // SAFETY: the kind says that C passes a job of this type.
            let Set { value, .. } = unsafe { job.cast() }.get().ok_or(INVALID)?;
            event.set(value)
        }
        _ => {
            // SAFETY: the kind says that C passes a job of this type.
            let Add { value, fetched, .. } = unsafe { job.cast() }.get().ok_or(INVALID)?;
            event.add(value).map(|before| fetched.put_if(before))
        }
    };
    let status = done.err().unwrap_or(c::DOCA_SUCCESS);
    Ok(Some(Ended { kind, user_data, status }))
}

struct Wait {
    event: Rc<Event>,
    value: u64,
    mask: u64,
    kind: c_int,
    user_data: c::doca_data,
}

/// Jobs of a work queue that wait.
#[derive(Default)]
pub(super) struct Waits(RefCell<Vec<Wait>>);

impl Waits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Returns true if a job waits for this event.
    pub(super) fn has(&self, event: &Weak<Event>) -> bool {
        self.0.borrow().iter().any(|wait| std::ptr::eq(Rc::as_ptr(&wait.event), event.as_ptr()))
    }

    /// Ends the first waiting job whose condition holds, or whose event's other side has ended. Returns its
    /// end.
    pub(super) fn progress(&self) -> Option<Ended> {
        let mut waits = self.0.borrow_mut();
        let (at, status) = waits.iter().enumerate().find_map(|(at, wait)| {
            wait.event.waited(Compare::Greater, wait.value, wait.mask).map(|status| (at, status))
        })?;
        let Wait { kind, user_data, .. } = waits.remove(at);
        Some(Ended { kind, user_data, status })
    }
}

c_calls! {
    fn doca_sync_event_job_get_supported(devinfo: Handle<Info>, job_type: u32) {
        let can = devinfo.get()?.function().sync_event && is_job(job_type as c_int);
        require(can, c::DOCA_ERROR_NOT_SUPPORTED)
    }
    /// Returns `NOT_SUPPORTED`, because this export is for other machines.
    fn doca_sync_event_export_remote(event: Handle<Event>, handle: *mut [u64; 2]) {
        event.get()?;
        require(!handle.is_null(), INVALID)?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    }
}
