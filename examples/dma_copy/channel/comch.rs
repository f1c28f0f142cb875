//! DOCA's comm channel, between a BlueField and its host.

use super::Channel;
use crate::Deadline;
use crate::failure::{Failure, failure};
use crate::options::Options;

pub(super) fn open(name: &str, _options: &Options, _deadline: Deadline) -> Result<Channel, Failure> {
    Err(failure!(Connecting, "comch:{name}: this build has no comm channel; use unix: or tcp:"))
}
