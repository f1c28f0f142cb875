//! Checks that `c_calls!` declares all exported functions. It makes them `unsafe`, because no compiler checks
//! their C callers.

use std::fs;
use std::path::{Path, PathBuf};

use syn::{File, Item};

#[test]
fn exported_functions_are_unsafe_because_one_macro_declares_all() {
    let mut found = Found::default();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&path).unwrap();
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        found.look_at(&file.items);
    }
    assert!(found.declared > 140, "only {} exported functions were found", found.declared);
    assert!(found.elsewhere.is_empty(), "functions for C outside of c_calls!: {:#?}", found.elsewhere);
    assert_eq!(found.exporting, ["c_calls"], "macros that export functions");
}

#[derive(Default)]
struct Found {
    /// Number of functions in calls of `c_calls!`, without those that other macros pass to it.
    declared: usize,
    elsewhere: Vec<String>,
    /// Macros, defined or called, that have an exporting attribute in their text.
    exporting: Vec<String>,
}

impl Found {
    fn look_at(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Fn(function) if function.sig.abi.is_some() => {
                    self.elsewhere.push(function.sig.ident.to_string());
                }
                Item::Mod(module) => self.look_at(module.content.as_ref().map_or(&[], |(_, items)| items)),
                Item::Macro(call) if call.mac.path.is_ident("c_calls") => {
                    let calls: File = syn::parse2(call.mac.tokens.clone()).unwrap();
                    self.declared += calls.items.len();
                }
                Item::Macro(call) => {
                    let text = call.mac.tokens.to_string();
                    if text.contains("no_mangle") || text.contains("export_name") {
                        let called = call.mac.path.segments.last().map(|segment| &segment.ident);
                        self.exporting.extend(call.ident.as_ref().or(called).map(ToString::to_string));
                        let (all, marked) = ("extern \"C\" fn", "unsafe extern \"C\" fn");
                        assert_eq!(text.matches(all).count(), text.matches(marked).count(), "{text}");
                    }
                }
                _ => {}
            }
        }
    }
}

/// Returns the Rust files in `dir` and its subdirectories.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}
