//! Costs that depend on a size.

use super::time::Time;

/// A cost as a function of the size: constant before the first point, linear between points, and after the
/// last point continued along the last line.
///
/// ```
/// use dma_sim::model::{Curve, Time};
///
/// let curve = Curve::points(&[(100, Time::from_ns(10)), (200, Time::from_ns(20))]).unwrap();
/// assert_eq!(curve.at(0), Time::from_ns(10));
/// assert_eq!(curve.at(150), Time::from_ns(15));
/// assert_eq!(curve.at(300), Time::from_ns(30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// The lines, at least one, sorted by size.
    lines: Vec<Line>,
}

/// At `size` the cost is `ps` picoseconds. Each further unit of size costs `slope / 2^SHIFT` more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Line {
    size: u64,
    ps: u64,
    slope: i64,
}

/// Number of fractional bits of a slope: the error of a line is less than 1 ps up to 1 GiB.
const SHIFT: u32 = 30;

/// Points that do not form a [`Curve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CurveError {
    /// There are no points.
    #[error("a curve needs at least one point")]
    Empty,
    /// The size of a point does not exceed the size before it.
    #[error("the sizes of a curve's points must rise; {0} does not exceed the size before it")]
    NotRising(u64),
    /// The line up to this size is too steep to compute, or the last line falls.
    #[error("a curve must not be too steep, nor fall at its end; see the point at size {0}")]
    Slope(u64),
}

impl Curve {
    /// Returns the same cost for every size.
    #[must_use]
    pub fn flat(cost: Time) -> Self {
        Self { lines: vec![Line { size: 0, ps: cost.as_ps(), slope: 0 }] }
    }

    /// Returns `fixed` plus the time of the bytes at `bytes_per_second`. With 0, the bytes take no time.
    #[must_use]
    pub fn linear(fixed: Time, bytes_per_second: u64) -> Self {
        // The value is at most 2^30 * 10^12, about 2^70. It is limited to the range of an i64 below.
        let slope = ((1_000_000_000_000_u128 << SHIFT) / u128::from(bytes_per_second.max(1))) as i128;
        let slope = if bytes_per_second == 0 { 0 } else { i64::try_from(slope).unwrap_or(i64::MAX) };
        Self { lines: vec![Line { size: 0, ps: fixed.as_ps(), slope }] }
    }

    /// Creates a curve through these points, which are in ascending order of size.
    ///
    /// # Errors
    ///
    /// Returns an error if the points do not form a curve.
    pub fn points(points: &[(u64, Time)]) -> Result<Self, CurveError> {
        let (first, _) = points.first().ok_or(CurveError::Empty)?;
        let mut lines = Vec::with_capacity(points.len());
        for pair in points.windows(2) {
            let ((from, low), (to, high)) = (pair[0], pair[1]);
            if to <= from {
                return Err(CurveError::NotRising(to));
            }
            let rise = i128::from(high.as_ps()) - i128::from(low.as_ps());
            let slope =
                i64::try_from((rise << SHIFT) / i128::from(to - from)).map_err(|_| CurveError::Slope(to))?;
            lines.push(Line { size: from, ps: low.as_ps(), slope });
        }
        match lines.last() {
            None => lines.push(Line { size: *first, ps: points[0].1.as_ps(), slope: 0 }),
            Some(last) if last.slope < 0 => return Err(CurveError::Slope(points[points.len() - 1].0)),
            Some(_) => {}
        }
        Ok(Self { lines })
    }

    /// Returns true if the cost is 0 for every size.
    pub(super) fn is_zero(&self) -> bool {
        self.lines.iter().all(|line| line.ps == 0 && line.slope == 0)
    }

    /// Returns the cost for `size`.
    #[must_use]
    #[inline]
    pub fn at(&self, size: u64) -> Time {
        let mut line = &self.lines[0];
        for next in &self.lines[1..] {
            if next.size > size {
                break;
            }
            line = next;
        }
        if line.slope == 0 {
            return Time::from_ps(line.ps);
        }
        let more = (i128::from(size.saturating_sub(line.size)) * i128::from(line.slope)) >> SHIFT;
        let ps = i128::from(line.ps) + more;
        Time::from_ps(u64::try_from(ps.max(0)).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_meet_their_points() {
        let points = [(64, 44_600), (256, 39_700), (512, 28_200), (1024, 40_400), (1 << 20, 33_428_000)];
        let points = points.map(|(size, ps)| (size, Time::from_ps(ps)));
        let curve = Curve::points(&points).unwrap();
        for (size, time) in points {
            let off = curve.at(size).as_ps().abs_diff(time.as_ps());
            assert!(off <= 1, "{size}: {off} ps");
        }
        assert_eq!(curve.at(0), points[0].1);
        assert!(curve.at(2 << 20).as_ps() > 66_000_000);
    }

    #[test]
    fn bandwidth_is_exact_enough() {
        let curve = Curve::linear(Time::from_us(1), 37_300_000_000);
        assert_eq!(curve.at(0), Time::from_us(1));
        // The expected time is that of 2 MiB at 37.3 GB/s.
        assert_eq!(curve.at(2 << 20).as_ps(), 1_000_000 + 56_223_914);
        assert_eq!(Curve::linear(Time::ZERO, 0).at(u64::MAX), Time::ZERO);
        assert_eq!(Curve::linear(Time::ZERO, 1).at(u64::MAX), Time::MAX);
        assert_eq!(Curve::flat(Time::from_ns(3)).at(99), Time::from_ns(3));
    }

    #[test]
    fn bad_points_are_refused() {
        let at = |size, ps| (size, Time::from_ps(ps));
        assert_eq!(Curve::points(&[]), Err(CurveError::Empty));
        assert_eq!(Curve::points(&[at(5, 1), at(5, 2)]), Err(CurveError::NotRising(5)));
        assert_eq!(Curve::points(&[at(0, 2), at(5, 1)]), Err(CurveError::Slope(5)));
        assert_eq!(Curve::points(&[at(0, 0), at(1, u64::MAX)]), Err(CurveError::Slope(1)));
    }
}
