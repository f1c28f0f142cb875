//! A program adds a backend, and `dma-bench`, used as a library, lists, diagnoses and measures it.

use std::ffi::OsString;
use std::sync::Arc;

use dma::{Backend, Discovered, DmaEngine, EngineName, Finding, NameFormat, OptionInfo, Result};
use dma_bench::Format;
use serde_json::Value;

/// The test's backend. It opens engines of the CPU backend.
#[derive(Debug)]
struct Mine;

impl Backend for Mine {
    fn name_format(&self) -> NameFormat {
        const OPTIONS: &[OptionInfo] = &[OptionInfo::new("threads", "N", "0", "threads that copy")];
        NameFormat::new("mine", OPTIONS)
    }

    fn about(&self) -> &'static str {
        "for tests"
    }

    fn is_hardware(&self) -> bool {
        false
    }

    fn open(&self, name: &EngineName) -> Result<Arc<dyn DmaEngine>> {
        let mut threads = 0;
        name.read_options(self.name_format(), |_, value| {
            threads = value.number(0..=1)?;
            Ok(())
        })?;
        dma::open(&format!("cpu:threads={threads}"))
    }

    fn discover(&self) -> Vec<Discovered> {
        let name = EngineName::of(self.name_format());
        let info = self.open(&name).map(|engine| engine.info().clone());
        vec![Discovered::new(name, info)]
    }

    fn doctor(&self) -> Vec<Finding> {
        vec![Finding::ok("weather", "sun")]
    }
}

#[test]
fn an_added_backend_is_listed_diagnosed_and_measured() {
    dma::register(&Mine).unwrap();

    let found = dma::discover();
    assert!(dma_bench::list::shown(&found, Format::Table).contains("mine"));
    let list: Value = serde_json::from_str(&dma_bench::list::json(&found)).unwrap();
    assert!(
        list.as_array().unwrap().iter().any(|engine| engine["name"] == "mine" && engine["usable"] == true)
    );

    let report = dma_bench::doctor::examine(&["mine".to_owned()]).unwrap();
    assert!(
        report.usable() && report.text().contains("mine: usable\n  ok   weather: sun\n"),
        "{}",
        report.text()
    );

    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("results.json");
    let run = |engine: &str| {
        let words =
            format!("dma-bench run -e {engine} -o 4K -q 1 -n 20 --samples 2 --warm-up 0 --quiet --json");
        let arguments = words.split(' ').map(OsString::from).chain([json.clone().into_os_string()]);
        dma_bench::main_with(arguments)
    };
    assert_eq!(run("mine:threads=0"), 0);
    let results: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let cells = results["cells"].as_array().unwrap();
    assert!(
        cells.iter().any(|cell| cell["engine"] == "mine:threads=0" && cell["status"] == "ok"),
        "{cells:?}"
    );
    // As with built-in engines, an invalid name is an error of the command line.
    assert_eq!(run("mine:thread=0"), 2);
}
