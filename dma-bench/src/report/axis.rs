//! Logarithmic and linear axes, and their ticks.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The label, with the unit.
    pub(super) label: String,
    /// The format of the axis's values.
    pub(super) format: fn(f64) -> String,
    /// Ratio of two ticks: 2 or 10. 0 for a linear axis.
    pub(super) base: f64,
}

/// The range of an axis and its ticks. On a logarithmic axis, all these numbers are logarithms.
#[derive(Clone, Debug)]
pub(super) struct Ticks {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) at: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.at.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl Axis {
    pub(super) fn place(&self, value: f64) -> f64 {
        if self.base == 0.0 { value } else { value.max(1e-12).ln() / self.base.ln() }
    }

    pub(super) fn value(&self, place: f64) -> f64 {
        if self.base == 0.0 { place } else { self.base.powf(place) }
    }

    /// Returns sets of ticks within one power of the base, from coarse to fine, as multiples of that power.
    fn finer(&self) -> impl Iterator<Item = Vec<f64>> {
        let base = self.base as u32;
        let (round, parts): (Vec<Vec<f64>>, &[u32]) = if base > 2 {
            (vec![vec![1.0, 2.0, 5.0], vec![1.0, 1.5, 2.0, 3.0, 5.0, 7.0]], &[2, 5, 10, 20])
        } else {
            (Vec::new(), &[2, 4, 8, 16, 32, 64])
        };
        let even = move |n: &u32| (*n..base * n).map(|i| f64::from(i) / f64::from(*n)).collect();
        round.into_iter().chain(parts.iter().map(even))
    }

    /// Returns ticks at these multiples of every power of the base. Axes with base 2 are counts and have
    /// ticks at whole numbers only.
    fn between(&self, from: f64, to: f64, of: &[f64]) -> Vec<f64> {
        let powers = from.floor() as i32..=to.ceil() as i32;
        let all = powers.flat_map(|power| of.iter().map(move |m| f64::from(power) + self.place(*m)));
        let whole = |t: f64| (self.value(t) - self.value(t).round()).abs() < 1e-6 * self.value(t);
        all.filter(|t| (from..=to).contains(t) && (self.base > 2.0 || whole(*t))).collect()
    }

    /// Returns a range around all values, with a tick at every power of the base. If that makes more than ten
    /// ticks, some are left out. If it makes fewer than three, finer ticks are added.
    pub(super) fn ticks(&self, values: impl Iterator<Item = f64>) -> Ticks {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| *v > 0.0).map(|v| self.place(v)) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            (from, to) = (0.0, 1.0);
        }
        if self.base == 0.0 {
            return Self::linear(to);
        }
        let room = ((to - from) * 0.03).max(0.05);
        (from, to) = (from - room, to + room);
        let steps = (to - from).max(1.0);
        let every = (steps / 10.0).ceil();
        let mut at: Vec<f64> = Vec::new();
        let mut tick = (from / every).ceil() * every;
        while tick <= to {
            at.push(tick);
            tick += every;
        }
        if at.len() < 3
            && let Some(finer) = self.finer().map(|of| self.between(from, to, &of)).find(|at| at.len() >= 3)
        {
            at = finer;
        }
        Ticks { from, to, at }
    }

    /// Returns a linear range from 0, with ticks at round numbers.
    fn linear(to: f64) -> Ticks {
        let to = to.max(f64::MIN_POSITIVE) * 1.02;
        let decade = 10_f64.powf((to / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * decade).find(|step| to / step <= 8.0);
        let step = step.unwrap_or(to);
        let at = (0..).map(|n| f64::from(n) * step).take_while(|at| *at <= to).collect();
        Ticks { from: 0.0, to, at }
    }
}
