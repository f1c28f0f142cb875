//! The driver: contexts, streams and events, and their progress.
//!
//! One lock guards everything. Each call executes all steps of the streams whose time has come. If steps are
//! left, a thread executes them later. Only this thread calls host functions.

mod contexts;
mod events;
mod kernel_run;
mod kernels;
mod moves;
mod objects;
mod pieces;
mod streams;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use contexts::{current, disable_peer, enable_peer, end_context, release_primary, wait_context};
use dma_sim::model::Time;
use dma_standin::{ForkMark, with_signals_blocked};
pub(crate) use events::{DISABLE_TIMING, INTERPROCESS};
use kernels::Modules;
pub(crate) use kernels::{Function, SHARED_MAX, Shape};
use objects::{Context, PrimaryContext, Step, Stream, StreamEvent};
pub(crate) use streams::{NON_BLOCKING, ValueOperation, stream_is_idle, wait_stream};

use crate::codes::{Code, Outcome, require};
use crate::config::{Config, Machine};
use crate::gpu::Gpu;
use crate::memory::DriverMemory;

/// First handle. Each further handle is 16 higher, so that no handle is 0 or equals an address.
const FIRST_HANDLE: u64 = 0x10;

/// Longest sleep of a call that waits for a stream, in case no event wakes it.
const NAP: Duration = Duration::from_millis(20);

/// Interval at which the driver reads a value that a stream waits for.
const VALUE_POLL: Duration = Duration::from_micros(100);

/// The state that the lock protects.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) config: Config,
    pub(crate) memory: DriverMemory,
    gpus: Vec<Gpu>,
    primary: Vec<PrimaryContext>,
    contexts: BTreeMap<u64, Context>,
    streams: BTreeMap<u64, Stream>,
    events: BTreeMap<u64, StreamEvent>,
    pub(crate) modules: Modules,
    next_handle: u64,
    began: Instant,
    thread_started: bool,
    /// Number of copies so far, and of their bytes.
    pub(crate) copied: (u64, u64),
}

static STATE: Mutex<Option<Driver>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();
/// The process that initialized the driver.
static PROCESS: LazyLock<ForkMark> = LazyLock::new(ForkMark::new);

