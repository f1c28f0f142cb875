//! Parses sizes, ranges, rates and percentages of the user, and formats figures for the user.

use std::fmt::Write as _;

/// Parses a size in bytes in the format of engine options: `64`, `4K`, `2MiB`, `1g`. K is 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    match dma::contract::parse_size(text) {
        Some(size) if size < MAX_NUMBER as u64 => Ok(size),
        _ if text.is_empty() => Err("the value is empty; write a number, such as 64 or 4K".to_owned()),
        None if !text.bytes().all(|b| b.is_ascii_digit()) => {
            Err(format!("`{text}` is not a size; write 64, 4K, 2M or 1G (a K is 1024)"))
        }
        _ => Err(format!("`{text}` is too great; the greatest number is 16G")),
    }
}

pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|n: &f64| n.is_finite());
    number.ok_or_else(|| format!("`{text}` is not a number of seconds; write 5, 0.5 or 1e-3"))
}

/// Parses a count with an optional decimal suffix: `1000`, `100k`, `2M`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let whole = rate(text).ok().filter(|n| n.fract() == 0.0 && *n < MAX_NUMBER);
    whole.map(|n| n as u64).ok_or_else(|| format!("`{text}` is not a count; write 1000, 100k or 2M"))
}

/// Parsed numbers must be smaller than this.
const MAX_NUMBER: f64 = 1e18;

/// Parses a number with an optional decimal suffix: `1000`, `100k`, `2.5M`.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let fail = || format!("`{text}` is not a rate; write operations a second, such as 1000, 100k or 2.5M");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        _ => return Err(fail()),
    };
    decimal(number).map(|n| n * unit).filter(|n| *n > 0.0).ok_or_else(fail)
}

/// Parses a number without a sign or an exponent.
fn decimal(number: &str) -> Option<f64> {
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    number.parse().ok().filter(|n: &f64| plain && n.is_finite())
}

/// Parses a list of sizes or counts: `64`, `64,4K,1M`, `64..2M` (factor 2), `64..2M*4` (factor 4). The end
/// of a range is included.
pub(crate) fn list(text: &str) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let Some((from, rest)) = part.split_once("..") else {
            all.push(size(part)?);
            continue;
        };
        let (to, factor) = match rest.split_once('*') {
            Some((to, factor)) => {
                let factor: u64 =
                    factor.parse().ok().filter(|f| (2..=1024).contains(f)).ok_or_else(|| {
                        format!("`*{factor}` in `{part}`: the factor is a number from 2 to 1024")
                    })?;
                (to, factor)
            }
            None => (rest, 2),
        };
        if from.is_empty() || to.is_empty() {
            return Err(format!("the range `{part}` lacks an end; write both, such as 64..2M"));
        }
        let (from, to) = (size(from)?, size(to)?);
        if from == 0 || from > to {
            return Err(format!(
                "the range `{part}` has nothing in it; write the smaller end first, and not 0"
            ));
        }
        let mut at = from;
        while at < to {
            all.push(at);
            at = at.saturating_mul(factor);
        }
        all.push(to);
    }
    if all.contains(&0) {
        return Err(format!("`{text}` contains 0; the minimum is 1"));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Parses a percentage, such as `5%` or `5`, and returns it as a fraction.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent / 100.0),
        Ok(percent) if percent < 0.0 => {
            Err(format!("`{text}` is less than 0; write a percentage of 0 or more, such as 5%"))
        }
        _ => Err(format!("`{text}` is not a percentage; write 5% or 2.5%")),
    }
}

/// Parses a NUMA node, such as `0`, or the nodes of sources and of destinations, such as `0,1`.
pub(crate) fn nodes(text: &str) -> Result<(u32, Option<u32>), String> {
    let read = |part: &str| {
        part.parse()
            .map_err(|_| format!("`{text}` names no NUMA node; write 0, or 0,1 for sources and destinations"))
    };
    match text.split_once(',') {
        None => Ok((read(text)?, None)),
        Some((src, dst)) => Ok((read(src)?, Some(read(dst)?))),
    }
}

/// Parses a chance, such as `1%` or `1`, and returns it as a fraction.
pub(crate) fn chance(text: &str) -> Result<f64, String> {
    let chance = percent(text)?;
    if chance <= 1.0 { Ok(chance) } else { Err(format!("`{text}` is not a chance; write 0% to 100%")) }
}

/// Returns a size in bytes, in the largest unit that divides it.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KiB", n >> 10),
        n => format!("{n} B"),
    }
}

/// Returns a number with three significant digits. Only very small or very large numbers have an exponent.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        v if !v.is_finite() => "-".to_owned(),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.9995 => format!("{value:.2}"),
        v if v >= 0.000_5 => format!("{value:.3}"),
        v if v >= 0.000_1 => format!("{value:.5}"),
        0.0 => "0.0".to_owned(),
        _ => format!("{value:.1e}"),
    }
}

/// Returns a number without unneeded digits.
pub(crate) fn plain(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e16 { format!("{value}") } else { format!("{value:?}") }
}

