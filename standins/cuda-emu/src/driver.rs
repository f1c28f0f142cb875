//! The driver: contexts, streams and events, and their progress.
//!
//! One lock guards everything. Each call executes all steps of the streams whose time has come. If steps are
//! left, a thread executes them later. Only this thread calls host functions.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dma_sim::model::{ChannelId, Time};
use dma_standin::{ForkMark, with_signals_blocked};

use crate::codes::{Code, Outcome};
use crate::config::{Config, Machine};
use crate::gpu::{End, Gpu, Piece};
use crate::host_call::{HostCall, StreamValue, Until};
use crate::memory::{DriverMemory, Range};

/// Default stream of a context: `CU_STREAM_LEGACY`. NULL means the same.
const LEGACY: u64 = 1;
/// Default stream of a thread: `CU_STREAM_PER_THREAD`.
const PER_THREAD: u64 = 2;
/// Flag of streams that are not ordered with the default stream.
pub(crate) const NON_BLOCKING: u32 = 1;
/// Flag of events without a time.
pub(crate) const DISABLE_TIMING: u32 = 2;
/// First handle. Each further handle is 16 higher, so that no handle is 0 or equals an address.
const FIRST_HANDLE: u64 = 0x10;
/// Longest sleep of a call that waits for a stream, in case no event wakes it.
const NAP: Duration = Duration::from_millis(20);
/// Interval at which the driver reads a value that a stream waits for.
const VALUE_POLL: Duration = Duration::from_micros(100);
/// One in `REPORT_EVERY` pieces of a batch is reported at once, so that a full channel makes progress.
const REPORT_EVERY: usize = 256;

/// One step of a stream.
#[derive(Debug)]
enum Step {
    /// Pieces to move in any order.
    Move(Moves),
    /// Words of 4 bytes, `pitch` apart.
    Strided {
        bytes: u64,
        pitch: u64,
        word: u32,
        rows: u64,
    },
    Record {
        event: u64,
        number: u64,
    },
    Wait {
        event: u64,
        number: u64,
    },
    /// Waits until another stream has executed this number of steps.
    Behind {
        stream: u64,
        steps: u64,
    },
    /// Frees memory, unless the stream has allocated it again since.
    Free {
        addr: u64,
        id: u64,
    },
    WriteValue(StreamValue),
    WaitValue {
        value: StreamValue,
        until: Until,
    },
    Call(HostCall),
    /// A host function that the thread is calling now.
    Calling,
}

/// Pieces of one copy, fill or batch.
#[derive(Debug)]
struct Moves {
    pieces: Pieces,
    submitted: usize,
    ended: usize,
}

#[derive(Debug)]
enum Pieces {
    One(Piece),
    Batch(Vec<Piece>),
}

impl Pieces {
    fn as_slice(&self) -> &[Piece] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Batch(pieces) => pieces,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    primary: bool,
    /// The failure that ended the context. Every later call returns it.
    dead: Option<Code>,
    legacy: Option<u64>,
    peers: Vec<u64>,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: u64,
    pub(crate) flags: u32,
    pub(crate) priority: c_int,
    channel: ChannelId,
    steps: VecDeque<Step>,
    /// Number of steps so far (`queued`), and of those that have ended (`done`).
    queued: u64,
    done: u64,
    copies: u64,
    destroyed: bool,
}

#[derive(Debug)]
struct StreamEvent {
    context: u64,
    flags: u32,
    /// Number of requested records (`wanted`), and number of the last record that was executed (`recorded`).
    wanted: u64,
    recorded: u64,
    at: Instant,
    destroyed: bool,
}

#[derive(Debug)]
struct PrimaryContext {
    context: Option<u64>,
    retained: u32,
    flags: u32,
}

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
    if IN_HOST_CALL.get() {
        return Err(Code::NOT_PERMITTED);
    }
    if CURRENT.try_with(|_| ()).is_err() || PER_THREAD_STREAMS.try_with(|_| ()).is_err() {
        return Err(Code::DEINITIALIZED);
    }
    if PROCESS.is_child() { Err(Code::NOT_INITIALIZED) } else { Ok(()) }
}

