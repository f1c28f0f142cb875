//! DMA copies in flight, in the order of the file.
//!
//! Blocks are divided into pieces within the device's limit, and up to `--depth` pieces are in flight. A
//! piece that a device reset aborted is submitted again before its block counts as moved.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use dma::prelude::*;
use dma::{OpError, Queue, Retry, Transfer};

use crate::block::Block;
use crate::deadline::{check_interrupt, seconds};
use crate::direction::Direction;
use crate::failure::{Failure, failure};
use crate::probe;
use crate::session::made_progress;
use apps_shared::command::tries_after;
use apps_shared::hold;
use dma::process::count;

/// Maximum time to wait for the device before other events are handled.
const MAX_WAIT: Duration = Duration::from_micros(500);

/// Moves blocks between a window's slots and local buffers.
pub(crate) struct Mover {
    queue: Queue,
    window: Window,
    direction: Direction,
    /// Length of a slot in bytes.
    block: usize,
    /// Maximum length of one copy in bytes.
    piece: usize,
    blocks: VecDeque<Moving>,
    /// Number of `blocks` that have been submitted completely.
    submitted: usize,
    in_flight: VecDeque<MovingPiece>,
    backend: &'static str,
    timeout: Duration,
    /// The number of completions when the device last made progress, and the time of this progress.
    progress: (u64, Instant),
    retries: u64,
    /// Set if the host has revoked its export or has ended.
    pub(crate) revoked: bool,
}

/// A block that is being moved; a hole has no bytes to move.
struct Moving {
    block: Block,
    /// The part of the buffer that has not been submitted yet.
    todo: Option<BufferMut>,
    /// The part of the buffer whose copies have completed.
    moved: Option<BufferMut>,
    /// The unused part of the buffer beyond the block's end.
    rest: Option<BufferMut>,
    at: usize,
    left: usize,
}

struct MovingPiece {
    transfer: Either,
    /// Position in the window, in bytes.
    at: usize,
    tries: u32,
}

enum Either {
    In(Transfer<(Window, BufferMut)>),
    Out(Transfer<(BufferMut, Window)>),
}

impl Either {
    fn is_done(&self) -> bool {
        match self {
            Self::In(transfer) => transfer.is_done(),
            Self::Out(transfer) => transfer.is_done(),
        }
    }

    fn wait_for(&mut self, time: Duration) -> bool {
        match self {
            Self::In(transfer) => transfer.wait_for(time).is_ok(),
            Self::Out(transfer) => transfer.wait_for(time).is_ok(),
        }
    }

    /// Returns the buffer. An error also contains the buffer, unless the device may still access it.
    fn finish(self) -> Result<BufferMut, (dma::Error, Option<BufferMut>)> {
        match self {
            Self::In(transfer) => transfer.wait().map(|(_, b)| b).map_err(|e| parts(e, |(_, b)| b)),
            Self::Out(transfer) => transfer.wait().map(|(b, _)| b).map_err(|e| parts(e, |(b, _)| b)),
        }
    }
}

fn parts<T>(e: OpError<T>, buffer: impl FnOnce(T) -> BufferMut) -> (dma::Error, Option<BufferMut>) {
    let (error, operands) = e.into_parts();
    (error, operands.map(buffer))
}

impl Mover {
    /// Opens a queue of `engine` for copies of at most `piece` bytes, `depth` in flight.
    pub(crate) fn open(
        engine: &dyn DmaEngine,
        window: Window,
        direction: Direction,
        block: usize,
        (piece, depth): (u64, u32),
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let info = engine.info();
        let depth = usize::try_from(depth).unwrap_or(usize::MAX).min(info.limits.max_queue_depth);
        let queue = QueueOptions::new()
            .with_depth(depth)
            // The bytes were just read or will soon be written, so they are in the caches.
            .with_hint(CacheHint::Hot)
            .with_drop_timeout(Duration::from_secs(1));
        let queue = engine.open_queue(&queue).map_err(|e| failure!(Moving, "{e}"))?;
        let piece = usize::try_from(piece.min(info.limits.max_transfer)).unwrap_or(usize::MAX).min(block);
        Ok(Self {
            in_flight: VecDeque::with_capacity(queue.depth()),
            queue,
            window,
            direction,
            block,
            piece,
            blocks: VecDeque::new(),
            submitted: 0,
            backend: info.backend,
            timeout,
            progress: (0, Instant::now()),
            retries: 0,
            revoked: false,
        })
    }

    /// Copies a few bytes, to test whether the window can be accessed by RDMA.
    pub(crate) fn reach(&self, engine: &dyn DmaEngine) -> Result<(), Failure> {
        probe::reach(engine, &self.queue, &self.window, self.direction, self.timeout)
    }

