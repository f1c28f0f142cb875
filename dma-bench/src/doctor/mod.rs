//! `doctor`: what stands between the user and each backend, and how to mend it.
//!
//! A backend's checks are a function from the machine to findings, in `BACKENDS`; a new backend is a line there.

mod devices;
mod libraries;
mod system;

use std::fmt::Write as _;

use serde::Serialize;

/// What a check of opening an engine begins with.
const OPENS: &str = "opens as";

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It may cost speed, or only matters at times.
    Warning,
    /// The backend cannot be used like this.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// How it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty if nothing is to be done.
    pub fix: String,
}

impl Finding {
    fn ok(what: impl Into<String>, found: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Ok, found: found.into(), fix: String::new() }
    }

    fn warning(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Warning, found: found.into(), fix: fix.into() }
    }

    fn bad(what: impl Into<String>, found: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Bad, found: found.into(), fix: fix.into() }
    }
}

/// What was found out about one backend.
#[derive(Clone, Debug, Serialize)]
pub struct Backend {
    /// Its name.
    pub name: &'static str,
    /// It drives a device, not the CPU.
    pub hardware: bool,
    /// It can be opened, now.
    pub usable: bool,
    /// What was looked at.
    pub findings: Vec<Finding>,
}

/// What was found out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The backends that were asked about.
    pub backends: Vec<Backend>,
    /// Backends were named: all of them are to be usable.
    named: bool,
}

/// A backend, and what to look at besides opening it.
struct Known {
    name: &'static str,
    hardware: bool,
    checks: fn() -> Vec<Finding>,
}

const BACKENDS: [Known; 4] = [
    Known { name: "cpu", hardware: false, checks: system::cpu },
    Known { name: "sim", hardware: false, checks: Vec::new },
    Known { name: "doca", hardware: true, checks: devices::doca },
    Known { name: "ioat", hardware: true, checks: devices::ioat },
];

/// Looks at the named backends, or at all.
///
/// # Errors
///
/// A name that is none.
pub fn examine(names: &[String]) -> Result<Report, String> {
    if let Some(unknown) = names.iter().find(|n| !BACKENDS.iter().any(|b| b.name == n.as_str())) {
        let all: Vec<_> = BACKENDS.iter().map(|b| b.name).collect();
        return Err(format!("no backend `{unknown}`; there are: {}", all.join(", ")));
    }
    let discovered = dma::discover();
    let backends = BACKENDS
        .iter()
        .filter(|b| names.is_empty() || names.iter().any(|n| n == b.name))
        .map(|known| {
            let of_it = |name: &str| {
                name == known.name || name.strip_prefix(known.name).is_some_and(|r| r.starts_with(':'))
            };
            let mut findings = (known.checks)();
            let mut usable = false;
            for found in discovered.iter().filter(|d| of_it(&d.name)) {
                match &found.info {
                    Ok(info) => {
                        usable |= !(known.hardware && info.model.is_some());
                        let model =
                            info.model.as_ref().map(|m| format!("; a model: {m}")).unwrap_or_default();
                        let text = format!("{}, version {}{model}", info.device, info.version);
                        findings.push(Finding::ok(format!("{OPENS} `{}`", found.name), text));
                    }
                    Err(e) => {
                        findings.push(Finding::bad(
                            format!("{OPENS} `{}`", found.name),
                            e.to_string(),
                            e.hint(),
                        ));
                    }
                }
            }
            Backend { name: known.name, hardware: known.hardware, usable, findings }
        })
        .collect();
    Ok(Report { backends, named: !names.is_empty() })
}

impl Report {
    /// Every backend that was named can be used; if none was, a hardware backend can.
    #[must_use]
    pub fn usable(&self) -> bool {
        if self.named {
            self.backends.iter().all(|b| b.usable)
        } else {
            self.backends.iter().any(|b| b.usable && b.hardware)
        }
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&self.backends).unwrap_or_default() + "\n"
    }

    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for backend in &self.backends {
            let opens = |f: &Finding| f.verdict == Verdict::Ok && f.what.starts_with(OPENS);
            let state = match (backend.usable, backend.findings.iter().any(opens)) {
                (true, _) => "usable",
                (false, true) => "NOT usable with a device; what opens is a model",
                (false, false) => "NOT usable",
            };
            let _ = writeln!(text, "{}: {state}", backend.name);
            for finding in &backend.findings {
                let mark = match finding.verdict {
                    Verdict::Ok => "ok  ",
                    Verdict::Warning => "warn",
                    Verdict::Bad => "BAD ",
                };
                let _ = writeln!(text, "  {mark} {}: {}", finding.what, finding.found.trim());
                // An error's text has its hint in it already.
                if !finding.fix.is_empty() && !finding.found.contains(&finding.fix) {
                    let _ = writeln!(text, "       fix: {}", finding.fix);
                }
            }
        }
        if !self.named && !self.usable() {
            text.push_str("No hardware backend can be used on this machine; `cpu` always can.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_bad_has_a_fix() {
        let report = examine(&[]).unwrap();
        assert_eq!(report.backends.len(), 4);
        for backend in &report.backends {
            assert!(!backend.findings.is_empty(), "{}", backend.name);
            for finding in &backend.findings {
                assert!(finding.verdict == Verdict::Ok || !finding.fix.is_empty(), "{finding:?}");
                let shown = finding.fix.is_empty() || report.text().contains(&finding.fix);
                assert!(shown && finding.fix != finding.found, "{finding:?}");
            }
            if !backend.usable {
                assert!(
                    backend.findings.iter().any(|f| f.verdict == Verdict::Bad),
                    "it says why: {backend:?}"
                );
            }
        }
        assert!(report.text().contains("cpu: usable"));
        serde_json::from_str::<serde_json::Value>(&report.json()).unwrap();
    }

    #[test]
    fn the_verdict_is_about_what_was_asked() {
        assert!(examine(&["cpu".to_owned()]).unwrap().usable());
        assert!(examine(&["cpo".to_owned()]).unwrap_err().contains("there are: cpu, sim, doca, ioat"));
    }
}
