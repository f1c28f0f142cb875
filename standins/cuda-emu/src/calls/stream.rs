//! Streams, events, and functions that streams call.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint};

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{self, DISABLE_TIMING, INTERPROCESS, NON_BLOCKING, ValueOperation, lock};
use crate::host_call::{Data, HostCall, HostFunction, StreamCallback, Until};
use crate::shared_event::EventHandle;

fn create(stream: Out<u64>, flags: c_uint, priority: c_int) -> Outcome {
    require(flags & !NON_BLOCKING == 0, Code::INVALID_VALUE)?;
    stream.put(lock()?.create_stream(flags, priority)?)
}

/// `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`.
const NO_BARRIER: c_uint = 1;

/// Writes the status of a stream that captures nothing. Other results are defined only for one that does.
fn not_capturing(stream: u64, status: Out<c_int>) -> Outcome {
    lock()?.stream_of(stream)?;
    status.put(0)
}

fn write(addr: u64, value: u64, len: u64, flags: c_uint) -> Outcome<ValueOperation> {
    require(flags & !NO_BARRIER == 0, Code::INVALID_VALUE)?;
    Ok(ValueOperation { addr, value, len, until: None })
}

fn wait(addr: u64, value: u64, len: u64, flags: c_uint) -> Outcome<ValueOperation> {
    /// `CU_STREAM_WAIT_VALUE_FLUSH`. The attribute `CAN_FLUSH_REMOTE_WRITES` is 0.
    const FLUSH: c_uint = 1 << 30;
    let until = match flags {
        0 => Until::AtLeast,
        1 => Until::Equal,
        2 => Until::And,
        3 => Until::Nor,
        flags if flags & FLUSH != 0 => return Err(Code::NOT_SUPPORTED),
        _ => return Err(Code::INVALID_VALUE),
    };
    Ok(ValueOperation { addr, value, len, until: Some(until) })
}

/// Queues one write of a value, or one wait.
fn queue(stream: u64, operation: Outcome<ValueOperation>) -> Outcome {
    lock()?.values(stream, &[operation?])
}

/// `CUstreamBatchMemOpParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchOperation {
    kind: c_int,
    /// The flags of a barrier. Other operations have no value here.
    barrier_flags: c_uint,
    addr: u64,
    /// A value of 4 or 8 bytes, in the order of the processor.
    value: u64,
    flags: c_uint,
    rest: [u64; 2],
}

const _: () = assert!(size_of::<BatchOperation>() == 48);

