//! [`Options`]: the value of the environment variable `DMA_MEMCPY`.

/// Shortest length that [`Options::min`] may have. Calls below it never leave the C library.
pub(crate) const MIN_LEN: usize = 64 << 10;

/// The methods that are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine<'a> {
    /// Each call is executed by the method that was fastest so far.
    Auto,
    /// All calls from the limit on are streamed.
    Cpu,
    /// All calls from the limit on go to this work queue, or to the first one that can be used.
    Dsa(Option<&'a [u8]>),
    /// All calls go to the C library.
    Off,
}

/// The options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options<'a> {
    pub(crate) engine: Engine<'a>,
    /// Length from which calls are taken, in bytes.
    pub(crate) min: usize,
    /// Path of the file to which the report is appended when the process ends.
    pub(crate) stats: Option<&'a [u8]>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { engine: Engine::Auto, min: 1 << 20, stats: None }
    }
}

impl<'a> Options<'a> {
    /// Reads a list such as `engine=auto,min=1M,stats=/tmp/stats`, or `off`.
    ///
    /// # Errors
    ///
    /// The part of the text that is wrong, and the values that it may have.
    pub(crate) fn parse(text: &'a [u8]) -> Result<Self, (&'a [u8], &'static str)> {
        let mut options = Self::default();
        for part in text.split(|byte| *byte == b',').filter(|part| !part.is_empty()) {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let name = halves.next().unwrap_or_default();
            match (name, halves.next()) {
                (b"off", None) => options.engine = Engine::Off,
                (b"engine", Some(value)) => {
                    options.engine =
                        engine(value).ok_or((part, "engine is auto, cpu, dsa, dsa:wqX.Y or off"))?;
                }
                (b"min", Some(value)) => {
                    let min = size(value).filter(|min| *min >= MIN_LEN);
                    options.min = min.ok_or((part, "min is a length such as 1M, at least 64K"))?;
                }
                (b"stats", Some(value)) => {
                    let path = Some(value).filter(|path| path.first() == Some(&b'/') && path.len() < 4096);
                    options.stats = Some(path.ok_or((part, "stats is a path that begins with /"))?);
                }
                _ => return Err((part, "there are off, engine=, min= and stats=")),
            }
        }
        Ok(options)
    }
}

fn engine(value: &[u8]) -> Option<Engine<'_>> {
    match value {
        b"auto" => Some(Engine::Auto),
        b"cpu" => Some(Engine::Cpu),
        b"off" => Some(Engine::Off),
        b"dsa" => Some(Engine::Dsa(None)),
        _ => value.strip_prefix(b"dsa:").filter(|name| is_queue(name)).map(|name| Engine::Dsa(Some(name))),
    }
}

/// Returns true for the name of a work queue, such as `wq0.1`.
fn is_queue(name: &[u8]) -> bool {
    let Some(numbers) = name.strip_prefix(b"wq") else {
        return false;
    };
    let mut halves = numbers.splitn(2, |byte| *byte == b'.');
    let number = |half: Option<&[u8]>| {
        half.is_some_and(|half| (1..=3).contains(&half.len()) && half.iter().all(u8::is_ascii_digit))
    };
    number(halves.next()) && number(halves.next())
}

fn size(value: &[u8]) -> Option<usize> {
    let (digits, shift) = match value.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (value, 0),
    };
    number(digits)?.checked_mul(1 << shift)
}

/// Reads a decimal number.
pub(crate) fn number(digits: &[u8]) -> Option<usize> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_usize, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| usize::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_read() {
        let defaults = Options::default();
        for (text, options) in [
            ("", defaults),
            ("off", Options { engine: Engine::Off, ..defaults }),
            ("engine=off", Options { engine: Engine::Off, ..defaults }),
            ("engine=auto,", defaults),
            ("min=64k,engine=cpu", Options { engine: Engine::Cpu, min: 65536, ..defaults }),
            ("engine=dsa", Options { engine: Engine::Dsa(None), ..defaults }),
            ("engine=dsa:wq1.12", Options { engine: Engine::Dsa(Some(b"wq1.12")), ..defaults }),
            ("min=3M,stats=/a=b", Options { min: 3 << 20, stats: Some(b"/a=b"), ..defaults }),
            ("min=123456789", Options { min: 123_456_789, ..defaults }),
            ("min=1g", Options { min: 1 << 30, ..defaults }),
        ] {
            assert_eq!(Options::parse(text.as_bytes()), Ok(options), "{text}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        for (text, part) in [
            ("on", "on"),
            ("off=1", "off=1"),
            ("engine", "engine"),
            ("min=1M,engine=gpu", "engine=gpu"),
            ("engine=dsa:wq0", "engine=dsa:wq0"),
            ("engine=dsa:wq0.", "engine=dsa:wq0."),
            ("engine=dsa:wq0.1/../x", "engine=dsa:wq0.1/../x"),
            ("min=", "min="),
            ("min=M", "min=M"),
            ("min=4096", "min=4096"),
            ("min=99999999999999999999", "min=99999999999999999999"),
            ("min=99999999999999999G", "min=99999999999999999G"),
            ("stats=here", "stats=here"),
        ] {
            let error = Options::parse(text.as_bytes()).expect_err(text);
            assert_eq!(error.0, part.as_bytes());
        }
    }
}