    /// Returns the engine that copies without the device: `cpu`, or `stream` between two hosts.
    fn fallback_engine(&self) -> &'static str {
        if self.backend == "rdma" { "stream" } else { "cpu" }
    }

    pub(crate) const fn retries(&self) -> u64 {
        self.retries
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Queues a block or a hole. Holes keep their position among the blocks.
    pub(crate) fn push(&mut self, mut block: Block) {
        let len = usize::try_from(block.len).unwrap_or(usize::MAX);
        let mut todo = block.buffer.take();
        let rest = todo.as_mut().map(|buffer| buffer.split_off(len));
        let left = if todo.is_some() { len } else { 0 };
        self.blocks.push_back(Moving { block, todo, moved: None, rest, at: 0, left });
    }

    /// Submits copies until the queue is full or every block is submitted.
    pub(crate) fn pump(&mut self) -> Result<(), Failure> {
        // While the device had nothing to do, it could complete nothing.
        if self.in_flight.is_empty() {
            self.progress.1 = Instant::now();
        }
        let mut any = false;
        while self.in_flight.len() < self.queue.depth()
            && let Some(moving) = self.blocks.get_mut(self.submitted)
        {
            let Some(mut todo) = moving.todo.take() else {
                self.submitted += 1;
                continue;
            };
            let piece = todo.split_to(self.piece.min(todo.len()));
            let at = moving.block.slot as usize * self.block + moving.at;
            moving.at += piece.len();
            moving.todo = Some(todo).filter(|todo| !todo.is_empty());
            let transfer = self.submit(piece, at)?;
            self.in_flight.push_back(MovingPiece { transfer, at, tries: 0 });
            any = true;
        }
        if any {
            self.queue.flush();
        }
        Ok(())
    }

    /// Submits the copy of one piece, whose bytes are at `at` in the window.
    fn submit(&mut self, piece: BufferMut, at: usize) -> Result<Either, Failure> {
        // The slot's number was checked when its message arrived, so the range lies within the window.
        let window = self.window.slice(at..at + piece.len());
        // `QueueFull` cannot occur, because at most the queue's depth is in flight.
        let submitted = match self.direction {
            Direction::FromWindow => self.queue.copy(window, piece).map(Either::In).map_err(dma::Error::from),
            Direction::ToWindow => self.queue.copy(piece, window).map(Either::Out).map_err(dma::Error::from),
        };
        submitted.map_err(|e| self.failed(&e))
    }

    /// Returns the failure for an error of the device, with the engine to use instead.
    fn failed(&mut self, e: &dma::Error) -> Failure {
        self.revoked |= e.kind() == ErrorKind::Revoked;
        failure!(
            Moving,
            "{e}; check the device, or copy with --engine {} on both sides",
            self.fallback_engine()
        )
    }

    /// Returns the first block with its buffer, if all its bytes have been copied.
    pub(crate) fn finished(&mut self) -> Result<Option<Block>, Failure> {
        loop {
            match self.blocks.front() {
                None => return Ok(None),
                Some(first) if first.left == 0 => break,
                Some(_) => {}
            }
            // The oldest copy in flight belongs to the first block.
            if !self.in_flight.front().is_some_and(|first| first.transfer.is_done()) {
                return Ok(None);
            }
            self.take_first()?;
        }
        let Some(mut first) = self.blocks.pop_front() else { return Ok(None) };
        self.submitted = self.submitted.saturating_sub(1);
        if let (Some(mut buffer), Some(rest)) = (first.moved, first.rest) {
            buffer.unsplit(rest).expect("they were one buffer");
            first.block.buffer = Some(buffer);
        }
        Ok(Some(first.block))
    }

    /// Removes the oldest piece in flight, which is done. Submits it again if it failed.
    fn take_first(&mut self) -> Result<(), Failure> {
        let Some(MovingPiece { transfer, at, tries }) = self.in_flight.pop_front() else { return Ok(()) };
        match transfer.finish() {
            Ok(piece) => {
                made_progress();
                let Some(first) = self.blocks.front_mut() else { return Ok(()) };
                first.left -= piece.len();
                match &mut first.moved {
                    Some(moved) => moved.unsplit(piece).expect("they were one buffer"),
                    none => *none = Some(piece),
                }
                Ok(())
            }
            Err((error, Some(piece))) if tries < tries_after(&error) => {
                tracing::info!("submitting a piece at {at} of the window again: {error}");
                if error.retry() == Retry::Later {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.retries += 1;
                let transfer = self.submit(piece, at)?;
                self.queue.flush();
                self.in_flight.push_front(MovingPiece { transfer, at, tries: tries + 1 });
                Ok(())
            }
            Err((error, _)) => Err(self.failed(&error)),
        }
    }

    /// Waits at most [`MAX_WAIT`] for the oldest piece in flight. Fails if the device has completed
    /// nothing during the timeout.
    pub(crate) fn wait(&mut self) -> Result<(), Failure> {
        let Some(first) = self.in_flight.front_mut() else { return Ok(()) };
        if first.transfer.wait_for(MAX_WAIT) {
            self.progress.1 = Instant::now();
            return Ok(());
        }
        check_interrupt()?;
        let counters = self.queue.counters();
        let ended = counters.completed + counters.failed + counters.aborted;
        let timeout = hold::timeout("device", self.timeout);
        if ended != self.progress.0 || self.progress.1.elapsed() < timeout {
            if ended != self.progress.0 {
                self.progress = (ended, Instant::now());
            }
            return Ok(());
        }
        Err(failure!(
            Moving,
            "{} has completed nothing for {} and has {} to do; reset the device, or copy with --engine {} on both sides",
            self.backend,
            seconds(timeout),
            count(self.in_flight.len() as u64, "copy", "copies"),
            self.fallback_engine()
        ))
    }
}
