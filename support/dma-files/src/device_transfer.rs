//! [`DeviceTransfer`]: a file on its way into device memory, or out of it.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use dma_core::{
    Batch, BufferPool, EngineId, Error, ErrorKind, PoolGet, Result, SharedQueue, SharedReady, SharedTransfer,
    Window,
};
use dma_process::OutputFile;

use crate::error::FileError;
use crate::file::DmaFile;
use crate::pieces::{Block, Cursor, FilePiece, Layout};
use crate::queue::FileQueue;
use crate::transfer::{FileTransfer, Finished};

type Copies = Batch<Window, Window>;

/// The parts of a [`DeviceFiles`](crate::DeviceFiles), which its transfers share.
pub(crate) struct Inner {
    pub(crate) files: FileQueue,
    pub(crate) queue: SharedQueue,
    pub(crate) pool: BufferPool,
    /// The engine of the pool's memory.
    pub(crate) engine: Option<EngineId>,
    /// Length of the pool's greatest buffers.
    pub(crate) buffer_len: usize,
    pub(crate) block_len: usize,
    /// Maximum number of blocks in flight of an operation.
    pub(crate) depth: usize,
}

/// The arguments of [`DeviceTransfer::new`].
pub(crate) struct Start {
    pub(crate) files: Arc<Inner>,
    pub(crate) layout: Layout,
    pub(crate) file: DmaFile,
    pub(crate) output: Option<OutputFile>,
    pub(crate) pieces: Vec<FilePiece>,
    pub(crate) total: u64,
    pub(crate) depth: usize,
}

/// Returns the operation's name for errors.
pub(crate) fn operation(reads: bool, name: &str) -> String {
    if reads { format!("read {name} into device memory") } else { format!("write {name} from device memory") }
}

/// The pieces of a file on their way into device memory or out of it: await the transfer, or wait for it.
///
/// The transfer makes progress while it is polled or waited for. If it is dropped, it submits no more blocks;
/// blocks in flight continue, and may still write the pieces' windows. To use the windows again,
/// [`cancel`](Self::cancel) the transfer and wait for its end.
#[must_use = "the file is read or written only while the transfer is awaited or waited for"]
pub struct DeviceTransfer {
    files: Arc<Inner>,
    layout: Layout,
    file: DmaFile,
    /// The file that gets its name at the end.
    output: Option<OutputFile>,
    /// The name of that file.
    path: Option<PathBuf>,
    pieces: Vec<FilePiece>,
    /// The position of the next block.
    next: Cursor,
    slots: Vec<Slot>,
    /// A wait for a buffer, while all are in use.
    buffer: Option<PoolGet>,
    /// A wait for room in the engine's queue, while it is full.
    room: Option<SharedReady>,
    moved: u64,
    total: u64,
    error: Option<Error>,
    stage: Stage,
}

/// The place of one block in flight.
#[derive(Default)]
struct Slot {
    state: State,
    block: Block,
    /// The memory of the next batch. It is taken while a batch is in flight.
    copies: Copies,
    /// The buffer of a block that is written.
    buffer: Option<Window>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    File(FileTransfer<Window>),
    /// The engine's queue is full.
    Full(Copies),
    Device(SharedTransfer<Copies>),
}

enum Stage {
    Blocks,
    SyncFile(FileTransfer<Window>),
    SyncFolder(FileTransfer<Window>),
    Ended,
}

impl DeviceTransfer {
    pub(crate) fn new(start: Start) -> Self {
        let Start { files, layout, file, output, pieces, total, depth } = start;
        let path = output.as_ref().and_then(OutputFile::final_path).map(Path::to_owned);
        let slots = std::iter::repeat_with(Slot::default).take(depth).collect();
        Self {
            files,
            layout,
            file,
            output,
            path,
            pieces,
            next: Cursor::default(),
            slots,
            buffer: None,
            room: None,
            moved: 0,
            total,
            error: None,
            stage: Stage::Blocks,
        }
    }

    /// Returns the number of bytes that have arrived: in their windows, or in the file.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// Returns the number of bytes of all pieces.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Submits no more blocks. The transfer then ends as `Aborted` when its blocks in flight have ended,
    /// unless it has ended before.
    pub fn cancel(&mut self) {
        // From `SyncFolder` on, a saved file has its name.
        if matches!(self.stage, Stage::Blocks | Stage::SyncFile(_)) {
            let error = Error::new(ErrorKind::Aborted, "the program cancelled the operation");
            self.fail(None, error);
        }
    }

