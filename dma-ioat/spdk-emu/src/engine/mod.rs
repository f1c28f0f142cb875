//! The engine behind a function's registers: it watches them, and does what they say.
//!
//! Nothing but memory is between it and a driver: the registers are a mapped page that the driver stores to and loads from,
//! descriptors and completions are in the driver's memory, found by the addresses that devices have for it.

mod chain;
mod faults;
pub(crate) mod registers;

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::door::{Outcome, Ptr};
use crate::env::pci::{Function, addr};
use chain::Chain;
use registers::Registers;

/// How long the engine looks at idle registers without a pause, and how long the pauses are then.
const AWAKE: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);

/// An engine, which runs until this is dropped.
pub(crate) struct Engine {
    registers: Arc<Registers>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Engine {
    /// Starts the engine of a function, with registers in `size` bytes of new memory.
    ///
    /// # Errors
    ///
    /// `-ENOMEM`, `-EAGAIN`.
    pub(crate) fn start(function: &'static Function, size: usize) -> Outcome<Self> {
        let config = &function.socket.config;
        let registers = Arc::new(Registers::new(size, config).ok_or(-libc::ENOMEM)?);
        let over = Arc::new(AtomicBool::new(false));
        let chain = Chain::new(Arc::clone(&registers), config, function.number);
        let (ended, name) = (Arc::clone(&over), format!("ioat-{}", addr::format(&function.config.pci)));
        // Not where the program's own thread is bound to.
        let thread = thread::Builder::new().name(name).spawn(move || {
            crate::env::cores::unbind();
            run(chain, &ended);
        });
        Ok(Self { registers, over, thread: Some(thread.map_err(|_| -libc::EAGAIN)?) })
    }

    /// Where the registers are.
    pub(crate) fn registers(&self) -> Ptr<c_void> {
        self.registers.start()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did there would be nothing to clean up.
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
