//! Reasons why a copy failed.

use std::fmt;

use crate::protocol::{Role, Step};

/// The reason why a copy failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A signal ended the copy.
    Interrupted,
    /// An argument is invalid. The message names the argument and the remedy.
    Argument(String),
    /// A failure on this side. The message names the input and the remedy.
    Here { step: Step, message: String },
    /// The other side gave up and sent its reason.
    There { side: Role, step: Step, text: String },
}

/// The remedy for two hosts without RDMA.
pub(crate) const WITHOUT_RDMA: &str = "copy without RDMA: --engine stream on both sides";

/// Adds [`WITHOUT_RDMA`] to a failure from before the copy began, unless its text already ends with it.
fn with_stream(step: Step, text: String) -> String {
    let is_early = matches!(step, Step::Starting | Step::Exporting | Step::Importing);
    if is_early && !text.ends_with(WITHOUT_RDMA) { format!("{text}; or {WITHOUT_RDMA}") } else { text }
}

impl Failure {
    /// Adds [`WITHOUT_RDMA`] to this failure, if the copy had not begun.
    pub(crate) fn or_stream(self) -> Self {
        match self {
            Self::Here { step, message } => Self::Here { step, message: with_stream(step, message) },
            Self::There { side, step, text } => Self::There { side, step, text: with_stream(step, text) },
            Self::Interrupted | Self::Argument(_) => self,
        }
    }

    pub(crate) fn new(step: Step, message: impl Into<String>) -> Self {
        Self::Here { step, message: message.into() }
    }

    /// Returns the step and the text to send to the other side, or `None` if the failure came from that
    /// side. With `is_rdma`, the text includes [`WITHOUT_RDMA`], because the other side may not know
    /// that this side tried RDMA.
    pub(crate) fn to_send(&self, is_rdma: bool) -> Option<(Step, String)> {
        match self {
            Self::Interrupted => Some((Step::Finishing, "it was interrupted".to_owned())),
            Self::Argument(message) => Some((Step::Starting, message.clone())),
            Self::Here { step, message } if is_rdma => Some((*step, with_stream(*step, message.clone()))),
            Self::Here { step, message } => Some((*step, message.clone())),
            Self::There { .. } => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Argument(message) => write!(f, "{}: {message}", Step::Starting),
            Self::Here { step, message } => write!(f, "{step}: {message}"),
            // The peer's text may contain terminal control sequences.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_without_rdma_is_offered_once_and_on_both_sides() {
        let failure = failure!(Importing, "no route");
        assert_eq!(failure.to_send(false), Some((Step::Importing, "no route".to_owned())));
        let (step, text) = failure.to_send(true).unwrap();
        assert_eq!(text, format!("no route; or {WITHOUT_RDMA}"));
        let there = Failure::There { side: Role::Dpu, step, text: text.clone() };
        for told in [failure.or_stream().or_stream(), there.or_stream()] {
            assert!(told.to_string().ends_with(&format!(": {text}")), "{told}");
        }
        // After the copy has begun, the copy without RDMA is not suggested.
        assert_eq!(failure!(Moving, "a").to_send(true), Some((Step::Moving, "a".to_owned())));
    }
}
