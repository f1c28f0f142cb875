//! [`OptionValue`]: the value of an engine's option.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::contract::error::{Error, ErrorKind, Result};
use crate::names::pci::PciAddress;
use crate::names::size::parse_size;

/// The text of an engine's option. Each method parses one type of value. Errors name the option, its value,
/// and the valid values.
#[derive(Clone, Copy, Debug)]
pub struct OptionValue<'a> {
    key: &'a str,
    text: &'a str,
}

impl<'a> OptionValue<'a> {
    /// Makes the value `text` of the option `key`.
    #[must_use]
    pub const fn new(key: &'a str, text: &'a str) -> Self {
        Self { key, text }
    }

    /// Parses a whole number in decimal digits.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for other text; `OutOfRange` if the value is not in `range`, with the numbers if the
    /// value has at most 64 bits.
    pub fn number<N>(self, range: RangeInclusive<N>) -> Result<N>
    where
        N: Copy + TryFrom<u64> + TryInto<u64>,
    {
        let (min, max) = bounds(range);
        let hint = format!("give a whole number from {min} to {max}");
        if self.text.is_empty() || !self.text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(self.bad(hint));
        }
        let Ok(number) = self.text.parse() else {
            // The number has more than 64 bits, so the error cannot contain it.
            return Err(Error::new(ErrorKind::OutOfRange, self.written()).with_hint(hint));
        };
        let read = (min..=max).contains(&number).then(|| N::try_from(number).ok()).flatten();
        read.ok_or_else(|| self.out_of_range(number, min, max, hint))
    }

    /// Parses a size in bytes, as [`parse_size`] does.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for other text; `OutOfRange`, with the numbers, if the value is not in `range`.
    pub fn size<N>(self, range: RangeInclusive<N>) -> Result<N>
    where
        N: Copy + TryFrom<u64> + TryInto<u64>,
    {
        let (min, max) = bounds(range);
        let Some(size) = parse_size(self.text) else {
            return Err(self.bad("give a size in bytes, such as 65536, 64K, 2M or 1GiB"));
        };
        let read = (min..=max).contains(&size).then(|| N::try_from(size).ok()).flatten();
        read.ok_or_else(|| {
            self.out_of_range(size, min, max, format!("give a size from {min} to {max} bytes"))
        })
    }

    /// Parses one of a few words, each of which stands for a value.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another word, with a list of the valid words.
    pub fn choice<V: Copy>(self, choices: &[(&str, V)]) -> Result<V> {
        let found = choices.iter().find(|(word, _)| *word == self.text).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
            self.bad(format!("give one of {}", words.join(", ")))
        })
    }

    /// Parses a PCI address.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for anything else.
    pub fn address(self) -> Result<PciAddress> {
        self.text.parse().map_err(|e: Error| self.bad(e.hint().to_owned()))
    }

    /// Returns the path of a file or directory, which need not exist.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the text is empty.
    pub fn path(self) -> Result<PathBuf> {
        if self.text.is_empty() { Err(self.bad("give a path")) } else { Ok(self.text.into()) }
    }

    /// Returns the text, which must not be empty.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the text is empty.
    pub fn text(self) -> Result<&'a str> {
        if self.text.is_empty() { Err(self.bad("give a text that is not empty")) } else { Ok(self.text) }
    }

    /// Parses the text with `read`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `read` fails. The error of `read` is the hint.
    pub fn read<T, E: Display>(self, read: impl FnOnce(&str) -> Result<T, E>) -> Result<T> {
        read(self.text).map_err(|e| self.bad(e.to_string()))
    }

    /// Makes the error for an option that a backend lists but does not handle.
    #[must_use]
    pub fn not_read(self) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            format!("the backend lists the option {}={}, but does not handle it", self.key, self.text),
        )
        .with_hint("leave the option out")
    }

    fn bad(self, hint: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        Error::new(ErrorKind::InvalidArgument, self.written()).with_hint(hint)
    }

    fn out_of_range(self, number: u64, min: u64, max: u64, hint: String) -> Error {
        let limit = if number < min { min } else { max };
        Error::new(ErrorKind::OutOfRange, self.written()).with_numbers(number, limit).with_hint(hint)
    }

    fn written(self) -> String {
        format!("option {}={}", self.key, self.text)
    }
}

/// Returns the minimum and maximum of a range. Numbers in options have at most 64 bits.
fn bounds<N: Copy + TryInto<u64>>(range: RangeInclusive<N>) -> (u64, u64) {
    let bound = |n: N| n.try_into().unwrap_or(u64::MAX);
    (bound(*range.start()), bound(*range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> OptionValue<'_> {
        OptionValue::new("key", text)
    }

    /// Checks that `result` is an error of `kind` that names the option and contains the text `says`.
    fn refused<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, says: &str) {
        let error = result.expect_err(says);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().starts_with("option key="), "{error}");
        assert!(error.hint().contains(says), "{error} says {says}");
    }

    #[test]
    fn each_kind_of_value_is_read() {
        assert_eq!(value("0").number(0..=5_u32).unwrap(), 0);
        assert_eq!(value("007").number(1..=7_usize).unwrap(), 7);
        assert_eq!(value("18446744073709551615").number(0..=u64::MAX).unwrap(), u64::MAX);
        assert_eq!(value("64k").size(0..=u64::MAX).unwrap(), 65_536);
        assert_eq!(value("64K").size(65_536..=65_536).unwrap(), 65_536);
        assert!(value("on").choice(&[("on", true), ("off", false)]).unwrap());
        assert_eq!(value("03:00.1").address().unwrap().function, 1);
        assert_eq!(value("/x y").path().unwrap(), PathBuf::from("/x y"));
        assert_eq!(value("p0").text().unwrap(), "p0");
        assert_eq!(value("1.5").read(str::parse::<f64>).unwrap(), 1.5);
    }

    #[test]
    fn anything_else_says_what_would_be_right() {
        use ErrorKind::{InvalidArgument, OutOfRange};
        for text in ["", "many", "-1", "+1", "1 ", "0x1"] {
            refused(value(text).number(2..=5_u32), InvalidArgument, "a whole number from 2 to 5");
        }
        for (text, limit) in [("1", 2), ("6", 5), ("5000000000", 5)] {
            let error = value(text).number(2..=5_u32).unwrap_err();
            assert_eq!(error.limit(), Some(limit), "{error}");
            refused(Err::<u32, _>(error), OutOfRange, "from 2 to 5");
        }
        let long = value("99999999999999999999").number(0..=u64::MAX);
        assert_eq!(long.as_ref().map_err(Error::requested), Err(None));
        refused(long, OutOfRange, "from 0 to");
        refused(value("2MB").size(0..=9), InvalidArgument, "such as 65536, 64K");
        refused(value("99999999999G").size(0..=9), InvalidArgument, "such as 65536, 64K");
        refused(value("1K").size(0..=9), OutOfRange, "from 0 to 9 bytes");
        refused(value("1").size(8..=9), OutOfRange, "from 8 to 9 bytes");
        refused(value("yes").choice(&[("on", 1), ("off", 0)]), InvalidArgument, "one of on, off");
        refused(value("3:0").address(), InvalidArgument, "DDDD:BB:DD.F");
        refused(value("").path(), InvalidArgument, "path");
        refused(value("").text(), InvalidArgument, "not empty");
        refused(value("x").read(|_| Err::<(), _>("give y")), InvalidArgument, "give y");
    }
}
