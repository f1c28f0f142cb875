//! Tests that the threads of a shared queue's lanes stay on their cores. The test has its own process, so
//! that it can find threads by name.
#![cfg(target_os = "linux")]

use dma_core::{DmaEngineExt, ErrorKind, QueueOptions, SharedQueueOptions};
use dma_cpu::{CpuEngine, CpuOptions};

/// Returns the core lists of the threads whose names begin with `name`.
fn cores_of_threads(name: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the system lists the threads").flatten();
    let read = |task: &std::fs::DirEntry, file| std::fs::read_to_string(task.path().join(file)).ok();
    let named = tasks.filter(|task| read(task, "comm").is_some_and(|comm| comm.starts_with(name)));
    named
        .filter_map(|task| {
            let status = read(&task, "status")?;
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_owned())
        })
        .collect()
}

/// The kernel still lists a thread briefly after it was joined.
fn wait_for_the_end_of(name: &str) {
    while !cores_of_threads(name).is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn threads_of_lanes_stay_on_the_cores_given() {
    let all = rustix::thread::sched_getaffinity(None).expect("the system tells");
    let core = (0..1024).find(|core| all.is_set(*core)).expect("the thread runs on one core");
    let engine = CpuEngine::open(&CpuOptions::new()).expect("it opens");
    let options = SharedQueueOptions::new().with_lanes(2).with_queue(QueueOptions::new().with_depth(8));
    // A core that this machine lacks is ignored, if other cores remain.
    let queue = engine
        .open_shared_queue(&options.clone().with_cores([core, 999_999]))
        .expect("the queue opens on this core");
    assert_eq!(cores_of_threads("dma-lane-"), [core.to_string(), core.to_string()]);
    let pair = (engine.allocate(100).expect("memory"), engine.allocate(100).expect("memory"));
    queue.copy(pair.0, pair.1).expect("accepted").wait().expect("done");
    drop(queue);
    wait_for_the_end_of("dma-lane-");
    let now = rustix::thread::sched_getaffinity(None).expect("the system tells");
    assert!(
        (0..1024).all(|core| now.is_set(core) == all.is_set(core)),
        "the caller's thread keeps its cores"
    );

    let e =
        engine.open_shared_queue(&options.with_cores([999_999])).expect_err("the machine has no such core");
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    assert!(e.to_string().contains("999999") && !e.hint().is_empty(), "{e}");
    wait_for_the_end_of("dma-lane-");
}
