//! Several threads access the same bytes of shared memory at the same time, all by safe code: ThreadSanitizer
//! finds no data race (`ci/sanitizers.sh thread dma-sim`), and every byte that is read was written by a
//! thread.

use std::thread;

use dma_core::{CacheHint, DmaEngine, DmaEngineExt, MemoryRequest, QueueOptions, Window};
use dma_cpu::{CpuEngine, CpuOptions};
use dma_ipc::{Pages, SharedMemory};
use dma_sim::sim::{SimEngine, SimOptions};

/// Lengths of the copies. The submitting call executes short copies. Long copies are divided into chunks, and
/// use streaming stores.
const LENS: [usize; 3] = [100, 5000, 1 << 20];
const ROUNDS: usize = 20;

/// Runs both functions at the same time, several times.
fn race(a: impl Fn() + Send, b: impl Fn() + Send) {
    let rounds = |act: &dyn Fn()| (0..ROUNDS).for_each(|_| act());
    thread::scope(|scope| {
        scope.spawn(move || rounds(&a));
        scope.spawn(move || rounds(&b));
    });
}

fn is_written(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| [0, 1, 2].contains(byte))
}

#[test]
fn threads_read_and_write_shared_memory() {
    for len in LENS {
        let memory = SharedMemory::allocate(len, Pages::Normal).expect("memory");
        race(
            || memory.write_at(0, &vec![1; len]).expect("in range"),
            || {
                let mut bytes = vec![2; len];
                memory.read_at(0, &mut bytes).expect("in range");
                assert!(is_written(&bytes));
                memory.write_at(0, &vec![2; len]).expect("in range");
            },
        );
    }
}

/// One thread writes the window repeatedly with a byte, by copies on its own queue.
fn copy_to(engine: &impl DmaEngine, to: &Window, byte: u8) {
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let mut src = engine.allocate(to.len()).expect("memory");
    src.fill(byte);
    let (src, _) = queue.copy(src, to.clone()).expect("room").wait().expect("copied");
    queue.fill(to.clone(), [byte; 8]).expect("room").wait().expect("filled");
    queue.fill(to.clone(), [1, 2, 1, 2, 1, 2, 1, 2]).expect("room").wait().expect("filled");
    // The thread also reads the window.
    let (_, read) = queue.copy(to.clone(), src).expect("room").wait().expect("copied");
    assert!(is_written(&read));
}

fn cpu_and_queue(engine: &impl DmaEngine) {
    for len in LENS {
        let window = engine.allocate_window(&MemoryRequest::new(len)).expect("memory");
        race(
            // The address is odd, so that the two sides have no common aligned units.
            || window.write_at(1, &vec![1; len - 1]).expect("in range"),
            || copy_to(engine, &window, 2),
        );
        let mut bytes = vec![3; len];
        window.read_at(0, &mut bytes).expect("in range");
        assert!(is_written(&bytes));
    }
}

fn two_queues(engine: &impl DmaEngine) {
    for len in LENS {
        let window = engine.allocate_window(&MemoryRequest::new(len)).expect("memory");
        race(|| copy_to(engine, &window, 1), || copy_to(engine, &window, 2));
    }
}

fn cpu(hint: CacheHint) -> CpuEngine {
    CpuEngine::open(&CpuOptions::new().with_threads(2).with_hint(hint)).expect("an engine")
}

#[test]
fn a_window_is_written_while_the_cpu_engine_copies_it() {
    for hint in [CacheHint::Hot, CacheHint::Cold] {
        cpu_and_queue(&cpu(hint));
    }
}

#[test]
fn queues_of_the_cpu_engine_copy_one_window() {
    for hint in [CacheHint::Hot, CacheHint::Cold] {
        two_queues(&cpu(hint));
    }
}

#[test]
fn a_window_is_written_while_the_simulator_copies_it() {
    cpu_and_queue(&SimEngine::open(&SimOptions::default()).expect("an engine"));
}

#[test]
fn queues_of_the_simulator_copy_one_window() {
    two_queues(&SimEngine::open(&SimOptions::default()).expect("an engine"));
}
