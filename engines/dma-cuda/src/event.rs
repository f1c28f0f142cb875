//! Sleeping until a completion: after the first transfers in flight the driver calls a host function, which
//! writes to an `eventfd`.
#![expect(unsafe_code, reason = "passes a counted pointer through the driver")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dma_core::Result;
use dma_process::above_stdio;
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::Handle;
use crate::stream::Stream;

/// The descriptor that becomes readable, and the stream of the host functions.
#[derive(Debug)]
pub(crate) struct Signal {
    fd: Arc<OwnedFd>,
    /// A separate stream, so that a function runs after the first transfers and no transfer waits for a
    /// function.
    stream: Stream,
}

impl Signal {
    pub(crate) fn new(stream: Stream) -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(above_stdio)
            .map_err(std::io::Error::from)?;
        Ok(Self { fd: Arc::new(fd), stream })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        (*self.fd).as_fd()
    }

    /// Makes the descriptor readable once `event` has happened.
    pub(crate) fn signal_after(&self, event: Handle) -> Result<(), c_int> {
        let device = &self.stream.device;
        let Some(launch) = device.driver.cuLaunchHostFunc else { return Err(crate::error::NOT_SUPPORTED) };
        // The function owns a reference of its own, because it may run after the queue is closed.
        let share = Arc::into_raw(Arc::clone(&self.fd)).cast_mut().cast::<c_void>();
        let launched = device.call(|driver| {
            // SAFETY: the event and the stream belong to this device and exist, and `call` makes its context
            // current.
            match unsafe { (driver.cuStreamWaitEvent)(self.stream.handle, event, 0) } {
                // SAFETY: the driver calls `write` once and passes `share`. `write` takes over the reference
                // that `share` holds.
                0 => unsafe { launch(self.stream.handle, write, share) },
                code => code,
            }
        });
        if launched.is_err() {
            // SAFETY: the function was not queued, so this call still owns the reference of `share`.
            drop(unsafe { Arc::from_raw(share.cast::<OwnedFd>()) });
        }
        launched
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // The read may fail, because the descriptor may not be readable.
        let _ = rustix::io::read(&*self.fd, &mut count);
    }

    /// Makes the descriptor readable at once.
    pub(crate) fn set(&self) {
        signal(&self.fd);
    }
}

fn signal(fd: &OwnedFd) {
    // The write fails only if the counter is full, and then the descriptor is readable.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// The driver calls this on a thread of its own, where no call of CUDA is allowed.
unsafe extern "C" fn write(share: *mut c_void) {
    // SAFETY: `signal_after` passed this reference, and this call takes its ownership.
    let fd = unsafe { Arc::from_raw(share.cast_const().cast::<OwnedFd>()) };
    signal(&fd);
}
