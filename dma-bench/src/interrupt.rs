//! Ctrl-C: stops the run and keeps what was measured.

use std::sync::atomic::{AtomicBool, Ordering};

use dma::{Error, ErrorKind};

use crate::files::say;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Installs the handler: the first Ctrl-C asks the run to stop, the second ends the program at once.
/// `stopping` says what the first one does.
pub(crate) fn install(stopping: &'static str) {
    // Fails only if another handler exists, which then takes precedence.
    let _ = ctrlc::set_handler(move || {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        say(format_args!("dma-bench: {stopping}"));
    });
}

/// Returns an error if the user asked to stop.
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
