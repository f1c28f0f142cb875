//! Why a copy did not come about.

use std::fmt;

use crate::protocol::{Role, Step};

/// Why a copy did not come about.
#[derive(Debug)]
pub(crate) enum Failure {
    /// By a signal.
    Interrupted,
    /// On this side: at which step, why, and what to do.
    Here { step: Step, message: String },
    /// The other side gave up, and said so.
    There { side: Role, step: Step, text: String },
}

impl Failure {
    pub(crate) fn new(step: Step, message: impl Into<String>) -> Self {
        Self::Here { step, message: message.into() }
    }

    /// The failure as the other side is told of it, unless it is from there.
    pub(crate) fn to_tell(&self) -> Option<(Step, String)> {
        match self {
            Self::Interrupted => Some((Step::Finishing, "it was interrupted".to_owned())),
            Self::Here { step, message } => Some((*step, message.clone())),
            Self::There { .. } => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Here { step, message } => write!(f, "{step}: {message}"),
            // What a peer says is not trusted to be fit for a terminal.
            Self::There { side, step, text } => {
                write!(f, "the {side} gave up ({step}): {}", printable(text))
            }
        }
    }
}

/// `text` without control characters.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Makes a [`Failure`] at a step, of a formatted message.
macro_rules! failure {
    ($step:ident, $($message:tt)+) => {
        $crate::failure::Failure::new($crate::protocol::Step::$step, format!($($message)+))
    };
}
pub(crate) use failure;
