//! A forked child leaves a trace to its parent. The test is alone in its process, because a process with many
//! threads should not fork.
#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "forks")]

mod engines;

use dma_core::{DmaEngineExt, ErrorKind, QueueOptions};
use dma_layers::record::Trace;
use engines::{record, sim};

#[test]
fn a_child_that_drops_a_recorded_engine_leaves_the_trace_to_its_parent() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = Some(record(sim("sim:profile=dsa"), folder.path()));

    // SAFETY: the parent has no threads that hold a lock, and the child exits before it returns.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let own = engine.take().expect("the parent's");
        let refused = own.finish().is_err_and(|e| e.kind() == ErrorKind::Unsupported);
        drop(own);
        // SAFETY: `_exit` ends the process without running handlers of the parent.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: the status is a local variable.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's status");

    let engine = engine.expect("the parent's");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let memory = || engine.allocate(100).expect("memory");
    queue.copy(memory(), memory()).expect("accepted").wait().expect("completes");
    drop(queue);
    engine.finish().expect("a trace");
    let trace = Trace::load(&folder.path().join("a.trace")).expect("a trace");
    assert_eq!((trace.queues().len(), trace.recorded().partial), (1, false));
}
