//! After warm-up, a block of a file on its way into device memory or out of it allocates nothing, unless two
//! threads release its operation at once: a transfer of a thousand blocks allocates hardly more often than
//! one of a few.

use dma::files::{DeviceFiles, DmaFile, FilePiece, FileQueueOptions, OpenFile};
use dma::prelude::*;
use dma::{MemoryRequest, Place};
use test_support::counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const BLOCK: usize = 4096;
const BUFFERS: usize = 4;
const FEW: usize = 4 * BUFFERS * BLOCK;
const MANY: usize = 1000 * BLOCK;

// This is the only test in the file, because allocations of the whole process are counted.
#[test]
fn nothing_is_allocated_per_block_once_warm() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, vec![7; MANY]).expect("written");
    for (name, place) in [("cpu", Place::Host), ("sim:device_memory=8M", Place::Device)] {
        let engine = dma::open(name).expect("it opens");
        let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(BLOCK, BUFFERS)).expect("a pool");
        let queue = engine.open_shared_queue(&SharedQueueOptions::new()).expect("a queue");
        let files = DeviceFiles::new(&queue, &pool, &FileQueueOptions::new()).expect("it opens");
        let window = engine.allocate_window(&MemoryRequest::new(MANY).with_place(place)).expect("memory");
        let file = OpenFile::new().with_write(true).open(&path).expect("it opens");
        for reads in [true, false] {
            let allocations = |len| allocations(&files, &file, &window.slice(..len), reads);
            // Lists grow, and two threads release an operation at once, at times that depend on the threads.
            // One allocation for each block would be a thousand more.
            const MORE: u64 = 250;
            let rounds: Vec<_> = (0..20).map(|_| (allocations(FEW), allocations(MANY))).collect();
            assert!(
                rounds.iter().any(|(few, many)| *many < few + MORE),
                "{name}, reads: {reads}: {rounds:?}"
            );
            let most = pool.classes().map(|class| class.count).max();
            assert_eq!(most, Some(BUFFERS), "the pool does not grow");
        }
    }
}

fn allocations(files: &DeviceFiles, file: &DmaFile, window: &Window, reads: bool) -> u64 {
    let before = counting::of_process();
    let pieces = vec![FilePiece::new(0..window.len() as u64, window.clone())];
    let transfer = if reads { files.read(file, pieces) } else { files.write(file, pieces) };
    transfer.expect("valid").wait().expect("done");
    counting::of_process() - before
}
