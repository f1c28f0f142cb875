//! Cores, and the threads that are pinned to them.
#![expect(unsafe_code, reason = "the names are C's; runs the program's functions")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::{fs, thread};

use dma_standin::c_abi::require;
use dma_standin::with_signals_blocked;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::c_abi::{Addr, Outcome, Ptr, answer, c, c_calls};
use crate::{cpuset, lock};

type Start = Option<unsafe extern "C" fn(*mut c_void) -> c_int>;

/// The value that means "no core".
const NONE: u32 = c::SPDK_ENV_LCORE_ID_ANY;

/// The cores of the program.
struct Cores {
    /// Numbers of the cores, in ascending order.
    all: Vec<u32>,
    main: u32,
    workers: Vec<Worker>,
}

static CORES: OnceLock<Cores> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<u32> = const { Cell::new(NONE) };
    static EVERYWHERE: Cell<bool> = const { Cell::new(false) };
}

/// The thread that is pinned to a core.
#[derive(Default)]
struct Worker {
    core: u32,
    work: Mutex<CoreWork>,
    changed: Condvar,
}

#[derive(Default)]
enum CoreWork {
    #[default]
    None,
    Given(Start, Addr),
    Running,
}

impl Worker {
    fn run(&self) {
        CURRENT.set(self.core);
        bind(self.core);
        loop {
            let given = |work: &mut CoreWork| !matches!(work, CoreWork::Given(..));
            let waited = self.changed.wait_while(lock(&self.work), given);
            let mut work = waited.unwrap_or_else(PoisonError::into_inner);
            if let CoreWork::Given(Some(start), arg) = std::mem::replace(&mut *work, CoreWork::Running) {
                drop(work);
                // SAFETY: the program passed this function together with this argument, to be called once.
                unsafe { start(arg.raw()) };
            } else {
                drop(work);
            }
            *lock(&self.work) = CoreWork::None;
            self.changed.notify_all();
        }
    }
}

/// Pins this thread to a core. Cores that the machine lacks share the cores that it has.
fn bind(core: u32) {
    let there = thread::available_parallelism().map_or(1, usize::from);
    let mut set = CpuSet::new();
    set.set(core as usize);
    if sched_setaffinity(None, &set).is_err() {
        let mut set = CpuSet::new();
        set.set(core as usize % there);
        // If this call fails, the thread may run on any core.
        let _ = sched_setaffinity(None, &set);
    }
}

/// Lets this thread run on any core.
pub(crate) fn unbind() {
    let mut everywhere = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| everywhere.set(core));
    // If this call fails, the thread keeps its present cores.
    let _ = sched_setaffinity(None, &everywhere);
}

/// Starts a pinned thread for each core except the main core, to which this thread is pinned.
///
/// # Errors
///
/// `-EINVAL`: the main core is not in `all`. `-EAGAIN`: a thread could not be started.
pub(crate) fn start(all: Vec<u32>, main: u32) -> Outcome {
    require(all.contains(&main), -libc::EINVAL)?;
    let worker = |core: &u32| Worker { core: *core, ..Worker::default() };
    let workers = all.iter().filter(|core| **core != main).map(worker).collect();
    let cores = CORES.get_or_init(|| Cores { all, main, workers });
    for worker in &cores.workers {
        let name = format!("lcore-worker-{}", worker.core);
        let started = with_signals_blocked(|| thread::Builder::new().name(name).spawn(|| worker.run()));
        started.map_err(|_| -libc::EAGAIN)?;
    }
    CURRENT.set(cores.main);
    bind(cores.main);
    Ok(())
}

fn all() -> &'static [u32] {
    CORES.get().map_or(&[], |cores| &cores.all)
}

fn numa_id(core: u32) -> i32 {
    let node = |n: &i32| fs::exists(format!("/sys/devices/system/cpu/cpu{core}/node{n}")).unwrap_or(false);
    match all().contains(&core) {
        true => (0..64).find(node).unwrap_or(0),
        false => c::SPDK_ENV_NUMA_ID_ANY,
    }
}

