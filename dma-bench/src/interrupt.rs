//! Ctrl-C: stops the run and keeps the figures so far.

use std::sync::atomic::{AtomicBool, Ordering};

use dma::{Error, ErrorKind};

use crate::files::say;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Installs the handler: the first Ctrl-C asks the run to stop, the second ends the program at once. Signals
/// that are ignored, as by `nohup`, stay ignored. `stopping` is the message at the first one.
pub(crate) fn install(stopping: &'static str) {
    // This fails only if another handler exists, which then stays in effect.
    let _ = dma::process::keep_ignored_signals(|| {
        ctrlc::set_handler(move || {
            // The run may end as soon as `STOPPED` is set. Its last message waits for this lock, so the
            // program cannot exit before it has said that it stops.
            let _messages = std::io::stderr().lock();
            if STOPPED.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            say(format_args!("dma-bench: {stopping}"));
        })
    });
}

/// Returns an error if the user pressed Ctrl-C.
pub(crate) fn check() -> dma::Result<()> {
    if stopped() {
        Err(Error::new(ErrorKind::Aborted, "interrupted while the memory was filled"))
    } else {
        Ok(())
    }
}

#[inline]
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
