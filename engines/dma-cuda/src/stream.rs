//! Streams and events, and the order with the program's own work.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use dma_core::Result;

use crate::device::Device;
use crate::driver::{EVENT_DISABLE_TIMING, Handle};

/// A stream. It is destroyed with its last user; queued work is still done after that.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: Arc<Device>,
    pub(crate) handle: Handle,
}

impl Stream {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let handle = device.stream().map_err(|code| device.failed("the driver makes no stream", code))?;
        Ok(Self { device: Arc::clone(device), handle })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and destroyed once.
        let _ = self.device.call(|driver| unsafe { (driver.cuStreamDestroy_v2)(self.handle) });
    }
}

/// Makes an event without a time.
pub(crate) fn event(device: &Device) -> Result<Handle, c_int> {
    let mut event = 0;
    // SAFETY: writes the event.
    device.call(|driver| unsafe { (driver.cuEventCreate)(&raw mut event, EVENT_DISABLE_TIMING) })?;
    Ok(event)
}

/// Destroys an event. Queued records of it, and waits for it, are still executed.
pub(crate) fn destroy(device: &Device, event: Handle) {
    // SAFETY: made by `event`, and destroyed once.
    let _ = device.call(|driver| unsafe { (driver.cuEventDestroy_v2)(event) });
}

/// The stream of a queue, to order its transfers with other work on the device:
/// [`CudaEngine::open_queue_with_stream`](crate::CudaEngine::open_queue_with_stream).
///
/// A handle is for any thread, and outlives the queue. A raw `CUevent` or `CUstream` is that of the CUDA
/// driver API or the equivalent `cudaEvent_t` and `cudaStream_t` of the runtime.
#[derive(Clone, Debug)]
pub struct CudaStream(pub(crate) Arc<Stream>);

impl CudaStream {
    /// Returns the `CUstream`. It is valid while a handle or the queue exists.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.handle)
    }

    /// Lets transfers start only after the work that a `CUevent` has recorded: those that the queue hands to
    /// the driver from now on, with its next [`flush`](dma_core::Queue::flush) or wait. Does not block.
    ///
    /// So a copy can read what a kernel writes: record an event behind the kernel, call this, then submit.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the driver does not know the event; `DeviceLost`.
    ///
    /// # Safety
    ///
    /// `event` is a `CUevent` that is not destroyed, of any device of this process.
    pub unsafe fn wait_for_event(&self, event: *mut c_void) -> Result<()> {
        let Stream { device, handle } = &*self.0;
        // SAFETY: the caller's event is not destroyed, and the stream is this value's.
        device
            .call(|driver| unsafe { (driver.cuStreamWaitEvent)(*handle, event.addr(), 0) })
            .map_err(|code| device.failed("the stream cannot wait for the event", code))
    }

    /// Lets later work of a `CUstream` start only after the transfers that the queue has handed to the driver
    /// so far: call [`flush`](dma_core::Queue::flush) first. Does not block.
    ///
    /// So a kernel can read what a copy writes: submit, flush, call this, then launch the kernel.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the driver does not know the stream; `OutOfMemory`; `DeviceLost`.
    ///
    /// # Safety
    ///
    /// `stream` is a `CUstream` that is not destroyed, of any device of this process.
    pub unsafe fn hold_stream(&self, stream: *mut c_void) -> Result<()> {
        let Stream { device, handle } = &*self.0;
        let fail = |code| device.failed("the stream cannot wait for transfers", code);
        let event = event(device).map_err(fail)?;
        let ordered = device.call(|driver| {
            // SAFETY: an event and a stream of this device.
            match unsafe { (driver.cuEventRecord)(event, *handle) } {
                // SAFETY: the caller's stream is not destroyed, and `event` was recorded.
                0 => unsafe { (driver.cuStreamWaitEvent)(stream.addr(), event, 0) },
                code => code,
            }
        });
        destroy(device, event);
        ordered.map_err(fail)
    }
}
