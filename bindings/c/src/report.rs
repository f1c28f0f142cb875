//! Reports: lists of the engines of this machine, and diagnoses of backends.
#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{CString, c_char};

use dma::{Error, ErrorKind, Verdict};

use crate::arguments::{Out, OutStruct, text};
use crate::error::{c_string, guard};
use crate::handles::{Exclusive, Table, mark};
use crate::header::*;

/// One entry of a report, with its name, subject, text and remedy as C strings.
#[derive(Debug)]
struct Entry {
    strings: [CString; 4],
    verdict: dma_verdict,
    usable: bool,
}

static REPORTS: Table<Vec<Entry>> = Table::new("report", mark::REPORT);

fn discover() -> Vec<Entry> {
    let entry = |found: dma::Discovered| {
        let name = found.name.to_string();
        match found.info {
            Ok(info) => {
                let model = info.model.map(|model| format!("; a model: {model}")).unwrap_or_default();
                let text = format!("version {}{model}", info.version);
                let strings = [&name, &info.device, &text, ""].map(c_string);
                Entry { strings, verdict: DMA_VERDICT_OK, usable: true }
            }
            Err(e) => {
                let strings =
                    [&name, found.name.device().unwrap_or(""), &e.to_string(), e.hint()].map(c_string);
                Entry { strings, verdict: DMA_VERDICT_BAD, usable: false }
            }
        }
    };
    dma::discover().into_iter().map(entry).collect()
}

fn diagnose(backend: Option<&str>) -> dma::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for diagnosis in dma::doctor(backend.as_slice())? {
        entries.extend(diagnosis.findings.into_iter().map(|finding| Entry {
            strings: [diagnosis.name, &finding.what, &finding.found, &finding.fix].map(c_string),
            verdict: match finding.verdict {
                Verdict::Ok => DMA_VERDICT_OK,
                Verdict::Warning => DMA_VERDICT_WARNING,
                Verdict::Bad => DMA_VERDICT_BAD,
            },
            usable: diagnosis.is_usable,
        }));
    }
    Ok(entries)
}

#[rustfmt::skip]
pub(crate) mod calls {
    use super::*;
    use crate::header::c_calls;

    c_calls! {
        fn dma_discover(report: *mut dma_report) {
            // SAFETY: the header requires that `report` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("report", report) }?;
            out.write(dma_report { id: REPORTS.insert(discover())? });
            Ok(())
        }

        fn dma_doctor(backend: *const c_char, report: *mut dma_report) {
            // SAFETY: the header requires that `report` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("report", report) }?;
            let named = if backend.is_null() {
                None
            } else {
                // SAFETY: the header requires that `backend` is a C string that does not change during
                // the call.
                Some(unsafe { text("backend", backend) }?)
            };
            out.write(dma_report { id: REPORTS.insert(diagnose(named)?)? });
            Ok(())
        }

        fn dma_report_count(report: dma_report, count: *mut usize) {
            // SAFETY: the header requires that `count` is NULL or leads to a place that this call may
            // write.
            let out = unsafe { Out::new("count", count) }?;
            out.write(REPORTS.get(report.id)?.len());
            Ok(())
        }

        fn dma_report_read(report: dma_report, index: usize, entry: *mut dma_report_entry) {
            // SAFETY: the header requires that `entry` is NULL or leads to a struct that begins with its
            // size and that this call may write.
            let out = unsafe { OutStruct::new("entry", entry) }?;
            let entries = REPORTS.get(report.id)?;
            let Some(Entry { strings, verdict, usable }) = entries.get(index) else {
                let message = format!("entry {index} of a report with {}", entries.len());
                return Err(Error::new(ErrorKind::OutOfRange, message)
                    .with_numbers(index as u64, entries.len() as u64));
            };
            let [name, subject, text, remedy] = strings.each_ref().map(|string| string.as_ptr());
            let (verdict, usable) = (*verdict, (*usable).into());
            let size = size_of::<dma_report_entry>();
            out.write(dma_report_entry { size, name, subject, text, remedy, verdict, usable });
            Ok(())
        }

        fn dma_report_close(report: dma_report) {
            drop(REPORTS.to_close(report.id)?.map(Exclusive::remove));
            Ok(())
        }
    }
}
