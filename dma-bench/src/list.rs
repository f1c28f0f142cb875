//! The subcommand `list`: the engines of this machine.

use std::fmt::Write as _;

use dma::{Backend, Capabilities, Discovered, EngineInfo};
use serde_json::{Value, json};

use crate::cli::Format;
use crate::output::Style;
use crate::units;

const HEADER: [&str; 7] = ["engine", "device", "capabilities", "longest copy", "segments", "depth", "queues"];

/// Returns the engines in a format other than JSON.
///
/// # Errors
///
/// Never fails in practice, because the lines are written to memory.
pub fn shown(found: &[Discovered], format: Format) -> Result<String, csv::Error> {
    if format == Format::Csv {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["engine", "usable", "reason"].iter().chain(&HEADER[1..]))?;
        for Discovered { name, info, .. } in found {
            let (usable, reason) = match info {
                Ok(_) => ("true", String::new()),
                Err(e) => ("false", e.to_string()),
            };
            let rest = info.as_ref().map_or_else(|_| Default::default(), |info| row(name.to_string(), info));
            let name = name.to_string();
            let first = [name.as_str(), usable, &reason];
            writer.write_record(first.into_iter().chain(rest[1..].iter().map(String::as_str)))?;
        }
        let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let style = if format == Format::Markdown { Style::Markdown } else { Style::of_stdout() };
    let mut table = style.table(&HEADER);
    let (mut models, mut unusable) = (String::new(), String::new());
    for Discovered { name, info, .. } in found {
        match info {
            Ok(info) => {
                table.add_row(row(name.to_string(), info).map(|text| style.text(&text)));
                if let Some(model) = &info.model {
                    let _ = write!(models, "\n{name} is a model: {model}");
                }
            }
            // The reason goes below the table, which it would make very wide.
            Err(e) => {
                let _ = write!(unusable, "\n{name} cannot be used: {e}");
            }
        }
    }
    Ok(format!("{table}\n{models}{unusable}\n"))
}

fn row(name: String, info: &EngineInfo) -> [String; 7] {
    let limits = &info.limits;
    [
        name,
        info.device.clone(),
        capabilities(info.capabilities).join(" "),
        if limits.max_transfer == u64::MAX { "any".to_owned() } else { units::bytes(limits.max_transfer) },
        limits.max_segments.to_string(),
        limits.max_queue_depth.to_string(),
        limits.max_queues.map_or("any".to_owned(), |n| n.to_string()),
    ]
}

/// Lists the capabilities of an engine, copies first.
fn capabilities(of: Capabilities) -> Vec<String> {
    let others = of.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-"));
    std::iter::once("copy".to_owned()).chain(others).collect()
}

/// Returns the engines as JSON: a list with an object for each.
#[must_use]
pub fn json(found: &[Discovered]) -> String {
    let engine = |d: &Discovered| -> Value {
        match &d.info {
            Ok(info) => json!({
                "name": d.name.to_string(),
                "usable": true,
                "backend": info.backend,
                "device": info.device,
                "version": info.version,
                "model": info.model,
                "capabilities": capabilities(info.capabilities),
                "limits": {
                    "max_transfer": info.limits.max_transfer,
                    "max_segments": info.limits.max_segments,
                    "max_queue_depth": info.limits.max_queue_depth,
                    "default_queue_depth": info.limits.default_queue_depth,
                    "max_queues": info.limits.max_queues,
                    "register_alignment": info.limits.register_alignment,
                    "preferred_alignment": info.limits.preferred_alignment,
                },
            }),
            Err(e) => json!({
                "name": d.name.to_string(),
                "usable": false,
                "kind": e.kind().as_str(),
                "reason": e.to_string(),
                "fix": e.hint(),
            }),
        }
    };
    let all: Vec<Value> = found.iter().map(engine).collect();
    format!("{:#}\n", Value::from(all))
}

/// Returns the names of backends, with their devices and options.
#[must_use]
pub fn options(backends: &[&dyn Backend]) -> String {
    let mut text = String::new();
    for backend in backends {
        let _ = writeln!(text, "{}: {}", backend.name(), backend.about());
        if let Some(device) = backend.device() {
            let _ = writeln!(text, "  {}:DEVICE, {device}", backend.name());
        }
        for option in backend.options() {
            let (key, value) = (option.key, option.value);
            let _ = writeln!(text, "  {key}={value}: {} [default: {}]", option.about, option.default);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_engine() {
        let found = dma::discover();
        let shown = |format| shown(&found, format).unwrap();
        let (table, json) = (shown(Format::Table), json(&found));
        let (csv, markdown) = (shown(Format::Csv), shown(Format::Markdown));
        assert_eq!(
            csv::Reader::from_reader(csv.as_bytes()).records().map(Result::unwrap).count(),
            found.len()
        );
        assert!(markdown.contains("| cpu"), "{markdown}");
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed.as_array().map(Vec::len), Some(found.len()));
        for name in ["cpu", "sim", "doca", "ioat", "dsa", "rdma"] {
            assert!(table.contains(name), "{table}");
            assert!(parsed.as_array().unwrap().iter().any(|e| e["name"].as_str().unwrap().starts_with(name)));
        }
        let cpu = parsed.as_array().unwrap().iter().find(|e| e["name"] == "cpu").unwrap();
        let can = cpu["capabilities"].as_array().unwrap();
        assert!(can.contains(&json!("copy")) && can.contains(&json!("fill")), "{can:?}");
    }

    #[test]
    fn options_are_listed_as_they_are_written() {
        let text = options(&dma::backends());
        for line in [
            "auto: the CPU, and devices for the copies that are cheaper there",
            "  hint=auto|hot|cold: the cache hint of queues that have none [default: auto]",
            "  doca:DEVICE, a PCI address, such as 03:00.0; without one, the first device that has DMA",
        ] {
            assert!(text.lines().any(|has| has == line), "{text}");
        }
    }
}