fn last_numa_id() -> i32 {
    all().iter().map(|core| numa_id(*core)).max().unwrap_or(0)
}

/// Unpins this thread. `spdk_call_unaffinitized` pins the thread again after the program's function.
fn unpin() {
    if !EVERYWHERE.replace(true) {
        unbind();
    }
}

c_calls! {
    fn spdk_env_get_core_count() -> u32 { all().len() as u32 }
    fn spdk_env_get_current_core() -> u32 { CURRENT.get() }
    fn spdk_env_get_main_core() -> u32 { CORES.get().map_or(NONE, |cores| cores.main) }
    fn spdk_env_get_first_core() -> u32 { all().first().copied().unwrap_or(NONE) }
    fn spdk_env_get_last_core() -> u32 { all().last().copied().unwrap_or(NONE) }

    fn spdk_env_get_next_core(prev_core: u32) -> u32 {
        all().iter().copied().find(|core| *core > prev_core || prev_core == NONE).unwrap_or(NONE)
    }

    fn spdk_env_get_numa_id(core: u32) -> i32 { numa_id(core) }
    fn spdk_env_get_socket_id(core: u32) -> u32 { numa_id(core) as u32 }
    fn spdk_env_get_first_numa_id() -> i32 { 0 }
    fn spdk_env_get_last_numa_id() -> i32 { last_numa_id() }

    fn spdk_env_get_next_numa_id(prev_numa_id: i32) -> i32 {
        if prev_numa_id < last_numa_id() { prev_numa_id + 1 } else { i32::MAX }
    }

    fn spdk_env_get_cpuset(set: Ptr<c::spdk_cpuset>) { cpuset::put(set, all().iter().copied()); }

    fn spdk_env_core_get_smt_cpuset(set: Ptr<c::spdk_cpuset>, core: u32) -> bool {
        let one = [core];
        let cores = if core == NONE { all() } else { &one };
        let siblings = |core: &u32| {
            let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
            fs::read_to_string(path).ok().and_then(|text| cpuset::parse(&format!("[{}]", text.trim())))
        };
        let found: Option<Vec<_>> = cores.iter().map(siblings).collect();
        cpuset::put(set, found.iter().flatten().flatten().copied());
        found.is_some()
    }

    fn spdk_env_thread_launch_pinned(core: u32, start: Start, arg: Addr) -> c_int {
        let launch = || {
            let cores = CORES.get().ok_or(-libc::EINVAL)?;
            require(core != cores.main, -libc::EBUSY)?;
            let worker = cores.workers.iter().find(|worker| worker.core == core).ok_or(-libc::EINVAL)?;
            start.ok_or(-libc::EINVAL)?;
            let mut work = lock(&worker.work);
            require(matches!(*work, CoreWork::None), -libc::EBUSY)?;
            *work = CoreWork::Given(start, arg);
            worker.changed.notify_all();
            Ok(())
        };
        answer(launch())
    }

    fn spdk_env_thread_wait_all() {
        for worker in CORES.get().iter().flat_map(|cores| &cores.workers) {
            // Skip this thread's own core, because waiting for itself would deadlock.
            if worker.core != CURRENT.get() {
                let busy = |work: &mut CoreWork| !matches!(work, CoreWork::None);
                drop(worker.changed.wait_while(lock(&worker.work), busy));
            }
        }
    }

    fn spdk_unaffinitize_thread() { unpin() }

    fn spdk_call_unaffinitized(
        call: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
        arg: Addr,
    ) -> Addr {
        let Some(call) = call else { return Addr::NULL };
        let before = sched_getaffinity(None).ok().filter(|_| !EVERYWHERE.get());
        unpin();
        // SAFETY: the program passed this function together with this argument, to be called once.
        let result = unsafe { call(arg.raw()) };
        if let Some(before) = before {
            // If this call fails, the thread stays unpinned.
            let _ = sched_setaffinity(None, &before);
            EVERYWHERE.set(false);
        }
        Addr::new(result)
    }

    fn spdk_get_tid() -> c_int { rustix::thread::gettid().as_raw_nonzero().get() }
}