thread_local! {
    /// Contexts of this thread; the last is current.
    static CURRENT: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static IN_HOST_CALL: Cell<bool> = const { Cell::new(false) };
    static PER_THREAD_STREAMS: RefCell<BTreeMap<u64, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Refuses calls within host functions, in children of the process that initialized the driver, and on a
/// thread that is ending: destructors of libraries make such calls.
#[inline]
pub(crate) fn permit() -> Outcome {
    require(!IN_HOST_CALL.get(), Code::NOT_PERMITTED)?;
    require(
        CURRENT.try_with(|_| ()).is_ok() && PER_THREAD_STREAMS.try_with(|_| ()).is_ok(),
        Code::DEINITIALIZED,
    )?;
    if PROCESS.is_child() { Err(Code::NOT_INITIALIZED) } else { Ok(()) }
}

/// Initializes the driver.
pub(crate) fn init(flags: u32) -> Outcome {
    require(flags == 0, Code::INVALID_VALUE)?;
    let mut state = dma_process::lock(&STATE);
    if state.is_some() {
        return Ok(());
    }
    let complain = |problem: &dyn std::fmt::Display| {
        eprintln!("cuda-emu: {problem}");
        Code::UNKNOWN
    };
    let config = Config::in_use().map_err(|error| complain(&error))?;
    match config.machine.init {
        0 => {}
        code => return Err(Code(code)),
    }
    let memory =
        DriverMemory::new(config.gpus.iter().map(|gpu| gpu.memory)).map_err(|error| complain(&error))?;
    let gpus = config.gpus.iter().zip(&memory.spaces).map(|(gpu, space)| Gpu::new(gpu, space.mapping()));
    let gpus = gpus.collect::<Result<Vec<_>, _>>().map_err(|error| complain(&error))?;
    let primary = || PrimaryContext { context: None, retained: 0, flags: 0 };
    *state = Some(Driver {
        primary: config.gpus.iter().map(|_| primary()).collect(),
        config,
        memory,
        gpus,
        contexts: BTreeMap::new(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        modules: Modules::default(),
        next_handle: FIRST_HANDLE,
        began: Instant::now(),
        thread_started: false,
        copied: (0, 0),
    });
    Ok(())
}

/// Returns the settings of the driver, also before `cuInit`.
pub(crate) fn machine() -> Machine {
    let state = dma_process::lock(&STATE);
    match &*state {
        Some(driver) => driver.config.machine,
        None => Config::in_use().map(|config| config.machine).unwrap_or_default(),
    }
}

/// The locked driver.
#[derive(Debug)]
pub(crate) struct Locked(MutexGuard<'static, Option<Driver>>);

impl std::ops::Deref for Locked {
    type Target = Driver;

    #[inline]
    fn deref(&self) -> &Driver {
        self.0.as_ref().expect("`lock` has checked that the driver is initialized")
    }
}

impl std::ops::DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut Driver {
        self.0.as_mut().expect("`lock` has checked that the driver is initialized")
    }
}

/// Locks the driver.
///
/// # Errors
///
/// The driver is not initialized.
#[inline]
pub(crate) fn lock() -> Outcome<Locked> {
    let state = dma_process::lock(&STATE);
    if state.is_none() { Err(Code::NOT_INITIALIZED) } else { Ok(Locked(state)) }
}

impl Driver {
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x10;
        self.next_handle
    }

    /// Checks a device's number, and returns it as an index.
    pub(crate) fn device(&self, device: c_int) -> Outcome<usize> {
        usize::try_from(device).ok().filter(|at| *at < self.gpus.len()).ok_or(Code::INVALID_DEVICE)
    }

    /// Starts the thread if steps are left.
    fn start_thread(&mut self) {
        if self.streams.values().all(|stream| stream.steps.is_empty()) {
            return;
        }
        if !self.thread_started {
            self.thread_started = true;
            let thread = std::thread::Builder::new().name("cuda-emu".to_owned());
            if let Err(error) = with_signals_blocked(|| thread.spawn(run)) {
                eprintln!("cuda-emu: the thread for host functions and delays cannot be started: {error}");
                self.thread_started = false;
            }
        }
        CHANGED.notify_all();
    }

    fn now(&self) -> Time {
        Time::from_ns(self.began.elapsed().as_nanos() as u64)
    }

    /// Executes all steps whose time has come.
    pub(crate) fn progress(&mut self) {
        let now = self.now();
        for gpu in &mut self.gpus {
            gpu.advance(now);
        }
        // A step of one stream can end a wait of another, so repeat until no stream moves.
        while self.advance_streams() {}
    }

    /// Returns the time until the next event of a device.
    fn until_next(&mut self) -> Option<Duration> {
        let now = self.now();
        let next = self.gpus.iter_mut().filter_map(Gpu::next_event).min();
        let next = next.map(|next| Duration::from_nanos(next.saturating_sub(now).as_ps() / 1_000 + 1));
        if self
            .streams
            .values()
            .any(|s| matches!(s.steps.front(), Some(Step::Launch(run)) if run.is_running()))
        {
            return Some(Duration::ZERO);
        }
        let next = next.into_iter().chain(self.next_kernel_end()).min();
        // No call reports that the CPU has written a value, or that another process has recorded an event.
        let polls = self.streams.values().any(|stream| match stream.steps.front() {
            Some(Step::WaitValue { .. }) => true,
            Some(Step::Wait { event, .. }) => self.events.get(event).is_some_and(|e| e.records.are_shared()),
            _ => false,
        });
        if polls { Some(next.map_or(VALUE_POLL, |next| next.min(VALUE_POLL))) } else { next }
    }
}

/// Waits until `is_over` returns true, and executes steps meanwhile. `is_over` should fail if the context has
/// failed, because its streams then make no progress.
pub(crate) fn wait(mut driver: Locked, mut is_over: impl FnMut(&mut Driver) -> Outcome<bool>) -> Outcome {
    loop {
        driver.progress();
        if is_over(&mut driver)? {
            return Ok(());
        }
        let nap = driver.until_next().unwrap_or(NAP).min(NAP);
        let (state, _) = CHANGED.wait_timeout(driver.0, nap).unwrap_or_else(PoisonError::into_inner);
        driver = Locked(state);
    }
}

/// The driver's thread: advances the device's time, and calls host functions.
fn run() {
    IN_HOST_CALL.set(false);
    let mut state = dma_process::lock(&STATE);
    loop {
        let Some(driver) = &mut *state else { return };
        driver.progress();
        if let Some((handle, call)) = driver.take_call() {
            drop(state);
            IN_HOST_CALL.set(true);
            call.run();
            IN_HOST_CALL.set(false);
            state = dma_process::lock(&STATE);
            if let Some(stream) = state.as_mut().and_then(|driver| driver.streams.get_mut(&handle)) {
                stream.steps.pop_front();
                stream.done += 1;
            }
            CHANGED.notify_all();
            continue;
        }
        CHANGED.notify_all();
        state = match driver.until_next() {
            Some(nap) => CHANGED.wait_timeout(state, nap).unwrap_or_else(PoisonError::into_inner).0,
            None => CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