/// Initializes the driver.
pub(crate) fn init(flags: u32) -> Outcome {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
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
    let mut driver = Driver {
        primary: config.gpus.iter().map(|_| primary()).collect(),
        config,
        memory,
        gpus,
        contexts: BTreeMap::new(),
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        next_handle: FIRST_HANDLE,
        began: Instant::now(),
        thread_started: false,
        copied: (0, 0),
    };
    let pools: Vec<_> = (0..driver.gpus.len()).map(|_| driver.handle()).collect();
    driver.memory.pools.add_defaults(&pools);
    *state = Some(driver);
    Ok(())
}

/// Returns the settings of the driver, also before `cuInit`.
pub(crate) fn machine() -> Machine {
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
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
    let state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    if state.is_none() { Err(Code::NOT_INITIALIZED) } else { Ok(Locked(state)) }
}

/// Changes which context is current.
pub(crate) mod current {
    use super::{CURRENT, Code, Outcome};

    #[inline]
    pub(crate) fn get() -> Option<u64> {
        CURRENT.with_borrow(|stack| stack.last().copied())
    }

    pub(crate) fn push(context: u64) {
        CURRENT.with_borrow_mut(|stack| stack.push(context));
    }

    pub(crate) fn pop() -> Outcome<u64> {
        CURRENT.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn set(context: u64) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
    }
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

    /// Returns a context, if it exists.
    pub(crate) fn context(&self, context: u64) -> Outcome<&Context> {
        self.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn context_mut(&mut self, context: u64) -> Outcome<&mut Context> {
        self.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)
    }

    /// Returns the current context and its device, unless a failure ended the context.
    #[inline]
    pub(crate) fn current(&self) -> Outcome<(u64, usize)> {
        let context = current::get().ok_or(Code::INVALID_CONTEXT)?;
        let Context { device, dead, .. } = self.context(context)?;
        match dead {
            None => Ok((context, *device)),
            Some(code) => Err(*code),
        }
    }

    pub(crate) fn create_context(&mut self, device: usize, flags: u32) -> u64 {
        let handle = self.handle();
        let context = Context { device, flags, primary: false, dead: None, legacy: None, peers: Vec::new() };
        self.contexts.insert(handle, context);
        handle
    }

    pub(crate) fn retain_primary(&mut self, device: usize) -> u64 {
        let PrimaryContext { context, flags, .. } = self.primary[device];
        let handle = context.unwrap_or_else(|| {
            let handle = self.create_context(device, flags);
            if let Some(context) = self.contexts.get_mut(&handle) {
                context.primary = true;
            }
            handle
        });
        let primary = &mut self.primary[device];
        primary.context = Some(handle);
        primary.retained += 1;
        handle
    }

    /// Returns the flags of a device's primary context, and true if the context exists.
    pub(crate) fn primary_state(&self, device: usize) -> (u32, bool) {
        let PrimaryContext { context, flags, .. } = self.primary[device];
        (flags, context.is_some())
    }

    pub(crate) fn set_primary_flags(&mut self, device: usize, flags: u32) {
        self.primary[device].flags = flags;
    }

    pub(crate) fn is_primary(&self, context: u64) -> bool {
        self.contexts.get(&context).is_some_and(|context| context.primary)
    }

    /// Ends a context. The context's streams execute no further steps.
    fn remove_context(&mut self, context: u64) {
        let mine: Vec<_> =
            self.streams.iter().filter(|(_, s)| s.context == context).map(|(h, _)| *h).collect();
        for stream in mine {
            self.remove_stream(stream);
        }
        self.events.retain(|_, event| event.context != context);
        self.memory.drop_context(context);
        self.contexts.remove(&context);
        for context in self.contexts.values_mut() {
            context.legacy = context.legacy.filter(|stream| self.streams.contains_key(stream));
        }
    }

    fn remove_stream(&mut self, handle: u64) {
        let Some(stream) = self.streams.remove(&handle) else { return };
        if let Ok(context) = self.context(stream.context) {
            let device = context.device;
            self.gpus[device].close_channel(stream.channel);
        }
    }

    pub(crate) fn create_stream(&mut self, flags: u32, priority: c_int) -> Outcome<u64> {
        let (context, device) = self.current()?;
        self.add_stream(context, device, flags, priority)
    }

