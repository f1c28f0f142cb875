//! A first copy, which tests whether the host's memory can be accessed by RDMA.

use std::time::{Duration, Instant};

use dma::prelude::*;
use dma::{Queue, Transfer};

use crate::deadline::{POLL_INTERVAL, check_interrupt, seconds};
use crate::direction::Direction;
use crate::failure::{Failure, WITHOUT_RDMA, failure};

/// Length of the copy in bytes.
const LEN: usize = 64;
/// Time after which the wait is reported. A connection usually takes milliseconds.
const SOON: Duration = Duration::from_secs(1);
/// The end of a message, with the remedy if the other host does not respond.
const NO_ANSWER: &str =
    "; check that a route exists between the RDMA addresses of both hosts, and that no firewall blocks it";

/// Copies a few bytes from or to `window`, whose contents are still unused. Waits up to `timeout`.
pub(crate) fn reach(
    engine: &dyn DmaEngine,
    queue: &Queue,
    window: &Window,
    direction: Direction,
    timeout: Duration,
) -> Result<(), Failure> {
    let window = window.slice(..LEN.min(window.len()));
    let buffer = engine.allocate(window.len()).map_err(|e| failed(&e))?;
    match direction {
        Direction::FromWindow => wait(queue.copy(window, buffer).map_err(|e| failed(&e.into()))?, timeout),
        Direction::ToWindow => wait(queue.copy(buffer, window).map_err(|e| failed(&e.into()))?, timeout),
    }
}

fn failed(e: &dma::Error) -> Failure {
    let route = if e.kind() == ErrorKind::DeviceFault { NO_ANSWER } else { "" };
    failure!(Importing, "the host's memory cannot be accessed by RDMA: {e}{route}")
}

/// Waits up to `timeout` for the copy. Reports a wait that takes longer than [`SOON`].
fn wait<T>(mut transfer: Transfer<T>, timeout: Duration) -> Result<(), Failure> {
    let (began, mut told) = (Instant::now(), false);
    while transfer.wait_for(POLL_INTERVAL.min(timeout)).is_err() {
        check_interrupt()?;
        if began.elapsed() >= timeout {
            return Err(failure!(
                Importing,
                "the host did not respond by RDMA within {}{NO_ANSWER}",
                seconds(timeout)
            ));
        }
        if began.elapsed() >= SOON && !told {
            told = true;
            tracing::error!(
                "the host has not responded by RDMA for 1 s; still waiting. If it does not respond, {WITHOUT_RDMA}"
            );
        }
    }
    transfer.wait().map(drop).map_err(|e| failed(&e.into_parts().0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(engine: &str, direction: Direction) -> Result<(), Failure> {
        let engine = dma::open(engine).expect("an engine");
        let options = QueueOptions::new().with_drop_timeout(Duration::from_millis(10));
        let queue = engine.open_queue(&options).expect("a queue");
        let window = engine.allocate_window(&MemoryRequest::new(4096)).expect("memory");
        reach(&*engine, &queue, &window, direction, Duration::from_millis(200))
    }

    #[test]
    fn memory_that_answers_is_reached() {
        for direction in [Direction::FromWindow, Direction::ToWindow] {
            reached("cpu", direction).expect("reached");
        }
    }

    #[test]
    fn memory_that_does_not_answer_is_reported_with_the_other_way() {
        for direction in [Direction::FromWindow, Direction::ToWindow] {
            for (engine, says) in [
                ("sim:faults=fail@1", "cannot be accessed by RDMA: "),
                ("sim:faults=lose@1", "did not respond by RDMA within 0.2 s"),
            ] {
                let failure = reached(engine, direction).expect_err("it fails").or_stream().to_string();
                assert!(failure.starts_with("importing the host's memory: "), "{failure}");
                assert!(
                    failure.contains(says)
                        && failure.contains(NO_ANSWER)
                        && failure.ends_with("--engine stream on both sides"),
                    "{failure}"
                );
            }
        }
    }
}
