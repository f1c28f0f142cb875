//! `list`: the engines of this machine.

use std::fmt::Write as _;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use dma::{Capabilities, Discovered, EngineInfo};
use serde_json::{Value, json};

use crate::units;

/// As a table.
#[must_use]
pub fn table(found: &[Discovered]) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic).set_header([
        "engine",
        "device",
        "capabilities",
        "longest copy",
        "segments",
        "depth",
        "queues",
    ]);
    let (mut models, mut unusable) = (String::new(), String::new());
    for Discovered { name, info, .. } in found {
        match info {
            Ok(info) => {
                table.add_row(row(name, info));
                if let Some(model) = &info.model {
                    let _ = write!(models, "\n{name} is a model: {model}");
                }
            }
            // A sentence, not a row: it would make the table as wide as it is long.
            Err(e) => {
                let _ = write!(unusable, "\n{name} cannot be used: {e}");
            }
        }
    }
    format!("{table}{models}{unusable}")
}

fn row(name: &str, info: &EngineInfo) -> [String; 7] {
    let limits = &info.limits;
    [
        name.to_owned(),
        info.device.clone(),
        capabilities(info.capabilities).join(" "),
        if limits.max_transfer == u64::MAX { "any".to_owned() } else { units::bytes(limits.max_transfer) },
        limits.max_segments.to_string(),
        limits.max_queue_depth.to_string(),
        limits.max_queues.map_or("any".to_owned(), |n| n.to_string()),
    ]
}

/// What an engine can do: to copy, as each can, and what else.
fn capabilities(of: Capabilities) -> Vec<String> {
    let others = of.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-"));
    std::iter::once("copy".to_owned()).chain(others).collect()
}

/// As JSON: a list with an object for each engine.
#[must_use]
pub fn json(found: &[Discovered]) -> String {
    let engine = |d: &Discovered| -> Value {
        match &d.info {
            Ok(info) => json!({
                "name": d.name,
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
                "name": d.name,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_engine() {
        let found = dma::discover();
        let (table, json) = (table(&found), json(&found));
        let parsed: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(parsed.as_array().map(Vec::len), Some(found.len()));
        for name in ["cpu", "sim", "doca", "ioat"] {
            assert!(table.contains(name), "{table}");
            assert!(parsed.as_array().unwrap().iter().any(|e| e["name"].as_str().unwrap().starts_with(name)));
        }
        let cpu = parsed.as_array().unwrap().iter().find(|e| e["name"] == "cpu").unwrap();
        let can = cpu["capabilities"].as_array().unwrap();
        assert!(can.contains(&json!("copy")) && can.contains(&json!("fill")), "{can:?}");
    }
}