    fn add_stream(&mut self, context: u64, device: usize, flags: u32, priority: c_int) -> Outcome<u64> {
        let channel = self.gpus[device].open_channel()?;
        let handle = self.handle();
        let stream = Stream {
            context,
            flags,
            priority,
            channel,
            steps: VecDeque::new(),
            queued: 0,
            done: 0,
            copies: 0,
            destroyed: false,
        };
        self.streams.insert(handle, stream);
        Ok(handle)
    }

    /// Returns the stream of a handle from C. Also accepts the handles of the default streams.
    pub(crate) fn stream_of(&mut self, handle: u64) -> Outcome<u64> {
        match handle {
            0 | LEGACY => {
                let (context, device) = self.current()?;
                if let Some(legacy) = self.context(context)?.legacy {
                    return Ok(legacy);
                }
                let legacy = self.add_stream(context, device, 0, 0)?;
                self.context_mut(context)?.legacy = Some(legacy);
                Ok(legacy)
            }
            PER_THREAD => {
                let (context, device) = self.current()?;
                let known = PER_THREAD_STREAMS.with_borrow(|streams| streams.get(&context).copied());
                if let Some(known) = known.filter(|known| self.streams.contains_key(known)) {
                    return Ok(known);
                }
                let stream = self.add_stream(context, device, 0, 0)?;
                PER_THREAD_STREAMS.with_borrow_mut(|streams| streams.insert(context, stream));
                Ok(stream)
            }
            handle => {
                let stream = self.streams.get(&handle).filter(|stream| !stream.destroyed);
                let stream = stream.ok_or(Code::INVALID_HANDLE)?;
                match self.context(stream.context)?.dead {
                    None => Ok(handle),
                    Some(code) => Err(code),
                }
            }
        }
    }

