//! The JSON Schema of results, compared with real output.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(words: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_dma-bench")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    output
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

/// The schema file equals the program's output; `UPDATE=1 cargo test -p dma-bench --test schema` writes
/// it.
#[test]
fn the_schema_in_the_repository_is_the_programs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/results.schema.json");
    let printed = String::from_utf8(bench(&["schema"]).stdout).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &printed).unwrap();
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == printed,
        "results.schema.json differs from the output of `dma-bench schema`; run the test with UPDATE=1 to update it"
    );
}

/// Validates a value against the subset of JSON Schema that is used here. Panics if the schema has
/// other keywords.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str, errors: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        return assert_eq!(schema, &Value::Bool(true), "a schema at {at}");
    };
    let fits = |schema: &Value| {
        let mut errors = Vec::new();
        validate(root, schema, value, at, &mut errors);
        errors.is_empty()
    };
    let list = |of: &Value| of.as_array().cloned().unwrap_or_else(|| vec![of.clone()]);
    let mut must = |holds: bool, what: &str| {
        if !holds {
            errors.push(format!("{at}: {what}: {value}"));
        }
    };
    for (keyword, of) in keywords {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => {}
            "type" => must(list(of).iter().any(|t| is_a(value, t.as_str().unwrap())), &of.to_string()),
            "enum" => must(list(of).contains(value), "one of a list"),
            "const" => must(of == value, "a constant"),
            "anyOf" | "oneOf" => must(list(of).iter().any(&fits), "none of the alternatives"),
            "minimum" => must(value.as_f64().is_none_or(|v| v >= of.as_f64().unwrap()), "too small"),
            "maximum" => must(value.as_f64().is_none_or(|v| v <= of.as_f64().unwrap()), "too great"),
            "pattern" => {
                let op = value.as_str().unwrap_or_default().parse::<dma_bench::plan::OpSpec>();
                must(op.is_ok(), "the one pattern here is that of operations");
            }
            "required" => {
                for name in list(of) {
                    must(value.get(name.as_str().unwrap()).is_some(), &format!("{name} is missing"));
                }
            }
            "additionalProperties" => {
                assert_eq!(of, &Value::Bool(false));
                let known = |name: &String| schema["properties"].get(name).is_some();
                let unknown = value.as_object().is_some_and(|o| !o.keys().all(known));
                must(!unknown, "an unknown field");
            }
            "$ref" | "properties" | "items" | "allOf" => {}
            other => panic!("this test does not know the keyword {other} at {at}"),
        }
    }
    if let Some(to) = schema["$ref"].as_str() {
        let inner = root.pointer(to.trim_start_matches('#')).expect("a definition");
        validate(root, inner, value, at, errors);
    }
    for inner in schema["allOf"].as_array().into_iter().flatten() {
        validate(root, inner, value, at, errors);
    }
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(field) = value.get(name) {
            validate(root, inner, field, &format!("{at}.{name}"), errors);
        }
    }
    if let (Some(inner), Some(all)) = (schema.get("items"), value.as_array()) {
        all.iter().for_each(|item| validate(root, inner, item, &format!("{at}[]"), errors));
    }
}

fn is_a(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type {other}"),
    }
}

#[test]
fn results_keep_to_the_schema() {
    let schema = json(&bench(&["schema"]).stdout);
    let errors = |results: &Value| {
        let mut errors = Vec::new();
        validate(&schema, &schema, results, "", &mut errors);
        errors
    };
    let short = ["run", "--quiet", "--footprint", "1M", "--warm-up", "0.001", "--format", "json"];
    let cpu = test_support::cpus::first().0.to_string();
    for words in [
        &[
            "-e",
            "cpu",
            "-e",
            "sim:profile=dsa",
            "-o",
            "64,4K,64K",
            "-q",
            "1,4,8",
            "--samples",
            "2",
            "--published",
        ][..],
        &[
            "-e",
            "cpu",
            "-w",
            "fill,gather:4,compare,copy-crc32c",
            "-o",
            "4K",
            "--samples",
            "2",
            "-d",
            "push,local",
            "--cpus",
            &cpu,
        ],
        &["-e", "cpu", "-o", "4K", "--rate", "5k", "--samples", "2"],
        &["-e", "cpu", "-o", "4K", "--duration", "0.02", "--series=0.01"],
    ] {
        let mut results = json(&bench(&[&short, words].concat()).stdout);
        assert_eq!(errors(&results), [""; 0], "{words:?}");
        // The schema rejects a wrong type.
        results["cells"][0]["size"] = "much".into();
        assert!(!errors(&results).is_empty());
        results["cells"][0].as_object_mut().unwrap().remove("size");
        assert!(!errors(&results).is_empty());
    }
}

/// Every field of the results has a description in the schema.
#[test]
fn every_field_has_a_description() {
    fn look(schema: &Value, at: &str, missing: &mut Vec<String>) {
        if let Some(properties) = schema["properties"].as_object() {
            for (name, property) in properties {
                if property["description"].as_str().is_none_or(str::is_empty) {
                    missing.push(format!("{at}.{name}"));
                }
            }
        }
        for list in ["$defs", "properties"] {
            for (name, inner) in schema[list].as_object().into_iter().flatten() {
                look(inner, &format!("{at}/{name}"), missing);
            }
        }
    }
    let mut missing = Vec::new();
    look(&json(&bench(&["schema"]).stdout), "", &mut missing);
    assert!(missing.is_empty(), "{missing:?}");
}
