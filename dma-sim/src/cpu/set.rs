//! Options by name, as in `cpu:threads=2,hint=cold`.

use dma_core::{CacheHint, Error, ErrorKind, Result};

use super::{BACKEND, CpuOptions};

impl CpuOptions {
    /// Sets the option `key` from text:
    ///
    /// | key | value |
    /// |---|---|
    /// | `threads` | [`threads`](Self::threads): a number |
    /// | `inline` | [`inline_limit`](Self::inline_limit): a number of bytes |
    /// | `hint` | [`hint`](Self::hint): `auto`, `hot` or `cold` |
    ///
    /// Whether numbers are in range is checked when the engine is opened.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for another key or a value that is none of its kind, saying what would be right.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let bad = |message: String, hint: &'static str| {
            Error::new(ErrorKind::InvalidArgument, message).with_backend(BACKEND).with_hint(hint)
        };
        let number = || {
            value.parse().map_err(|_| {
                bad(format!("{key} is `{value}`, which is no number"), "give a whole number, such as 2")
            })
        };
        match key {
            "threads" => self.threads = Some(number()?),
            "inline" => self.inline_limit = number()?,
            "hint" => {
                self.hint = match value {
                    "auto" => CacheHint::Auto,
                    "hot" => CacheHint::Hot,
                    "cold" => CacheHint::Cold,
                    _ => return Err(bad(format!("hint is `{value}`"), "give auto, hot or cold")),
                }
            }
            _ => return Err(bad(format!("there is no option `{key}`"), "there are: threads, inline, hint")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_documented_option_is_set() {
        let mut options = CpuOptions::default();
        for (key, value) in [("threads", "3"), ("inline", "1024"), ("hint", "cold")] {
            options.set(key, value).unwrap();
        }
        assert_eq!(
            options,
            CpuOptions::new().with_threads(3).with_inline_limit(1024).with_hint(CacheHint::Cold)
        );
    }

    #[test]
    fn anything_else_says_what_would_be_right() {
        for (key, value, says) in [
            ("threads", "-1", "whole number"),
            ("hint", "warm", "auto, hot or cold"),
            ("x", "1", "threads, inline, hint"),
        ] {
            let e = CpuOptions::default().set(key, value).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(says), "{e}");
        }
    }
}
