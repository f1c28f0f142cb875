//! Ctrl-C: what was measured is kept.

use std::sync::atomic::{AtomicBool, Ordering};

use dma::{Error, ErrorKind};

use crate::files::say;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C: the first asks to stop, the second ends the program at once.
pub fn install() {
    // It fails only if another handler is there, which then does its work.
    let _ = ctrlc::set_handler(|| {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        say("dma-bench: stopping; what was measured is kept; Ctrl-C again ends at once, and nothing is kept");
    });
}

/// Goes on unless the user asked to stop.
///
/// # Errors
///
/// `Aborted`: that was asked for.
pub fn check() -> dma::Result<()> {
    if stopped() {
        Err(Error::new(ErrorKind::Aborted, "interrupted while the memory was filled"))
    } else {
        Ok(())
    }
}

/// Returns whether the user asked to stop.
#[inline]
#[must_use]
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
