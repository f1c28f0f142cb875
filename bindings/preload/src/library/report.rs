//! The report, which the library writes when the process ends, if the options name a file for it.

use core::ffi::CStr;
use core::fmt::Write;

use super::system::{self, File, Mode};
use super::text::{Stored, Text};
use super::{CELLS, FIRST_CLASS, Operation};
use crate::learner::{Cell, Method};

/// Path of the report's file. Empty without a report.
pub(super) static PATH: Stored<4096> = Stored::new();
/// The options in force, and the work queue.
pub(super) static SETTINGS: Stored<64> = Stored::new();

/// Writes the report, if it has a path.
pub(super) fn write() {
    let (path, settings) = (PATH.get(), SETTINGS.get());
    let Some(path) = CStr::from_bytes_until_nul(&path).ok().filter(|path| !path.is_empty()) else {
        return;
    };
    let mut text = Text::<8192>::new();
    _ = write!(text, "libdma_memcpy: process {}, ", system::process_id());
    text.push(CStr::from_bytes_until_nul(&settings).unwrap_or_default().to_bytes());
    text.push(b"\n");
    for operation in Operation::ALL {
        describe(&mut text, operation);
    }
    if let Some(file) = File::open(path, Mode::Append) {
        file.write(text.bytes());
    }
}

fn describe(text: &mut Text<8192>, operation: Operation) {
    let mut any = false;
    for (class, cell) in CELLS[operation as usize].iter().enumerate() {
        if Method::ALL.iter().all(|method| cell.done(*method).0 == 0) {
            continue;
        }
        any = true;
        let from = 1_usize << (FIRST_CLASS as usize + class - 10);
        _ = write!(text, "  {} from {from} KiB:", operation.name());
        for method in Method::ALL {
            describe_method(text, cell, method);
        }
        _ = writeln!(text);
    }
    if !any {
        _ = writeln!(text, "  {}: no call was taken", operation.name());
    }
}

fn describe_method(text: &mut Text<8192>, cell: &Cell, method: Method) {
    let (calls, bytes) = cell.done(method);
    if calls == 0 {
        return;
    }
    let name = match method {
        Method::Library => "the C library",
        Method::Stream => "cpu",
        Method::Device => "dsa",
    };
    let chosen = if cell.cost(method).is_some() && cell.chosen() == method { ", chosen" } else { "" };
    _ = write!(text, " {name} {calls} calls, {} MiB", bytes >> 20);
    if let Some(cost) = cell.cost(method) {
        _ = write!(text, ", {} ticks/KiB", (cost * 1024.0) as u64);
    }
    _ = write!(text, "{chosen};");
}
