//! The engine behind a function's registers: a thread that polls them, and executes commands and descriptors.
//!
//! Engine and driver share only memory. The registers are a mapped page that the driver loads from and stores
//! to. Descriptors and completions are in the driver's memory, at bus addresses.

mod chain;
pub(crate) mod registers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use dma_standin::with_signals_blocked;

use crate::c_abi::{Addr, Outcome};
use crate::channel::Channel;
use crate::config::SocketConfig;
use chain::Chain;
use registers::Registers;

/// An idle engine polls the registers without a pause for this time, and then once every `PAUSE`.
const AWAKE: Duration = Duration::from_micros(200);
/// Interval between polls of an engine that has been idle for longer than `AWAKE`.
const PAUSE: Duration = Duration::from_micros(50);

/// An engine, which runs until this value is dropped.
pub(crate) struct RegisterEngine {
    registers: Arc<Registers>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RegisterEngine {
    /// Starts the engine of a socket's function `number`, with registers in `size` bytes of new memory. A
    /// reset through the registers also resets the channel that `channel` returns.
    ///
    /// # Errors
    ///
    /// `-ENOMEM` if memory is short, `-EAGAIN` if no thread can be started.
    pub(crate) fn start(
        config: &SocketConfig,
        number: u32,
        name: &str,
        channel: impl Fn() -> Option<&'static Channel> + Send + 'static,
        size: usize,
    ) -> Outcome<Self> {
        let registers = Arc::new(Registers::new(size, config).ok_or(-libc::ENOMEM)?);
        let over = Arc::new(AtomicBool::new(false));
        let chain = Chain::new(Arc::clone(&registers), config, number, Box::new(channel));
        let (ended, name) = (Arc::clone(&over), format!("ioat-{name}"));
        // The engine must not share the core that the program is bound to.
        let body = move || {
            crate::env::cores::unbind();
            run(chain, &ended);
        };
        let thread = with_signals_blocked(|| thread::Builder::new().name(name).spawn(body));
        Ok(Self { registers, over, thread: Some(thread.map_err(|_| -libc::EAGAIN)?) })
    }

    /// Returns the address of the registers.
    pub(crate) fn registers(&self) -> Addr {
        self.registers.start()
    }
}

impl Drop for RegisterEngine {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The result is ignored, because the thread does not panic, and nothing would have to be cleaned
            // up after a panic.
            let _ = thread.join();
        }
    }
}

fn run(mut chain: Chain, over: &AtomicBool) {
    let mut busy = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if chain.step() {
            busy = Instant::now();
        } else if busy.elapsed() < AWAKE {
            thread::yield_now();
        } else {
            thread::sleep(PAUSE);
        }
    }
}
