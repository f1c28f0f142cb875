//! Ctrl-C: what was measured is kept.

use std::sync::atomic::{AtomicBool, Ordering};

static STOPPED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C: the first asks to stop, the second ends the program at once.
pub fn install() {
    // It fails only if another handler is there, which then does its work.
    let _ = ctrlc::set_handler(|| {
        if STOPPED.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
}

/// Whether the user asked to stop.
#[inline]
#[must_use]
pub fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
