//! Sleeping until a completion: a function that the driver calls behind the first transfers in flight, and
//! that writes to an `eventfd`.
#![expect(unsafe_code, reason = "passes a counted pointer through the driver")]

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dma_core::Result;
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::Handle;
use crate::stream::Stream;

/// The descriptor that becomes readable, and the stream that makes it so.
#[derive(Debug)]
pub(crate) struct Signal {
    fd: Arc<OwnedFd>,
    /// Apart from the transfers, so that a function waits for the first of them, and none waits for a
    /// function.
    stream: Stream,
}

impl Signal {
    pub(crate) fn new(stream: Stream) -> Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        Ok(Self { fd: Arc::new(fd), stream })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        (*self.fd).as_fd()
    }

    /// Has the descriptor signalled once `event` has happened.
    pub(crate) fn signal_after(&self, event: Handle) -> Result<(), c_int> {
        let device = &self.stream.device;
        let Some(launch) = device.driver.cuLaunchHostFunc else { return Err(crate::error::NOT_SUPPORTED) };
        // The function has its own share, because it may run after the queue is closed.
        let share = Arc::into_raw(Arc::clone(&self.fd)).cast_mut().cast::<c_void>();
        let launched = device.call(|driver| {
            // SAFETY: an event and a stream of this device.
            match unsafe { (driver.cuStreamWaitEvent)(self.stream.handle, event, 0) } {
                // SAFETY: the driver calls the function once, with this pointer.
                0 => unsafe { launch(self.stream.handle, write, share) },
                code => code,
            }
        });
        if launched.is_err() {
            // SAFETY: the function was not queued, so that the share is still this one's.
            drop(unsafe { Arc::from_raw(share.cast::<OwnedFd>()) });
        }
        launched
    }

    /// Clears the descriptor.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        // It may not be readable.
        let _ = rustix::io::read(&*self.fd, &mut count);
    }

    /// Makes the descriptor readable at once.
    pub(crate) fn set(&self) {
        signal(&self.fd);
    }
}

fn signal(fd: &OwnedFd) {
    // It fails only if it is readable anyhow.
    let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
}

/// Called by the driver, on a thread of its own, where no call of CUDA is allowed.
unsafe extern "C" fn write(share: *mut c_void) {
    // SAFETY: the share that `signal_after` passed, which this call takes over.
    let fd = unsafe { Arc::from_raw(share.cast_const().cast::<OwnedFd>()) };
    signal(&fd);
}
