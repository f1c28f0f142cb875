//! Failures of a copy.

use apps_shared::command;

/// The reason why a copy failed, in one line that names the input and the remedy. A failed copy
/// leaves no file behind, and an existing DST unchanged.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) String);

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<dma::Error> for Failure {
    fn from(e: dma::Error) -> Self {
        Self(e.to_string())
    }
}

macro_rules! failure {
    ($($message:tt)+) => { $crate::failure::Failure::from(format!($($message)+)) };
}

pub(crate) use failure;

/// Fails after a signal has arrived. Long-running work calls this repeatedly.
pub(crate) fn check_interrupt() -> Result<(), Failure> {
    if command::interrupted() { Err(failure!("interrupted; nothing was left behind")) } else { Ok(()) }
}