    /// Returns a stream, if it exists.
    pub(crate) fn stream(&self, handle: u64) -> Outcome<&Stream> {
        self.streams.get(&handle).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn destroy_stream(&mut self, handle: u64) -> Outcome {
        let stream = self.streams.get_mut(&handle).filter(|stream| !stream.destroyed);
        let stream = stream.ok_or(Code::INVALID_HANDLE)?;
        stream.destroyed = true;
        // The stream still executes the steps that were queued.
        self.progress();
        Ok(())
    }

    pub(crate) fn create_event(&mut self, flags: u32) -> Outcome<u64> {
        let (context, _) = self.current()?;
        let handle = self.handle();
        let event =
            StreamEvent { context, flags, wanted: 0, recorded: 0, at: Instant::now(), destroyed: false };
        self.events.insert(handle, event);
        Ok(handle)
    }

    fn event(&self, handle: u64) -> Outcome<&StreamEvent> {
        let event = self.events.get(&handle).filter(|event| !event.destroyed).ok_or(Code::INVALID_HANDLE)?;
        match self.context(event.context)?.dead {
            None => Ok(event),
            Some(code) => Err(code),
        }
    }

    pub(crate) fn destroy_event(&mut self, handle: u64) -> Outcome {
        self.event(handle)?;
        if let Some(event) = self.events.get_mut(&handle) {
            event.destroyed = true;
            if event.recorded >= event.wanted {
                self.events.remove(&handle);
            }
        }
        Ok(())
    }

    /// Returns true if the last record of an event has happened.
    pub(crate) fn event_is_over(&mut self, handle: u64) -> Outcome<bool> {
        self.progress();
        let event = self.event(handle)?;
        Ok(event.recorded >= event.wanted)
    }

    /// Returns the milliseconds between two events.
    pub(crate) fn elapsed(&mut self, from: u64, to: u64) -> Outcome<f32> {
        let over = [self.event_is_over(from)?, self.event_is_over(to)?];
        let (from, to) = (self.event(from)?, self.event(to)?);
        if (from.flags | to.flags) & DISABLE_TIMING != 0 || from.wanted == 0 || to.wanted == 0 {
            return Err(Code::INVALID_HANDLE);
        }
        if over != [true; 2] {
            return Err(Code::NOT_READY);
        }
        let (later, earlier) =
            (to.at.saturating_duration_since(from.at), from.at.saturating_duration_since(to.at));
        Ok((later.as_secs_f64() - earlier.as_secs_f64()) as f32 * 1e3)
    }

    /// Adds a step to a stream.
    fn queue(&mut self, handle: u64, step: Step) -> Outcome {
        let Stream { context, flags, .. } = *self.stream(handle)?;
        if flags & NON_BLOCKING == 0 {
            self.join_default_stream(handle, context)?;
        }
        let stream = self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        stream.queued += 1;
        stream.steps.push_back(step);
        // If this is the only step of the stream, it may be executed now.
        self.progress();
        self.start_thread();
        Ok(())
    }

    /// Makes a stream wait before its next step: the default stream for all blocking streams of its context,
    /// and any other stream for the default stream.
    fn join_default_stream(&mut self, handle: u64, context: u64) -> Outcome {
        let legacy = self.context(context)?.legacy;
        let behind: Vec<_> = if legacy == Some(handle) {
            let blocking = |stream: &Stream| stream.context == context && stream.flags & NON_BLOCKING == 0;
            let others = self.streams.iter().filter(|(other, stream)| **other != handle && blocking(stream));
            others.filter(|(_, s)| s.done < s.queued).map(|(other, s)| (*other, s.queued)).collect()
        } else {
            let legacy = legacy.and_then(|legacy| Some((legacy, self.streams.get(&legacy)?.queued)));
            legacy.filter(|(legacy, queued)| self.streams[legacy].done < *queued).into_iter().collect()
        };
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.queued += behind.len() as u64;
            stream.steps.extend(behind.into_iter().map(|(stream, steps)| Step::Behind { stream, steps }));
        }
        Ok(())
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

    /// Queues one copy. Returns true if the copy uses pageable memory, because the caller must then wait for
    /// the end of the copy.
    #[inline]
    pub(crate) fn copy(&mut self, stream: u64, dst: u64, src: u64, len: u64) -> Outcome<bool> {
        let stream = self.stream_of(stream)?;
        if len == 0 {
            return Ok(false);
        }
        let (piece, pageable) = self.piece(dst, src, len)?;
        self.count(stream, 1, len)?;
        self.queue_moves(stream, Pieces::One(piece))?;
        Ok(pageable)
    }

    /// Queues a batch of copies. Returns true if one of them uses pageable memory.
    pub(crate) fn copy_batch(
        &mut self,
        stream: u64,
        copies: impl ExactSizeIterator<Item = (u64, u64, u64)>,
    ) -> Outcome<bool> {
        if matches!(stream, 0 | LEGACY) || copies.len() == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let stream = self.stream_of(stream)?;
        let (mut pieces, mut pageable, mut bytes) = (Vec::with_capacity(copies.len()), false, 0);
        for (dst, src, len) in copies {
            if len == 0 {
                return Err(Code::INVALID_VALUE);
            }
            let (piece, unknown) = self.piece(dst, src, len)?;
            pieces.push(piece);
            pageable |= unknown;
            bytes += len;
        }
        self.count(stream, pieces.len() as u64, bytes)?;
        self.queue_moves(stream, Pieces::Batch(pieces))?;
        Ok(pageable)
    }

    fn piece(&self, dst: u64, src: u64, len: u64) -> Outcome<(Piece, bool)> {
        let (to, from) = (self.memory.range(dst, len)?, self.memory.range(src, len)?);
        if to == Range::ReadOnly {
            return Err(Code::INVALID_VALUE);
        }
        let pageable = to == Range::Pageable || from == Range::Pageable;
        Ok((Piece::Copy { dst: to.bytes(dst), src: from.bytes(src), len }, pageable))
    }

    /// Counts copies. Fails if the fault plan makes the driver refuse one of them.
    fn count(&mut self, handle: u64, number: u64, bytes: u64) -> Outcome {
        let device = self.context(self.stream(handle)?.context)?.device;
        let stream = self.streams.get_mut(&handle).ok_or(Code::INVALID_HANDLE)?;
        let before = stream.copies;
        stream.copies += number;
        let gpu = &self.gpus[device];
        if gpu.has_refusals() && (before + 1..=before + number).any(|number| gpu.refuses(number)) {
            return Err(Code::OUT_OF_MEMORY);
        }
        self.copied = (self.copied.0 + number, self.copied.1 + bytes);
        Ok(())
    }

    fn queue_moves(&mut self, stream: u64, pieces: Pieces) -> Outcome {
        self.queue(stream, Step::Move(Moves { pieces, submitted: 0, ended: 0 }))
    }

    /// Queues a fill with a pattern of 8 bytes.
    pub(crate) fn fill(&mut self, stream: u64, dst: u64, pattern: u64, len: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        if len == 0 {
            return Ok(());
        }
        let range = self.writable(dst, len)?;
        self.queue_moves(stream, Pieces::One(Piece::Fill { dst: range.bytes(dst), pattern, len }))
    }

    /// Queues a fill of rows of `width` bytes, which are `pitch` bytes apart, with a pattern of 8 bytes.
    pub(crate) fn fill_rows(
        &mut self,
        stream: u64,
        dst: u64,
        pitch: u64,
        pattern: u64,
        width: u64,
        rows: u64,
    ) -> Outcome {
        let stream = self.stream_of(stream)?;
        if rows == 0 || width == 0 {
            return Ok(());
        }
        let bytes = self.writable(dst, extent(pitch, width, rows)?)?.bytes(dst);
        // A batch has one piece for each row, which is slow if the rows are short.
        if width == 4 && bytes.is_multiple_of(4) && pitch.is_multiple_of(4) {
            return self.queue(stream, Step::Strided { bytes, pitch, word: pattern as u32, rows });
        }
        let piece = |row| Piece::Fill { dst: bytes + row * pitch, pattern, len: width };
        self.queue_moves(stream, Pieces::Batch((0..rows).map(piece).collect()))
    }

    /// Queues the end of an allocation of device memory.
    pub(crate) fn free_in_order(&mut self, addr: u64, stream: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        let id = self.memory.begin_free(addr, stream)?;
        self.queue(stream, Step::Free { addr, id })
    }

    /// Queues a write of a value of 4 or 8 bytes.
    pub(crate) fn write_value(&mut self, stream: u64, addr: u64, value: u64, len: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        let value = self.stream_value(addr, value, len)?;
        self.queue(stream, Step::WriteValue(value))
    }

    /// Makes a stream wait for a value of 4 or 8 bytes.
    pub(crate) fn wait_value(
        &mut self,
        stream: u64,
        addr: u64,
        value: u64,
        len: u64,
        until: Until,
    ) -> Outcome {
        let stream = self.stream_of(stream)?;
        let value = self.stream_value(addr, value, len)?;
        self.queue(stream, Step::WaitValue { value, until })
    }

    fn stream_value(&self, addr: u64, value: u64, len: u64) -> Outcome<StreamValue> {
        if !addr.is_multiple_of(len) {
            return Err(Code::INVALID_VALUE);
        }
        Ok(StreamValue { bytes: self.writable(addr, len)?.bytes(addr), value, len })
    }

    /// Queues a copy of rows of `width` bytes. `dst` and `src` are the first address and the pitch. Returns
    /// true if the copy uses pageable memory.
    pub(crate) fn copy_rows(
        &mut self,
        stream: u64,
        dst: (u64, u64),
        src: (u64, u64),
        width: u64,
        rows: u64,
    ) -> Outcome<bool> {
        if (dst.1, src.1) == (width, width) || rows == 1 {
            let len = width.checked_mul(rows).ok_or(Code::INVALID_VALUE)?;
            return self.copy(stream, dst.0, src.0, len);
        }
        let stream = self.stream_of(stream)?;
        let to = self.memory.range(dst.0, extent(dst.1, width, rows)?)?;
        let from = self.memory.range(src.0, extent(src.1, width, rows)?)?;
        if to == Range::ReadOnly {
            return Err(Code::INVALID_VALUE);
        }
        let (to_bytes, from_bytes) = (to.bytes(dst.0), from.bytes(src.0));
        let piece =
            |row| Piece::Copy { dst: to_bytes + row * dst.1, src: from_bytes + row * src.1, len: width };
        self.count(stream, rows, width * rows)?;
        self.queue_moves(stream, Pieces::Batch((0..rows).map(piece).collect()))?;
        Ok(to == Range::Pageable || from == Range::Pageable)
    }

    fn writable(&self, dst: u64, len: u64) -> Outcome<Range> {
        match self.memory.range(dst, len)? {
            // Devices reach only host memory that is pinned or registered.
            Range::ReadOnly | Range::Pageable => Err(Code::INVALID_VALUE),
            range => Ok(range),
        }
    }

    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        self.event(event)?;
        let known = self.events.get_mut(&event).ok_or(Code::INVALID_HANDLE)?;
        known.wanted += 1;
        let number = known.wanted;
        self.queue(stream, Step::Record { event, number })
    }

