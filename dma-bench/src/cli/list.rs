//! The subcommand `list`: the engines of this machine.

use std::fmt::Write as _;

use dma::{Backend, Capabilities, Discovered, EngineInfo, NameFormat};
use serde_json::{Value, json};

use crate::output::Format;
use crate::output::{Grid, Look, Style};
use crate::units;

const HEADER: [&str; 7] = ["engine", "device", "capabilities", "longest copy", "segments", "depth", "queues"];

/// Returns the engines in a format other than JSON.
pub fn shown(found: &[Discovered], format: Format) -> String {
    if format == Format::Csv {
        let line = |d: &Discovered| {
            let (usable, rest, reason) = match &d.info {
                Ok(info) => ("true", row(info), String::new()),
                Err(e) => ("false", Default::default(), e.to_string()),
            };
            [&[d.name.to_string(), usable.to_owned(), reason], &rest[..]].concat()
        };
        let header = [&["engine", "usable", "reason"], &HEADER[1..]].concat();
        return Grid::texts(&header, found.iter().map(line)).csv();
    }
    let style = Style::of(format);
    let usable =
        found.iter().filter_map(|d| Some([&[d.name.to_string()], &row(d.info.as_ref().ok()?)[..]].concat()));
    let mut text = Grid::texts(&HEADER, usable).columns(&[0, 1, 3, 4, 5, 6]).print(style, Look::Wrapped);
    // Long texts follow below the table, because they would make it very wide.
    for Discovered { name, info, .. } in found {
        if let Ok(info) = info {
            let _ = write!(text, "\n{name} capabilities: {}", capabilities(info.capabilities).join(", "));
        }
    }
    for Discovered { name, info, .. } in found {
        if let Ok(EngineInfo { model: Some(model), .. }) = info {
            let _ = write!(text, "\n{name} is a model: {model}");
        }
    }
    for Discovered { name, info, .. } in found {
        if let Err(e) = info {
            let _ = write!(text, "\n{name} cannot be used: {e}");
        }
    }
    text + "\n"
}

/// Returns the columns after the name.
fn row(info: &EngineInfo) -> [String; 6] {
    let limits = &info.limits;
    [
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
pub fn options(backends: &[&dyn Backend]) -> String {
    let mut text = String::new();
    for backend in backends {
        let NameFormat { backend: name, device, options, .. } = backend.name_format();
        let _ = writeln!(text, "{name}: {}", backend.about());
        if let Some(device) = device {
            let _ = writeln!(text, "  {name}:DEVICE, {device}");
        }
        for option in options {
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
        let shown = |format| shown(&found, format);
        let (table, json) = (shown(Format::Table), json(&found));
        let (csv, markdown) = (shown(Format::Csv), shown(Format::Markdown));
        assert_eq!(
            csv::Reader::from_reader(csv.as_bytes()).records().map(Result::unwrap).count(),
            found.len()
        );
        assert!(markdown.contains("| cpu"), "{markdown}");
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed.as_array().map(Vec::len), Some(found.len()));
        for name in ["cpu", "sim", "doca", "ioat", "dsa", "rdma", "cuda"] {
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
            "auto: the CPU, and devices for the copies that they make at lower cost",
            "  hint=auto|hot|cold: the cache hint of queues that have none [default: auto]",
            "  doca:DEVICE, a PCI address, such as 03:00.0; without one, the first device that has DMA",
        ] {
            assert!(text.lines().any(|has| has == line), "{text}");
        }
    }
}