/// Returns a count a second, such as `12.3 M/s`.
pub(crate) fn per_second(value: f64) -> String {
    in_unit(value, ["G/s", "M/s", "k/s", "/s"])
}

fn in_unit(value: f64, [giga, mega, kilo, one]: [&str; 4]) -> String {
    match value {
        v if v >= 1e9 => format!("{} {giga}", digits(v / 1e9)),
        v if v >= 1e6 => format!("{} {mega}", digits(v / 1e6)),
        v if v >= 1e3 => format!("{} {kilo}", digits(v / 1e3)),
        v => format!("{} {one}", digits(v)),
    }
}

/// Returns bytes a second in GB/s (10^9 bytes).
pub(crate) fn gigabytes(value: f64) -> String {
    digits(value / 1e9)
}

/// Returns a time, which is given in nanoseconds, with a suitable unit.
pub(crate) fn nanos(ns: f64) -> String {
    in_unit(ns, ["s", "ms", "us", "ns"])
}

/// Returns a command line, quoted for a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let plain =
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:=,+%@".contains(&b));
        if plain {
            line.push_str(word);
        } else {
            let _ = write!(line, "'{}'", word.replace('\'', "'\\''"));
        }
    }
    line
}

/// Replaces control characters, and other characters that XML forbids, so that terminals and pages can show
/// the text.
pub(crate) fn printable(text: &str) -> String {
    let odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        assert_eq!(size("64"), Ok(64));
        assert_eq!(size("4K"), Ok(4096));
        assert_eq!(size("2m"), Ok(2 << 20));
        assert_eq!((size("64k"), size("1gib")), (Ok(65_536), Ok(1 << 30)));
        for bad in ["K", "-1", "4P", "1.5K", "1e3", "nan", "4T"] {
            assert!(size(bad).unwrap_err().contains("not a size"), "{bad}");
        }
        assert!(size("").unwrap_err().contains("the value is empty"));
        assert!(size("9999999999999999999").unwrap_err().contains("too great"));
        assert!(size("99999999999999999999").unwrap_err().contains("too great"));
        assert_eq!((count("20"), count("2k"), count("1.5M")), (Ok(20), Ok(2000), Ok(1_500_000)));
        assert!(
            ["", "0", "1.5", "-1", "1e3", "9e99"]
                .iter()
                .all(|bad| count(bad).unwrap_err().contains("not a count"))
        );
        assert_eq!((seconds("0.5"), seconds("1e-3"), seconds("-1")), (Ok(0.5), Ok(1e-3), Ok(-1.0)));
        assert!(
            ["", "5s", "nan", "inf"]
                .iter()
                .all(|bad| seconds(bad).unwrap_err().contains("not a number of seconds"))
        );
        assert_eq!((chance("100%"), chance("1")), (Ok(1.0), Ok(0.01)));
        assert!(chance("101%").unwrap_err().contains("0% to 100%"));
    }

    #[test]
    fn ranges_have_both_ends() {
        assert_eq!(list("64..512"), Ok(vec![64, 128, 256, 512]));
        assert_eq!(list("64..500"), Ok(vec![64, 128, 256, 500]));
        assert_eq!(list("1,64..1K*4"), Ok(vec![1, 64, 256, 1024]));
        assert_eq!(list("8,8,4"), Ok(vec![4, 8]));
        assert!(list("2M..64").unwrap_err().contains("smaller end first"));
        assert!(list("0..64").is_err());
        assert!(list("0").unwrap_err().contains("contains 0"));
        assert!(list("1..8*1").unwrap_err().contains("factor"));
        assert!(list("1..").unwrap_err().contains("lacks an end"));
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(bytes(1536), "1536 B");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(digits(12.345), "12.3");
        assert_eq!(digits(0.01234), "0.012");
        assert_eq!(digits(1234.5), "1234");
        assert_eq!(digits(0.000_12), "0.00012");
        assert_eq!(digits(-0.000_049), "-4.9e-5");
        assert_eq!(gigabytes(12.0), "1.2e-8");
        assert_eq!((digits(0.0), digits(-0.0)), ("0.0".to_owned(), "0.0".to_owned()));
        assert_eq!((plain(3.0), plain(0.25), plain(1e300)), ("3".into(), "0.25".into(), "1e300".into()));
        assert_eq!(per_second(12_345_678.0), "12.3 M/s");
        assert_eq!(nanos(1_880.0), "1.88 us");
        assert_eq!(percent("5%"), Ok(0.05));
        assert!(percent("much").is_err());
        assert_eq!(rate("2.5M"), Ok(2.5e6));
        assert_eq!((rate("0.5"), rate("0.01k")), (Ok(0.5), Ok(10.0)));
        for bad in ["0", "-1", "1e3", "inf", "", "k"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn command_lines_can_be_pasted() {
        let words = ["dma-bench", "run", "-o", "64..2M*4", "it's"].map(str::to_owned);
        assert_eq!(command_line(&words), "dma-bench run -o '64..2M*4' 'it'\\''s'");
    }
}
