//! What `copy_file` and `dma_copy` have in common as commands: sizes, kinds of files, the progress bar.

use std::fs::Metadata;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Reads a number of bytes within `range`, or one of K, M or G (also KiB, MiB, GiB; either case). The message names `allowed`, the range as
/// people write it.
pub(crate) fn parse_size(text: &str, range: RangeInclusive<u64>, allowed: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kib" => Some(10),
        "m" | "mib" => Some(20),
        "g" | "gib" => Some(30),
        _ => None,
    };
    let bytes = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| {
        format!("`{text}` is no size here; give {allowed}: bytes, or a number with K, M or G, such as 256K")
    })
}

/// What `metadata` is of, if not of a regular file.
pub(crate) fn not_a_file(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () => Some("a device"),
    }
}

/// A bar on the terminal for `len` bytes; hidden where there is none, or if `quiet`.
pub(crate) fn progress_bar(len: u64, message: &'static str, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr());
    if bar.is_hidden() {
        return bar;
    }
    let template = "{msg:9} {decimal_bytes:>9} of {decimal_total_bytes} {wide_bar} {decimal_bytes_per_sec:>11}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(message);
    // Redrawn even while a device or disk is stuck.
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
