//! The subcommand `doctor`: prints what prevents the use of each backend, and the remedies, as the backends
//! report them.

use std::fmt::Write as _;

use dma::{Diagnosis, Finding, Verdict};
use serde_json::{Value, json};

use crate::output::Format;
use crate::output::{Entry, Grid, Look, Style};

/// Findings about backends.
#[derive(Clone, Debug)]
pub struct DoctorReport {
    /// The backends that were examined.
    pub backends: Vec<Diagnosis>,
    /// True if the user named backends: then all of them must be usable.
    named: bool,
}

/// Examines the named backends, or all if none is named.
pub fn examine(names: &[String]) -> Result<DoctorReport, String> {
    let wanted: Vec<_> = names.iter().map(String::as_str).collect();
    let backends = dma::doctor(&wanted).map_err(|e| e.to_string())?;
    Ok(DoctorReport { backends, named: !names.is_empty() })
}

impl DoctorReport {
    /// Returns true if every named backend can be used. Always true if none was named: a machine need not
    /// have the hardware of any backend.
    pub fn usable(&self) -> bool {
        !self.named || self.backends.iter().all(|b| b.is_usable)
    }

    /// Returns the findings as JSON.
    pub fn json(&self) -> String {
        let finding = |f: &Finding| -> Value {
            json!({ "what": f.what, "verdict": word(f.verdict), "found": f.found, "fix": f.fix })
        };
        let backend = |b: &Diagnosis| -> Value {
            let findings: Vec<_> = b.findings.iter().map(finding).collect();
            json!({ "name": b.name, "hardware": b.is_hardware, "usable": b.is_usable, "findings": findings })
        };
        let backends: Vec<_> = self.backends.iter().map(backend).collect();
        format!("{:#}\n", Value::from(backends))
    }

    /// Returns the findings in a format other than JSON.
    pub fn shown(&self, format: Format) -> String {
        let row = |b: &Diagnosis, f: &Finding| {
            [b.name, &f.what, word(f.verdict), &f.found, &f.fix].into_iter().map(Entry::text).collect()
        };
        let rows = self.backends.iter().flat_map(|b| b.findings.iter().map(move |f| row(b, f)));
        let grid = Grid::with(&["backend", "what", "verdict", "found", "fix"], rows);
        match format {
            Format::Markdown => grid.print(Style::Markdown, Look::Wrapped),
            Format::Csv => grid.csv(),
            _ => self.text(),
        }
    }

    /// Returns the findings as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for backend in &self.backends {
            let mut fixes: Vec<&str> = Vec::new();
            let state = match (backend.is_usable, backend.opens) {
                (true, _) => "usable",
                (false, true) => "NOT usable with a device; only a model opens",
                (false, false) => "NOT usable",
            };
            let _ = writeln!(text, "{}: {state}", backend.name);
            for (at, finding) in backend.findings.iter().enumerate() {
                let mark = match finding.verdict {
                    Verdict::Ok => "ok  ",
                    Verdict::Warning => "warn",
                    Verdict::Bad => "BAD ",
                };
                let found = without_repetition(finding, &backend.findings[..at]);
                let _ = writeln!(text, "  {mark} {}: {found}", finding.what);
                let is_new = !fixes.contains(&finding.fix.as_str()) && !found.contains(&finding.fix);
                if is_new && !finding.fix.is_empty() {
                    let _ = writeln!(text, "       fix: {}", finding.fix);
                    fixes.push(&finding.fix);
                }
            }
        }
        if !self.named && !self.backends.iter().any(|b| b.is_usable && b.is_hardware) {
            text.push_str("No hardware backend can be used on this machine; `cpu` always can.\n");
        }
        text
    }
}

/// Returns the text of a finding. If most of it repeats the text of an earlier finding, or says again which
/// library is missing, the text refers to that finding instead.
fn without_repetition(finding: &Finding, earlier: &[Finding]) -> String {
    // The text of an error contains its remedy.
    let found = finding.found.trim();
    let own = found.strip_suffix(&finding.fix).map_or(found, |own| own.trim_end_matches([';', ' ']));
    let is_long = |other: &Finding| other.found.len() > 40 && 2 * other.found.len() > own.len();
    let most = |other: &&Finding| is_long(other) && own.contains(other.found.trim());
    let missing = |other: &Finding| {
        let library = other.what.strip_prefix("library ").filter(|_| other.verdict == Verdict::Bad)?;
        let (before, _) = own.split_once(&format!("no {library}"))?;
        Some(format!("{before}see `{}` above", other.what))
    };
    // The library's own lines, such as `libraries and symbols`, are not openings.
    if finding.what.starts_with("opens as")
        && let Some(text) = earlier.iter().find_map(missing)
    {
        return text;
    }
    match earlier.iter().find(most) {
        Some(other) => own.replace(other.found.trim(), &format!("see `{}` above", other.what)),
        None => found.to_owned(),
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warning => "warning",
        Verdict::Bad => "bad",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_finding_has_a_fix() {
        let report = examine(&[]).unwrap();
        let names: Vec<_> = report.backends.iter().map(|backend| backend.name).collect();
        assert_eq!(names, ["cpu", "sim", "doca", "ioat", "dsa", "rdma", "cuda"]);
        for backend in &report.backends {
            assert!(!backend.findings.is_empty(), "{}", backend.name);
            for finding in &backend.findings {
                assert!(finding.verdict == Verdict::Ok || !finding.fix.is_empty(), "{finding:?}");
                let shown = finding.fix.is_empty() || report.text().contains(&finding.fix);
                assert!(shown && finding.fix != finding.found, "{finding:?}");
            }
            if !backend.is_usable {
                assert!(
                    backend.findings.iter().any(|f| f.verdict == Verdict::Bad),
                    "the finding has a reason: {backend:?}"
                );
            }
        }
        assert!(report.text().contains("cpu: usable"));
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json[0]["name"], &json[0]["hardware"]), (&json!("cpu"), &json!(false)));
    }

    #[test]
    fn a_missing_library_is_reported_once() {
        let library = Finding::bad("library libx.so", "not found in /a, /b", "install x");
        let opening = Finding::bad(
            "opens as `x`",
            "open engine on x: SDK missing: no libx.so.1 in /a, /b; set X",
            "set X",
        );
        let other = Finding::bad("opens as `x`", "open engine on x: not found: no device", "buy one");
        let earlier = [library];
        let shown = without_repetition(&opening, &earlier);
        assert_eq!(shown, "open engine on x: SDK missing: see `library libx.so` above");
        assert_eq!(without_repetition(&other, &earlier), other.found);
    }

    #[test]
    fn the_verdict_is_about_what_was_asked() {
        assert!(examine(&[]).unwrap().usable(), "nothing was asked for");
        assert!(examine(&["cpu".to_owned()]).unwrap().usable());
        let auto = examine(&["auto".to_owned()]).unwrap();
        assert_eq!(auto.backends[0].name, "cpu");
        let error = examine(&["cpo".to_owned()]).unwrap_err();
        assert!(
            error.contains("did you mean `cpu`?") && error.contains("cpu, sim, doca, ioat, dsa, rdma, cuda"),
            "{error}"
        );
    }
}