    /// Blocks until the transfer has ended. Returns the pieces, and the number of their bytes.
    ///
    /// # Errors
    ///
    /// The errors of the file: `OutOfResources` if the disk or the quota is full; `OutOfRange` if the file
    /// has become shorter; `Os` for other errors of the system, with the source. The errors of the device,
    /// such as `DeviceFault`, `Aborted` after a reset, `DeviceLost`, or `TimedOut` if the device has stalled,
    /// and `WrongEngine` if queue and pool belong to different engines. `Aborted` after
    /// [`cancel`](Self::cancel); `Unsupported` in a forked process. Each error names the file, its bytes and
    /// the remedy, and contains the pieces. No block is in flight then, unless the device has stalled.
    pub fn wait(mut self) -> Finished<Vec<FilePiece>> {
        self.block(None);
        self.finish()
    }

    /// Blocks until the transfer has ended, for at most `timeout`. Returns whether it has ended. The transfer
    /// makes progress during the call.
    pub fn wait_timeout(&mut self, timeout: Duration) -> bool {
        self.block(Instant::now().checked_add(timeout))
    }

    fn block(&mut self, until: Option<Instant>) -> bool {
        let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&unpark));
        let mut context = Context::from_waker(&waker);
        while self.drive(&mut context).is_pending() {
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return false,
                // Other code on this thread, such as a log subscriber, may have consumed the token.
                _ if unpark.woken.swap(false, Ordering::Acquire) => {}
                None => std::thread::park(),
                Some(left) => std::thread::park_timeout(left),
            }
        }
        true
    }

    fn finish(&mut self) -> Finished<Vec<FilePiece>> {
        let pieces = std::mem::take(&mut self.pieces);
        match self.error.take() {
            Some(error) => Err(FileError::new(error, pieces)),
            None => Ok((pieces, usize::try_from(self.total).unwrap_or(usize::MAX))),
        }
    }

    /// Continues all blocks and starts new ones until nothing more can be done.
    fn drive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if matches!(self.stage, Stage::Blocks) {
            loop {
                let mut progress = false;
                for number in 0..self.slots.len() {
                    progress |= self.poll_slot(number, context);
                }
                progress |= self.submit_waiting(context);
                progress |= self.start_blocks(context);
                if !progress {
                    break;
                }
            }
            if self.slots.iter().any(|slot| !matches!(slot.state, State::Idle)) {
                return Poll::Pending;
            }
            if self.error.is_none() && self.layout.block(&self.pieces, self.next).is_some() {
                return Poll::Pending;
            }
        }
        self.complete(context)
    }

    /// Polls a block. Returns whether it has made progress.
    fn poll_slot(&mut self, number: usize, context: &mut Context<'_>) -> bool {
        let slot = &mut self.slots[number];
        match &mut slot.state {
            State::Idle | State::Full(_) => false,
            State::File(transfer) => {
                let Poll::Ready(result) = Pin::new(transfer).poll(context) else { return false };
                slot.state = State::Idle;
                match result {
                    Ok((buffer, len)) => self.file_ended(number, buffer, len),
                    Err(error) => self.fail(Some(number), error.into()),
                }
                true
            }
            State::Device(transfer) => {
                let Poll::Ready(result) = Pin::new(transfer).poll(context) else { return false };
                slot.state = State::Idle;
                match result {
                    Ok(copies) => self.device_ended(number, copies),
                    Err(error) => {
                        slot.buffer = None;
                        self.fail(Some(number), error.into());
                    }
                }
                true
            }
        }
    }

    /// Starts blocks while there are idle slots and buffers. Returns whether a block was started.
    fn start_blocks(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.error.is_none()
            && let Some(number) = self.slots.iter().position(|slot| matches!(slot.state, State::Idle))
            && let Some(block) = self.layout.block(&self.pieces, self.next)
            && let Poll::Ready(buffer) = self.poll_buffer(context)
        {
            progress = true;
            self.next = block.end;
            self.slots[number].block = block;
            match buffer {
                Ok(buffer) if self.layout.reads => self.read_file(number, &buffer),
                Ok(buffer) => {
                    let buffer = buffer.slice(..block.len);
                    self.slots[number].buffer = Some(buffer.clone());
                    self.copy(number, &buffer);
                }
                Err(error) => self.fail(Some(number), error),
            }
        }
        if self.error.is_some() {
            self.buffer = None;
        }
        progress
    }

    /// Takes a buffer of the pool, or waits for one.
    fn poll_buffer(&mut self, context: &mut Context<'_>) -> Poll<Result<Window>> {
        let files = &self.files;
        let mut get = self.buffer.take().unwrap_or_else(|| files.pool.get(files.buffer_len));
        let polled = Pin::new(&mut get).poll(context);
        if polled.is_pending() {
            self.buffer = Some(get);
        }
        polled.map_ok(dma_core::BufferMut::share)
    }

    fn read_file(&mut self, number: usize, buffer: &Window) {
        let slot = &mut self.slots[number];
        let Block { begin, len, .. } = slot.block;
        match self.files.files.read_at(&self.file, begin, buffer.slice(..len)) {
            Ok(transfer) => slot.state = State::File(transfer),
            Err(error) => self.fail(Some(number), error.into()),
        }
    }

    /// Copies a block between its buffer and its windows.
    fn copy(&mut self, number: usize, buffer: &Window) {
        let slot = &mut self.slots[number];
        let mut copies = std::mem::take(&mut slot.copies);
        let reads = self.layout.reads;
        slot.block.for_each_part(&self.pieces, |range, window| {
            let part = buffer.slice(range);
            if reads { copies.push(part, window) } else { copies.push(window, part) }
        });
        self.submit(number, copies);
    }

    /// Submits copies to the engine's queue, or keeps them while the queue is full.
    fn submit(&mut self, number: usize, copies: Copies) {
        match self.files.queue.submit(copies) {
            Ok(transfer) => self.slots[number].state = State::Device(transfer),
            Err(error) if error.error().kind() == ErrorKind::QueueFull => match error.into_operands() {
                Some(copies) => self.slots[number].state = State::Full(copies),
                None => self.refused(number, ErrorKind::QueueFull.into()),
            },
            Err(error) => self.refused(number, error.into()),
        }
    }

    /// The copies of a block were refused.
    fn refused(&mut self, number: usize, error: Error) {
        self.slots[number].buffer = None;
        self.fail(Some(number), error);
    }

    /// Submits the copies that wait for room in the engine's queue. Returns whether there was progress.
    fn submit_waiting(&mut self, context: &mut Context<'_>) -> bool {
        let is_full = |slot: &Slot| matches!(slot.state, State::Full(_));
        if !self.slots.iter().any(is_full) {
            self.room = None;
            return false;
        }
        let room = self.room.get_or_insert_with(|| self.files.queue.ready());
        let Poll::Ready(result) = Pin::new(room).poll(context) else { return false };
        self.room = None;
        if let Err(error) = result {
            let number = self.slots.iter().position(is_full);
            self.fail(number, error);
            return true;
        }
        let mut progress = false;
        while let Some(number) = self.slots.iter().position(is_full)
            && let State::Full(copies) = std::mem::take(&mut self.slots[number].state)
        {
            self.submit(number, copies);
            if is_full(&self.slots[number]) {
                break;
            }
            progress = true;
        }
        if !progress {
            // Another task was faster.
            context.waker().wake_by_ref();
        }
        progress
    }

    /// A block was read, or written.
    fn file_ended(&mut self, number: usize, buffer: Window, len: usize) {
        let block = self.slots[number].block;
        if self.error.is_some() {
            return;
        }
        if !self.layout.reads {
            self.moved += block.payload;
            return;
        }
        if len < block.needed {
            let (needed, end) = (block.begin + block.needed as u64, block.begin + len as u64);
            // Of several blocks that are beyond the end, any may be the first to be read.
            let at = if len > 0 { "at" } else { "at or before" };
            let error = Error::new(ErrorKind::OutOfRange, format!("the file ended {at} byte {end}"))
                .with_numbers(needed, end)
                .with_hint("leave the file unchanged while it is read, and read it again");
            return self.fail(Some(number), error);
        }
        self.copy(number, &buffer);
    }

    /// A block is in its windows, or in its buffer.
    fn device_ended(&mut self, number: usize, mut copies: Copies) {
        let slot = &mut self.slots[number];
        drop(copies.drain());
        slot.copies = copies;
        let buffer = slot.buffer.take();
        if self.error.is_some() {
            return;
        }
        match buffer {
            None => self.moved += slot.block.payload,
            Some(buffer) => match self.files.files.write_at(&self.file, slot.block.begin, buffer) {
                Ok(transfer) => slot.state = State::File(transfer),
                Err(error) => self.fail(Some(number), error.into()),
            },
        }
    }

    /// Records the first error, with the bytes of a slot's block, and cancels what can be cancelled.
    fn fail(&mut self, slot: Option<usize>, error: Error) {
        if self.error.is_some() {
            return;
        }
        let block = slot.map(|number| self.slots[number].block.range(&self.pieces));
        self.error = Some(self.explain(block, error));
        for slot in &mut self.slots {
            match &slot.state {
                State::File(transfer) => transfer.cancel(),
                State::Full(_) => (slot.state, slot.buffer) = (State::Idle, None),
                State::Idle | State::Device(_) => {}
            }
        }
    }

    /// Adds the file, its bytes and a remedy to an error.
    fn explain(&self, block: Option<Range<u64>>, error: Error) -> Error {
        let mut name = self.path.as_ref().map_or_else(|| self.file.name(), |path| path.display().to_string());
        if let Some(block) = block {
            name = format!("bytes {} to {} of {name}", block.start, block.end);
        }
        let error = error.with_operation(operation(self.layout.reads, &name));
        if !error.hint().is_empty() {
            return error;
        }
        error.with_hint(match (self.layout.reads, &self.path) {
            (true, _) => "the contents of the windows are undefined: read the file again",
            (false, None) => "the contents of the file are undefined: write it again",
            (false, Some(_)) => "no file was made or replaced: save it again",
        })
    }

    /// Ends a transfer without blocks in flight: gives a saved file its name, on the disk.
    fn complete(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.error.is_some() && matches!(self.stage, Stage::Blocks) {
                self.end();
            }
            match &mut self.stage {
                Stage::Ended => return Poll::Ready(()),
                Stage::Blocks if self.output.is_none() => self.end(),
                Stage::Blocks => {
                    // Each operation on a file holds a buffer, so that the file queue is never full.
                    let Poll::Ready(buffer) = self.poll_buffer(context) else { return Poll::Pending };
                    match buffer.and_then(|buffer| Ok(self.files.files.sync_with(&self.file, buffer)?)) {
                        Ok(sync) => self.stage = Stage::SyncFile(sync),
                        Err(error) => self.fail(None, error),
                    }
                }
                Stage::SyncFile(sync) => {
                    let Poll::Ready(result) = Pin::new(sync).poll(context) else { return Poll::Pending };
                    self.stage = Stage::Blocks;
                    match result {
                        Ok((buffer, _)) if self.error.is_none() => {
                            if let Err(error) = self.give_name(buffer) {
                                self.fail(None, error);
                            }
                        }
                        Ok(_) => {}
                        Err(error) => self.fail(None, error.into()),
                    }
                }
                Stage::SyncFolder(sync) => {
                    let Poll::Ready(result) = Pin::new(sync).poll(context) else { return Poll::Pending };
                    self.end();
                    if let Err(error) = result
                        && !is_unsupported(error.error())
                    {
                        self.fail(None, Error::from(error).with_hint("the file is complete, but may get its former content back if the machine loses power: save it again"));
                    }
                }
            }
        }
    }

    /// Gives the file its name, and starts to write the name to the disk.
    fn give_name(&mut self, buffer: Window) -> Result<()> {
        let (Some(output), Some(path)) = (self.output.take(), &self.path) else { return Ok(()) };
        output.finish_synced().map_err(|e| Error::of_output_file(path, e))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A directory that may be written but not read cannot be opened.
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            self.stage = Stage::SyncFolder(self.files.files.sync_with(&DmaFile::from(folder), buffer)?);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.remove_output();
        self.buffer = None;
        self.stage = Stage::Ended;
    }

    /// Removes a file that did not get its name. A forked process leaves it to its parent.
    fn remove_output(&mut self) {
        let output = self.output.take();
        if self.files.files.is_parents() {
            std::mem::forget(output);
        }
    }
}

impl Drop for DeviceTransfer {
    fn drop(&mut self) {
        self.remove_output();
    }
}

/// Returns whether the file system does not sync directories.
fn is_unsupported(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|e| e.downcast_ref::<std::io::Error>());
    source.is_some_and(|e| {
        matches!(e.kind(), std::io::ErrorKind::InvalidInput | std::io::ErrorKind::Unsupported)
    })
}

impl Future for DeviceTransfer {
    type Output = Finished<Vec<FilePiece>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.drive(context).map(|()| self.finish())
    }
}

/// Wakes the blocked thread.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl fmt::Debug for DeviceTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceTransfer")
            .field("reads", &self.layout.reads)
            .field("pieces", &self.pieces.len())
            .field("moved", &self.moved)
            .field("total", &self.total)
            .finish_non_exhaustive()
    }
}