    pub(crate) fn wait_event(&mut self, stream: u64, event: u64) -> Outcome {
        let stream = self.stream_of(stream)?;
        let number = self.event(event)?.wanted;
        self.queue(stream, Step::Wait { event, number })
    }

    pub(crate) fn call_host(&mut self, stream: u64, call: HostCall) -> Outcome {
        let stream = self.stream_of(stream)?;
        self.queue(stream, Step::Call(call))
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

    fn advance_streams(&mut self) -> bool {
        let busy: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, s)| !s.steps.is_empty() || s.destroyed)
            .map(|(h, _)| *h)
            .collect();
        let mut moved = false;
        for handle in busy {
            while self.advance_stream(handle) {
                moved = true;
            }
        }
        moved
    }

    /// Continues a stream's first step as far as possible. Returns true if the step ended.
    fn advance_stream(&mut self, handle: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&handle) else { return false };
        let Some(context) = self.contexts.get_mut(&stream.context) else { return false };
        if context.dead.is_some() {
            return false;
        }
        let over = match stream.steps.front_mut() {
            None => {
                if stream.destroyed {
                    self.remove_stream(handle);
                }
                return false;
            }
            Some(Step::Move(moves)) => {
                match advance_moves(&mut self.gpus[context.device], stream.channel, moves) {
                    Ok(over) => over,
                    Err(code) => {
                        context.dead = Some(code);
                        CHANGED.notify_all();
                        return false;
                    }
                }
            }
            Some(Step::Strided { bytes, pitch, word, rows }) => {
                crate::host_call::fill_rows(*bytes, *pitch, *word, *rows);
                true
            }
            Some(Step::Free { addr, id }) => {
                self.memory.end_free(*addr, *id);
                true
            }
            Some(Step::WriteValue(value)) => {
                value.write();
                true
            }
            Some(Step::WaitValue { value, until }) => value.is(*until),
            Some(Step::Record { event, number }) => {
                let handle = *event;
                if let Some(event) = self.events.get_mut(&handle) {
                    event.recorded = *number;
                    event.at = Instant::now();
                    if event.destroyed && event.recorded >= event.wanted {
                        self.events.remove(&handle);
                    }
                }
                true
            }
            Some(Step::Wait { event, number }) => {
                self.events.get(event).is_none_or(|event| event.recorded >= *number)
            }
            Some(Step::Behind { stream, steps }) => {
                let (stream, steps) = (*stream, *steps);
                self.streams.get(&stream).is_none_or(|stream| stream.done >= steps)
            }
            Some(Step::Call(_) | Step::Calling) => false,
        };
        if over && let Some(stream) = self.streams.get_mut(&handle) {
            stream.steps.pop_front();
            stream.done += 1;
        }
        over
    }

    /// Takes a host function that is the next step of its stream.
    fn take_call(&mut self) -> Option<(u64, HostCall)> {
        let mut streams = self.streams.iter_mut();
        let (handle, stream) = streams.find(|(_, s)| matches!(s.steps.front(), Some(Step::Call(_))))?;
        let first = stream.steps.front_mut()?;
        match std::mem::replace(first, Step::Calling) {
            Step::Call(call) => Some((*handle, call)),
            _ => None,
        }
    }

    /// Returns the time until the next event of a device.
    fn until_next(&mut self) -> Option<Duration> {
        let now = self.now();
        let next = self.gpus.iter_mut().filter_map(Gpu::next_event).min();
        let next = next.map(|next| Duration::from_nanos(next.saturating_sub(now).as_ps() / 1_000 + 1));
        // Nobody reports that the CPU has written a value.
        let polls = self.streams.values().any(|s| matches!(s.steps.front(), Some(Step::WaitValue { .. })));
        if polls { Some(next.map_or(VALUE_POLL, |next| next.min(VALUE_POLL))) } else { next }
    }
}

