//! Model time: whole picoseconds since the device was created.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

/// A point in model time, or a span of it, in whole picoseconds.
///
/// Arithmetic saturates at [`Time::MAX`], about 213 days after the device was created.
///
/// As text, it is a number and a unit: `200us`, `1.5ms`, `40ns`, `7ps`, `2s`. Formatting is exact, and so is
/// parsing, except that fractions of a picosecond are dropped.
///
/// ```
/// use dma_sim::model::Time;
///
/// let t: Time = "1.5us".parse().unwrap();
/// assert_eq!(t, Time::from_ns(1_500));
/// assert_eq!(t.to_string(), "1500ns");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The time at which the device was created; an empty span.
    pub const ZERO: Self = Self(0);
    /// The end of model time, after about 213 days.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns a time of `ps` picoseconds.
    #[must_use]
    pub const fn from_ps(ps: u64) -> Self {
        Self(ps)
    }

    /// Returns a time of `ns` nanoseconds, saturating.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns.saturating_mul(1_000))
    }

    /// Returns a time of `us` microseconds, saturating.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self(us.saturating_mul(1_000_000))
    }

    /// Returns the time in picoseconds.
    #[must_use]
    pub const fn as_ps(self) -> u64 {
        self.0
    }

    /// Returns the time in seconds, rounded to an `f64`, for rates and reports.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// Returns the sum, or [`Time::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, or [`Time::ZERO`] when `other` is later.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl From<Duration> for Time {
    /// The conversion is exact up to [`Time::MAX`]. Longer durations become [`Time::MAX`].
    fn from(d: Duration) -> Self {
        Self(u64::try_from(d.as_nanos().saturating_mul(1_000)).unwrap_or(u64::MAX))
    }
}

impl From<Time> for Duration {
    /// The duration is rounded down to whole nanoseconds.
    fn from(t: Time) -> Self {
        Self::from_nanos(t.0 / 1_000)
    }
}

/// The units in texts, longest first, with their picoseconds.
const UNITS: [(&str, u64); 5] =
    [("s", 1_000_000_000_000), ("ms", 1_000_000_000), ("us", 1_000_000), ("ns", 1_000), ("ps", 1)];

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().find(|(_, ps)| self.0.is_multiple_of(*ps) && self.0 > 0);
        match exact {
            Some((unit, ps)) => write!(f, "{}{unit}", self.0 / ps),
            None => f.write_str("0ps"),
        }
    }
}

/// The text is not a [`Time`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a time: write a number and a unit (ps, ns, us, ms, s), such as `200us` or `1.5ms`")]
pub struct ParseTimeError {
    /// The given text.
    pub text: String,
}

impl FromStr for Time {
    type Err = ParseTimeError;

    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        parse(text).ok_or_else(|| ParseTimeError { text: text.to_owned() })
    }
}

fn parse(text: &str) -> Option<Time> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if [whole, fraction].iter().any(|part| part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    // Fractions of a picosecond are dropped.
    let mut ps = whole.parse::<u64>().ok()?.checked_mul(*scale)?;
    let mut place = *scale;
    for digit in fraction.bytes() {
        place /= 10;
        ps = ps.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(Time(ps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_exact_in_both_directions() {
        for (text, ps) in [
            ("0ps", 0),
            ("7ps", 7),
            ("1500ns", 1_500_000),
            ("200us", 200_000_000),
            ("3ms", 3_000_000_000),
            ("2s", 2_000_000_000_000),
            ("18446744073709551615ps", u64::MAX),
        ] {
            assert_eq!(text.parse::<Time>().unwrap(), Time(ps));
            assert_eq!(Time(ps).to_string(), text);
        }
        assert_eq!("1.5us".parse::<Time>().unwrap(), Time::from_ns(1_500));
        assert_eq!("0.0019ns".parse::<Time>().unwrap(), Time(1));
    }

    #[test]
    fn bad_text_is_refused_by_name() {
        for text in
            ["", "5", "us", "5 us", "-5us", "5min", "1.us", ".5us", "1.5.5us", "99999999999s", "1e3us"]
        {
            let error = text.parse::<Time>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn durations_convert_and_saturate() {
        assert_eq!(Time::from(Duration::from_nanos(3)), Time::from_ns(3));
        assert_eq!(Duration::from(Time::from_ps(3_999)), Duration::from_nanos(3));
        assert_eq!(Time::from(Duration::MAX), Time::MAX);
        assert_eq!(Time::MAX + Time::from_ps(1), Time::MAX);
        assert_eq!(Time::ZERO - Time::from_ps(1), Time::ZERO);
    }
}
