//! The time that a copy takes: costs of the profile for one task.

use crate::model::channel::Task;
use crate::model::profile::{ChannelCosts, Profile};
use crate::model::rng;
use crate::model::time::Time;

/// Returns the time during which the channel starts the task, without that of the doorbell.
pub(super) fn issue(profile: &Profile, task: &Task) -> Time {
    own(profile, task).issue.at(task.len) + segments(profile, task)
}

/// Returns the time during which the task occupies its server.
pub(super) fn engine(profile: &Profile, task: &Task) -> Time {
    profile.costs(task.direction).engine.at(task.len)
}

/// Returns the end of a task that does not wait for its server.
pub(super) fn end(profile: &Profile, task: &Task) -> Time {
    let costs = profile.costs(task.direction);
    let contention = own(profile, task).contention.at(u64::from(task.position));
    let latency = costs.latency.at(task.len) + segments(profile, task);
    let latest = (task.rung + latency + contention).max(task.issued + latency);
    jitter(latest, costs.latency.at(0) + contention, profile.jitter, task.chance)
}

/// Returns the costs that depend on the task's report.
fn own<'a>(profile: &'a Profile, task: &Task) -> &'a ChannelCosts {
    let costs = profile.costs(task.direction);
    if task.coalesce { &costs.coalesced } else { &costs.reported }
}

/// Returns the additional time for lists of segments.
fn segments(profile: &Profile, task: &Task) -> Time {
    let extra = task.src.len().saturating_sub(1) + task.dst.len().saturating_sub(1);
    Time::from_ps(profile.segment.as_ps().saturating_mul(extra as u64))
}

/// Returns `at`, shifted by at most `thousandths` of `span` up or down. `chance` selects the shift.
fn jitter(at: Time, span: Time, thousandths: u32, chance: u64) -> Time {
    let reach = span.as_ps().saturating_mul(u64::from(thousandths)) / 1_000;
    // The chance is mixed first, because its low bits also select the tearing.
    at + Time::from_ps(rng::scale(rng::mix(chance), reach.saturating_mul(2))) - Time::from_ps(reach)
}
