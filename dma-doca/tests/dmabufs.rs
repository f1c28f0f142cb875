//! Memory of another device, registered by its dma-buf with the stand-in SDK. The other device is the
//! simulated one, which has a file in memory instead of a dma-buf.

#[path = "support/calls.rs"]
mod calls;

use dma_core::{
    Access, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, MemoryRequest, QueueOptions, Window,
};
use dma_doca::{DocaEngine, DocaOptions};
use dma_sim::sim::{SimEngine, SimOptions};

const LEN: usize = 100_000;

fn gpu() -> SimEngine {
    SimEngine::open(&SimOptions::new().with_device_memory(1 << 20)).unwrap()
}

fn get(gpu: &SimEngine, from: &Window) -> Vec<u8> {
    let queue = gpu.open_queue(&QueueOptions::new()).unwrap();
    let to = gpu.allocate(from.len()).unwrap();
    queue.copy(from.clone(), to).unwrap().wait().unwrap().1.to_vec()
}

#[test]
fn memory_of_a_device_is_copied_without_a_mapping() {
    let (gpu, engine) = (gpu(), calls::engine(""));
    assert!(engine.info().capabilities.contains(Capabilities::REGISTER_DMABUF));
    let vram = gpu.allocate_device(LEN).unwrap();
    let registered = engine.register_device(vram.slice(5000..).dmabuf().unwrap()).unwrap();
    assert!(!registered.region().is_cpu_visible() && registered.len() == LEN - 5000);
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut src = engine.allocate(LEN - 5000).unwrap();
    src.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * 7) >> 3) as u8);
    let (src, registered) = queue.copy(src, registered).unwrap().wait().unwrap();
    let whole = get(&gpu, &vram);
    assert!(whole[5000..] == src[..] && whole[..5000].iter().all(|byte| *byte == 0));
    let (registered, got) =
        queue.copy(registered, engine.allocate(LEN - 5000).unwrap()).unwrap().wait().unwrap();
    assert!(got[..] == src[..]);
    // Operations that the device lacks are done in host memory.
    let (_, crc) = queue.crc32c(registered.clone(), 0).unwrap().wait().unwrap();
    let (_, expected) = queue.crc32c(src, 0).unwrap().wait().unwrap();
    assert_eq!(crc, expected);
    queue.fill(registered, [7; 8]).unwrap().wait().unwrap();
    assert!(get(&gpu, &vram)[5000..].iter().all(|byte| *byte == 7));
}

#[test]
fn unsuitable_memory_is_refused_with_the_remedy() {
    let gpu = gpu();
    let vram = gpu.allocate_device(LEN).unwrap();
    let engine = calls::engine("");
    let exportable = MemoryRequest::new(0).exportable(Access::all());
    let error = engine.register_device_with(vram.dmabuf().unwrap(), &exportable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let window = engine.register_device(vram.dmabuf().unwrap()).unwrap();
    let error = window.export(Access::all()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let file = tempfile::tempfile().unwrap();
    let memory = vram.dmabuf().unwrap();
    #[expect(unsafe_code, reason = "names memory by a descriptor")]
    // SAFETY: the file is empty, so no memory is accessed.
    let memory = unsafe { memory.with_dmabuf(file.into(), 0) };
    let error = engine.register_device(memory).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "the file is empty: {error}");

    let old = calls::library_without(&["doca_mmap_set_dmabuf_memrange"]);
    let old = DocaEngine::open(&DocaOptions::new().with_library(old)).unwrap();
    assert!(!old.info().capabilities.contains(Capabilities::REGISTER_DMABUF));
    let error = old.register_device(vram.dmabuf().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}