impl BatchOperation {
    /// Returns the operation, or `None` for a barrier: all steps of a stream are ordered anyway.
    fn decode(&self) -> Outcome<Option<ValueOperation>> {
        // Both processors of the stand-in store the lower half of the value first.
        let short = self.value & u64::from(u32::MAX);
        match self.kind {
            1 => wait(self.addr, short, 4, self.flags).map(Some),
            2 => write(self.addr, short, 4, self.flags).map(Some),
            4 => wait(self.addr, self.value, 8, self.flags).map(Some),
            5 => write(self.addr, self.value, 8, self.flags).map(Some),
            // `CU_STREAM_MEM_OP_BARRIER`, for the system or for the device.
            6 if self.barrier_flags <= 1 => Ok(None),
            // `CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES` and `_ATOMIC_REDUCTION`.
            3 | 8 => Err(Code::NOT_SUPPORTED),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

/// Maximum number of operations of `cuStreamBatchMemOp`.
const BATCH_MAX: c_uint = 256;

c_calls! {
    fn cuStreamCreate(stream: Out<u64>, flags: c_uint) { create(stream, flags, 0) }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority.clamp(-5, 0))
    }

    fn cuStreamDestroy_v2(stream: u64) { lock()?.destroy_stream(stream) }

    fn cuStreamSynchronize(stream: u64) { driver::wait_stream(lock()?, stream) }

    fn cuStreamQuery(stream: u64) {
        require(driver::stream_is_idle(&mut *lock()?, stream)?, Code::NOT_READY)
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) { lock()?.wait_event(stream, event) }

    fn cuStreamWriteValue32_v2(stream: u64, addr: u64, value: u32, flags: c_uint) {
        queue(stream, write(addr, value.into(), 4, flags))
    }

    fn cuStreamWriteValue64_v2(stream: u64, addr: u64, value: u64, flags: c_uint) {
        queue(stream, write(addr, value, 8, flags))
    }

    fn cuStreamWaitValue32_v2(stream: u64, addr: u64, value: u32, flags: c_uint) {
        queue(stream, wait(addr, value.into(), 4, flags))
    }

    fn cuStreamWaitValue64_v2(stream: u64, addr: u64, value: u64, flags: c_uint) {
        queue(stream, wait(addr, value, 8, flags))
    }

    fn cuStreamBatchMemOp_v2(stream: u64, count: c_uint, operations: In<BatchOperation>, flags: c_uint) {
        require(flags == 0 && count <= BATCH_MAX, Code::INVALID_VALUE)?;
        // SAFETY: C passes an array of `count` operations, or NULL, and does not change it during the call.
        let operations = unsafe { operations.slice(count as usize) }?;
        let decoded = operations.iter().map(BatchOperation::decode).collect::<Outcome<Vec<_>>>()?;
        let decoded: Vec<_> = decoded.into_iter().flatten().collect();
        lock()?.values(stream, &decoded)
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<c_int>) {
        let mut driver = lock()?;
        let stream = driver.stream_of(stream)?;
        priority.put(driver.stream(stream)?.priority)
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<c_uint>) {
        let mut driver = lock()?;
        let stream = driver.stream_of(stream)?;
        flags.put(driver.stream(stream)?.flags)
    }

    fn cuStreamGetCtx(stream: u64, context: Out<u64>) {
        let mut driver = lock()?;
        let stream = driver.stream_of(stream)?;
        context.put(driver.stream(stream)?.context)
    }

    fn cuStreamGetId(stream: u64, id: Out<u64>) {
        let stream = lock()?.stream_of(stream)?;
        id.put(stream)
    }

    fn cuStreamIsCapturing(stream: u64, capturing: Out<c_int>) {
        lock()?.stream_of(stream)?;
        capturing.put(0)
    }

    fn cuStreamGetCaptureInfo(stream: u64, status: Out<c_int>, _id: Out<u64>) { not_capturing(stream, status) }

    fn cuStreamGetCaptureInfo_v2(
        stream: u64,
        status: Out<c_int>,
        _id: Out<u64>,
        _graph: Out<u64>,
        _dependencies: Out<u64>,
        _number: Out<usize>,
    ) {
        not_capturing(stream, status)
    }

    fn cuStreamGetCaptureInfo_v3(
        stream: u64,
        status: Out<c_int>,
        _id: Out<u64>,
        _graph: Out<u64>,
        _dependencies: Out<u64>,
        _edges: Out<u64>,
        _number: Out<usize>,
    ) {
        not_capturing(stream, status)
    }

    fn cuEventCreate(event: Out<u64>, flags: c_uint) {
        let is_timed = flags & DISABLE_TIMING == 0;
        require(flags & !(1 | DISABLE_TIMING | INTERPROCESS) == 0 && (flags & INTERPROCESS == 0 || !is_timed), Code::INVALID_VALUE)?;
        event.put(lock()?.create_event(flags)?)
    }

    fn cuIpcGetEventHandle(handle: Out<EventHandle>, event: u64) {
        handle.put(lock()?.event_handle(event)?)
    }

    fn cuIpcOpenEventHandle(event: Out<u64>, handle: EventHandle) {
        event.check()?;
        event.put(lock()?.open_event(handle)?)
    }

    fn cuEventDestroy_v2(event: u64) { lock()?.destroy_event(event) }

    fn cuEventRecord(event: u64, stream: u64) { lock()?.record(event, stream) }

    fn cuEventRecordWithFlags(event: u64, stream: u64, _flags: c_uint) { lock()?.record(event, stream) }

    fn cuEventQuery(event: u64) {
        require(lock()?.event_is_over(event)?, Code::NOT_READY)
    }

    fn cuEventSynchronize(event: u64) { driver::wait(lock()?, |driver| driver.event_is_over(event)) }

    fn cuEventElapsedTime(milliseconds: Out<f32>, from: u64, to: u64) {
        let elapsed = lock()?.elapsed(from, to)?;
        milliseconds.put(elapsed)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, from: u64, to: u64) {
        let elapsed = lock()?.elapsed(from, to)?;
        milliseconds.put(elapsed)
    }

    fn cuLaunchHostFunc(stream: u64, function: Option<HostFunction>, data: Data) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        lock()?.call_host(stream, HostCall::Function { function, data })
    }

    fn cuStreamAddCallback(stream: u64, function: Option<StreamCallback>, data: Data, _flags: c_uint) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        lock()?.call_host(stream, HostCall::Callback { function, stream, data })
    }
}
