//! Streams and events, which order transfers with the program's own work.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use dma_core::Result;

use crate::device::Device;
use crate::driver::{EVENT_DISABLE_TIMING, Handle};

/// A stream. The stream is destroyed with its last user; work that is queued by then is still executed.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) device: Arc<Device>,
    pub(crate) handle: Handle,
}

impl Stream {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        let handle =
            device.stream().map_err(|code| device.failed("the driver cannot create a stream", code))?;
        Ok(Self { device: Arc::clone(device), handle })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: `new` made the stream, and it is destroyed once.
        let _ = self.device.call(|driver| unsafe { (driver.cuStreamDestroy_v2)(self.handle) });
    }
}

fn event_with(device: &Device, flags: c_uint) -> Result<Handle, c_int> {
    let mut event = 0;
    // SAFETY: the call writes the event to a local variable.
    device.call(|driver| unsafe { (driver.cuEventCreate)(&raw mut event, flags) })?;
    Ok(event)
}

/// Makes an event that records no time.
pub(crate) fn event(device: &Device) -> Result<Handle, c_int> {
    event_with(device, EVENT_DISABLE_TIMING)
}

/// Makes an event that records the time.
pub(crate) fn timing_event(device: &Device) -> Result<Handle, c_int> {
    event_with(device, 0)
}

/// Destroys an event. Queued records of the event, and waits for it, are still executed.
pub(crate) fn destroy(device: &Device, event: Handle) {
    // SAFETY: `event` made it, and it is destroyed once.
    let _ = device.call(|driver| unsafe { (driver.cuEventDestroy_v2)(event) });
}

/// The stream of a queue, which orders its transfers with other work on the device. See
/// [`CudaEngine::open_queue_with_stream`](crate::CudaEngine::open_queue_with_stream).
///
/// Any thread may use a handle, and it may outlive the queue. A raw `CUevent` or `CUstream` is a handle of
/// the CUDA driver API, or the equivalent `cudaEvent_t` or `cudaStream_t` of the runtime.
#[derive(Clone, Debug)]
pub struct CudaStream(pub(crate) Arc<Stream>);

impl CudaStream {
    /// Returns the `CUstream`. The `CUstream` is valid while a handle or the queue exists.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0.handle)
    }

    /// Delays transfers until the work that a `CUevent` has recorded is done. The delay applies to transfers
    /// that the queue submits to the driver from now on, by its next [`flush`](dma_core::Queue::flush) or
    /// wait. Does not block.
    ///
    /// So a copy can read the output of a kernel: record an event after the kernel, call this, then submit
    /// the copy.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the driver does not know the event; `DeviceLost`.
    ///
    /// # Safety
    ///
    /// `event` must be a `CUevent`, of any device of this process, that is not destroyed.
    pub unsafe fn wait_for_event(&self, event: *mut c_void) -> Result<()> {
        let Stream { device, handle } = &*self.0;
        // SAFETY: the caller's event is not destroyed, and the stream belongs to this value.
        device
            .call(|driver| unsafe { (driver.cuStreamWaitEvent)(*handle, event.addr(), 0) })
            .map_err(|code| device.failed("the stream cannot wait for the event", code))
    }

    /// Delays later work of a `CUstream` until the transfers that the queue has submitted to the driver so
    /// far are done. Call [`flush`](dma_core::Queue::flush) first. Does not block.
    ///
    /// So a kernel can read the result of a copy: submit the copy, flush, call this, then launch the kernel.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the driver does not know the stream; `OutOfMemory`; `DeviceLost`.
    ///
    /// # Safety
    ///
    /// `stream` must be a `CUstream`, of any device of this process, that is not destroyed.
    pub unsafe fn hold_stream(&self, stream: *mut c_void) -> Result<()> {
        let Stream { device, handle } = &*self.0;
        let fail = |code| device.failed("the stream cannot wait for transfers", code);
        let event = event(device).map_err(fail)?;
        let ordered = device.call(|driver| {
            // SAFETY: the event and the stream belong to this device and exist.
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
