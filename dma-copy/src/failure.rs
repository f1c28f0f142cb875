//! Reasons why a copy failed.

use std::fmt;

use crate::protocol::{Role, Step};

/// The reason why a copy failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A signal ended it.
    Interrupted,
    /// A failure on this side. The message names the input and the remedy.
    Here { step: Step, message: String },
    /// The other side gave up and sent its reason.
    There { side: Role, step: Step, text: String },
}

/// The remedy if there is no RDMA between two hosts.
pub(crate) const WITHOUT_RDMA: &str = "copy without RDMA: --engine stream on both sides";

impl Failure {
    /// Offers the way without RDMA, if it failed before the copy began.
    pub(crate) fn or_stream(self) -> Self {
        use Step::{Exporting, Importing, Starting};
        match self {
            Self::Here { step: step @ (Starting | Exporting | Importing), message } => {
                Self::Here { step, message: format!("{message}; or {WITHOUT_RDMA}") }
            }
            Self::There { side, step: step @ (Exporting | Importing), text } => {
                Self::There { side, step, text: format!("{text}; or {WITHOUT_RDMA}") }
            }
            other => other,
        }
    }

    pub(crate) fn new(step: Step, message: impl Into<String>) -> Self {
        Self::Here { step, message: message.into() }
    }

    /// The step and text to send to the other side; `None` if the failure came from there.
    pub(crate) fn to_send(&self) -> Option<(Step, String)> {
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
            // A peer's text may hold terminal control sequences.
            Self::There { side, step, text } => {
                let text = text.replace(char::is_control, "?");
                write!(f, "the {side} gave up ({step}): {text}")
            }
        }
    }
}

macro_rules! failure {
    ($step:ident, $($message:tt)+) => {
        $crate::failure::Failure::new($crate::protocol::Step::$step, format!($($message)+))
    };
}
pub(crate) use failure;