/// Returns the number of bytes from the start of the first row to the end of the last one. There is at
/// least one row.
fn extent(pitch: u64, width: u64, rows: u64) -> Outcome<u64> {
    let last = pitch.checked_mul(rows - 1);
    last.and_then(|last| last.checked_add(width)).ok_or(Code::INVALID_VALUE)
}

/// Submits pieces to the model and polls their completions. Returns true if all pieces have ended.
fn advance_moves(gpu: &mut Gpu, channel: ChannelId, moves: &mut Moves) -> Result<bool, Code> {
    let Moves { pieces, submitted, ended } = moves;
    let pieces = pieces.as_slice();
    loop {
        let first = *submitted;
        while let Some(piece) = pieces.get(*submitted) {
            let coalesced = *submitted + 1 < pieces.len() && *submitted % REPORT_EVERY != REPORT_EVERY - 1;
            if !gpu.submit(channel, *piece, coalesced)? {
                break;
            }
            *submitted += 1;
        }
        if *submitted > first {
            gpu.doorbell(channel);
        }
        let before = *ended;
        while let Some(end) = gpu.poll(channel) {
            match end {
                End::Done => *ended += 1,
                End::Failed(code) => return Err(code),
            }
        }
        if *ended == pieces.len() || *ended == before {
            return Ok(*ended == pieces.len());
        }
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

/// Waits until a stream has executed the steps that are queued now.
pub(crate) fn wait_stream(mut driver: Locked, handle: u64) -> Outcome {
    let stream = driver.stream_of(handle)?;
    let Stream { queued, context, .. } = *driver.stream(stream)?;
    wait(driver, move |driver| {
        if let Some(code) = driver.context(context)?.dead {
            return Err(code);
        }
        Ok(driver.streams.get(&stream).is_none_or(|stream| stream.done >= queued))
    })
}

/// Waits until all streams of a context are idle.
pub(crate) fn wait_context(driver: Locked, context: u64) -> Outcome {
    wait(driver, move |driver| match driver.context(context)?.dead {
        Some(code) => Err(code),
        None => Ok(!driver.streams.values().any(|s| s.context == context && !s.steps.is_empty())),
    })
}

/// Returns true if a stream has no steps left.
pub(crate) fn stream_is_idle(driver: &mut Driver, handle: u64) -> Outcome<bool> {
    driver.progress();
    let stream = driver.stream_of(handle)?;
    Ok(driver.stream(stream)?.steps.is_empty())
}

/// Releases one use of a primary context. Releasing the last one ends the context.
pub(crate) fn release_primary(mut driver: Locked, device: usize) -> Outcome {
    let primary = &mut driver.primary[device];
    if primary.retained == 0 {
        return Err(Code::INVALID_CONTEXT);
    }
    primary.retained -= 1;
    match primary.context {
        Some(context) if primary.retained == 0 => end_context(driver, context),
        _ => Ok(()),
    }
}

/// Ends a context. A context that a failure ended stays lost; only a new process can use the device again.
pub(crate) fn end_context(driver: Locked, context: u64) -> Outcome {
    if driver.context(context)?.dead.is_some() {
        return Ok(());
    }
    drop(driver);
    wait_context(lock()?, context)?;
    let mut driver = lock()?;
    driver.remove_context(context);
    for primary in &mut driver.primary {
        primary.context = primary.context.filter(|primary| *primary != context);
    }
    Ok(())
}

/// Grants a context access to another's memory. Copies of the stand-in need no such permission.
pub(crate) fn enable_peer(driver: &mut Driver, peer: u64) -> Outcome {
    let (context, device) = driver.current()?;
    if driver.context(peer)?.device == device {
        return Err(Code::INVALID_DEVICE);
    }
    let peers = &mut driver.context_mut(context)?.peers;
    if peers.contains(&peer) {
        return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
    }
    peers.push(peer);
    Ok(())
}

/// Revokes the access that `enable_peer` granted.
pub(crate) fn disable_peer(driver: &mut Driver, peer: u64) -> Outcome {
    let (context, _) = driver.current()?;
    let peers = &mut driver.context_mut(context)?.peers;
    let at = peers.iter().position(|known| *known == peer).ok_or(Code::PEER_ACCESS_NOT_ENABLED)?;
    peers.remove(at);
    Ok(())
}

/// The driver's thread: advances the device's time, and calls host functions.
fn run() {
    IN_HOST_CALL.set(false);
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(driver) = &mut *state else { return };
        driver.progress();
        if let Some((handle, call)) = driver.take_call() {
            drop(state);
            IN_HOST_CALL.set(true);
            call.run();
            IN_HOST_CALL.set(false);
            state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
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
