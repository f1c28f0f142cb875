//! Checks of campaigns, and notes on values that are not applied as given.

use super::{Campaign, Direction, MAX_SAMPLE_SECONDS, MIN_SAMPLE_SECONDS, Op, Peer, Sweep, Values};
use crate::units;

/// Maximum duration in seconds of a sample that can be compared well with memcpy beside it.
const MAX_COMPARABLE_SECONDS: f64 = 0.5;

impl Campaign {
    /// Checks all values of the campaign.
    pub fn check(&self) -> Result<(), String> {
        self.check_numbers()?;
        self.check_sweeps()
    }

    /// Checks the values that are not part of sweeps.
    pub(crate) fn check_numbers(&self) -> Result<(), String> {
        let numbers = [
            ("samples", Some(f64::from(self.samples)), 1.0, 10_000.0),
            ("passes", Some(f64::from(self.passes)), 1.0, 10_000.0),
            ("limit", self.limit, 0.0, MAX_SAMPLE_SECONDS),
            ("seconds", Some(self.seconds), MIN_SAMPLE_SECONDS, MAX_SAMPLE_SECONDS),
            ("warm-up", Some(self.warm_up), 0.0, 3600.0),
            ("stall", Some(self.stall), 0.01, 86_400.0),
            ("duration", self.duration, 0.001, MAX_SAMPLE_SECONDS),
            ("series", self.series, 0.000_1, MAX_SAMPLE_SECONDS),
            ("steady", self.steady, 0.000_1, 1.0),
            ("count", self.count.map(|count| count as f64), 1.0, 1e12),
            ("rate", self.rate, 0.01, 1e9),
            ("footprint", self.footprint.map(|bytes| bytes as f64), 4096.0, 1e13),
        ];
        if let Some(dst) = self.dst_node {
            if self.node.is_none() {
                return Err(format!(
                    "destinations are on NUMA node {dst} and sources on any; give `node`, too"
                ));
            }
            if self.peer == Peer::Host {
                return Err(
                    "a NUMA node for destinations is for memory of this machine; with a peer on another \
                    machine, give one node"
                        .to_owned(),
                );
            }
        }
        if self.steady.is_some() && (self.series.is_none() || self.duration.is_some()) {
            return Err(
                "a steady state is seen in a time series: give `series`, and no `duration`, because a soak \
                test does not end early"
                    .to_owned(),
            );
        }
        for (what, value, low, high) in numbers {
            if let Some(value) = value.filter(|value| !(low..=high).contains(value)) {
                return Err(format!("{what} is {}; allowed are {low} to {high}", units::plain(value)));
            }
        }
        Ok(())
    }

    fn check_sweeps(&self) -> Result<(), String> {
        if self.engines.is_empty() {
            return Err("the campaign has no engine; name one, or `real` for all usable ones".to_owned());
        }
        if self.sweeps.is_empty() {
            return Err("the campaign has no sweeps, so there is nothing to measure; add one".to_owned());
        }
        for sweep in &self.sweeps {
            let most = |what: &str, values: &Values, high: u64| match values.0.iter().find(|v| **v > high) {
                Some(v) => Err(format!("{what} {v} is too much; allowed are 1 to {high}")),
                None if values.0.is_empty() => {
                    Err(format!("{what} is an empty list; give at least one value"))
                }
                None => Ok(()),
            };
            most("size", &sweep.sizes, 16 << 30)?;
            most("depth", &sweep.depths, 65_536)?;
            most("queues", &sweep.queues, 1024)?;
            most("segments", &sweep.segments, 4096)?;
            if let Some(batches) = &sweep.batches {
                most("batch", batches, 65_536)?;
                if self.rate.is_some() && batches.0 != [1] {
                    return Err("at a rate, each operation has a doorbell of its own when it is due; \
                        leave the batch out, or give 1"
                        .to_owned());
                }
            }
            if sweep.ops.is_empty() || sweep.footprints.is_empty() || sweep.directions.is_empty() {
                return Err("a sweep needs at least one of ops, footprints and directions".to_owned());
            }
            let writes_away = |d: &Direction| matches!(d, Direction::Push | Direction::ToDevice);
            let parts = || sweep.directions.iter().flat_map(|d| d.parts());
            if sweep.ops.contains(&Op::Crc32c.into()) && parts().any(writes_away) {
                return Err("crc32c writes nothing that could be pushed to a peer or a device; give it the directions \
                    local, pull, from-device and on-device only"
                    .to_owned());
            }
        }
        Ok(())
    }

    /// Returns notes on values whose effect differs from what the user may expect.
    pub fn notes(&self) -> Vec<String> {
        let deepest = |s: &Sweep| s.depths.0.iter().copied().max().unwrap_or(1);
        let batches = |s: &Sweep| s.batches.as_ref().map_or(Vec::new(), |b| b.0.clone());
        let mut notes: Vec<String> = Vec::new();
        for sweep in &self.sweeps {
            let deepest = deepest(sweep);
            for batch in batches(sweep).into_iter().filter(|b| *b > deepest) {
                let note = format!(
                    "{batch} operations for each doorbell do not fit into a depth of {deepest}; {deepest} are used"
                );
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        if self.count.is_none()
            && self.rate.is_none()
            && !self.is_continuous()
            && self.seconds > MAX_COMPARABLE_SECONDS
        {
            notes.push(format!(
                "samples of {} are too long to be compared well with memcpy beside them: drift in between does not cancel out; with more --samples, each is shorter",
                units::nanos(self.seconds * 1e9)
            ));
        }
        notes
    }
}
