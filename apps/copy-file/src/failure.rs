//! Failures of a copy.

use std::fmt;

use apps_shared::command::{self, Failed};

/// The reason why a copy failed, in one line that names the input and the remedy. A failed copy
/// leaves no file behind, and an existing DST unchanged.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<Failure> for Failed<Failure> {
    fn from(failure: Failure) -> Self {
        Self::Copy(failure)
    }
}

impl From<dma::Error> for Failure {
    fn from(e: dma::Error) -> Self {
        Self(e.to_string())
    }
}

impl Failure {
    /// Returns the failure to open an engine.
    pub(crate) fn opening(e: &dma::Error) -> Failed<Self> {
        let failure = Self(e.to_string());
        if command::is_bad_name(e) { Failed::Argument(failure) } else { Failed::Copy(failure) }
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
