//! Tests device memory in an `AutoEngine`: the device allocates and copies it, and the device's failures
//! reach the caller.
#![expect(unsafe_code, reason = "implements `DmaEngine`")]

mod engines;

use std::sync::Arc;

use dma_core::{
    Access, BufferMut, Capabilities, DmaEngine, DmaEngineExt, EngineId, EngineInfo, Error, ErrorKind,
    ExportDescriptor, HostMemory, MemoryRequest, Place, Queue, QueueOptions, RawQueue, RawRegion, Result,
    Window,
};
use dma_layers::auto::{AutoEngine, AutoOptions};
use engines::{cpu, sim};

const LEN: usize = 4096;

fn auto(device: &str) -> AutoEngine {
    AutoEngine::new(cpu("cpu:threads=0"), sim(device), &AutoOptions::new()).unwrap()
}

fn filled(engine: &AutoEngine, byte: u8) -> BufferMut {
    let mut buffer = engine.allocate(LEN).unwrap();
    buffer.fill(byte);
    buffer
}

fn queue(engine: &AutoEngine) -> Queue {
    engine.open_queue(&QueueOptions::new()).unwrap()
}

/// Copies within host memory, so that the queue chooses the CPU for the next copies of this length.
fn copy_on_host(engine: &AutoEngine, queue: &Queue, times: usize) {
    let (mut src, mut dst) = (filled(engine, 3), filled(engine, 0));
    for _ in 0..times {
        (src, dst) = queue.copy(src, dst).unwrap().wait().unwrap();
        assert_eq!(dst[..], src[..]);
    }
}

fn bytes_of(engine: &AutoEngine, queue: &Queue, window: &Window) -> BufferMut {
    queue.copy(window.clone(), engine.allocate(window.len()).unwrap()).unwrap().wait().unwrap().1
}

#[test]
fn copies_and_fills_of_device_memory_go_to_the_device() {
    let engine = auto("sim:device_memory=1M,seed=1");
    let queue = queue(&engine);
    copy_on_host(&engine, &queue, 5000);
    let before = engine.report().device;
    let (_, window) =
        queue.copy(filled(&engine, 7), engine.allocate_device(LEN).unwrap()).unwrap().wait().unwrap();
    let second = engine.allocate_device(LEN).unwrap();
    let (_, second) = queue.copy(window, second).unwrap().wait().unwrap();
    assert!(bytes_of(&engine, &queue, &second).iter().all(|byte| *byte == 7));
    let second = queue.fill(second, *b"12345678").unwrap().wait().unwrap();
    assert_eq!(bytes_of(&engine, &queue, &second)[..8], *b"12345678");
    assert_eq!(engine.report().device - before, 5, "{}", engine.report());
    copy_on_host(&engine, &queue, 10);
    drop(second);
    copy_on_host(&engine, &queue, 10);
}

#[test]
fn failures_of_device_memory_reach_the_caller() {
    let engine = auto("sim:device_memory=1M,faults=fail@1,seed=2");
    let queue = queue(&engine);
    let (src, dst) = (filled(&engine, 7), engine.allocate_device(LEN).unwrap());
    let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::DeviceFault, "{error}");
    let native = error.error().native().expect("the device's code");
    assert!(!native.name.is_empty(), "{native:?}");
    let (_, dst) =
        queue.copy(filled(&engine, 8), engine.allocate_device(LEN).unwrap()).unwrap().wait().unwrap();
    assert!(bytes_of(&engine, &queue, &dst).iter().all(|byte| *byte == 8));
}

#[test]
fn a_lost_device_leaves_host_memory_to_the_cpu() {
    let engine = auto("sim:device_memory=1M,faults=gone@2,seed=3");
    let queue = queue(&engine);
    let window = engine.allocate_device(LEN).unwrap();
    let lost = (0..4).find_map(|_| {
        let submitted = queue.copy(filled(&engine, 7), window.clone());
        match submitted {
            Ok(transfer) => transfer.wait().err().map(|error| error.error().kind()),
            Err(refused) => Some(refused.error().kind()),
        }
    });
    assert!(matches!(lost, Some(ErrorKind::DeviceLost | ErrorKind::Aborted)), "{lost:?}");
    copy_on_host(&engine, &queue, 200);
    let error = match queue.copy(filled(&engine, 7), window) {
        Err(refused) => refused.error().kind(),
        Ok(transfer) => transfer.wait().unwrap_err().error().kind(),
    };
    assert_eq!(error, ErrorKind::DeviceLost);
}

#[test]
fn exports_and_imports_are_refused_for_device_memory() {
    let engine = auto("sim:device_memory=1M,seed=4");
    let request = MemoryRequest::new(LEN).with_place(Place::Device).exportable(Access::READ);
    let refused = engine.allocate_window(&request).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    assert!(refused.hint().contains("by its own name"), "{refused}");
    let capabilities = engine.info().capabilities;
    assert!(capabilities.contains(Capabilities::EXPORT) && !capabilities.contains(Capabilities::IMPORT));
    let other = auto("sim:seed=5");
    let capabilities = other.info().capabilities;
    assert!(capabilities.contains(Capabilities::IMPORT), "the device has no memory of its own");
    let refused = other.allocate_device(LEN).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

/// An engine that refuses to register host memory.
#[derive(Debug)]
struct Picky(Arc<dyn DmaEngine>);

// SAFETY: each call goes to the same engine, which keeps the promises. Only registrations of host memory are
// refused.
unsafe impl DmaEngine for Picky {
    fn info(&self) -> &EngineInfo {
        self.0.info()
    }

    fn id(&self) -> EngineId {
        self.0.id()
    }

    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.0.allocate_raw(request)
    }

    unsafe fn register_raw(&self, _: &HostMemory, _: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        Err(Error::bare(ErrorKind::InUse))
    }

    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.0.import_raw(descriptor)
    }

    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        self.0.open_queue_raw(options)
    }
}

#[test]
fn host_memory_that_the_device_refuses_is_not_copied_to_device_memory() {
    let device = Arc::new(Picky(sim("sim:device_memory=1M,seed=6")));
    let engine = AutoEngine::new(cpu("cpu:threads=0"), device, &AutoOptions::new()).unwrap();
    let queue = queue(&engine);
    let (src, dst) = (filled(&engine, 7), engine.allocate_device(LEN).unwrap());
    let error = queue.copy(src, dst).unwrap().wait().unwrap_err();
    assert_eq!(error.error().kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("the device cannot reach the other one"), "{error}");
    copy_on_host(&engine, &queue, 10);
}
