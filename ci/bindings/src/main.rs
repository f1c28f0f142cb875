//! Writes the declarations of the vendors' C calls: `bindings.rs`, as bindgen makes it of the headers, and
//! `table.rs`, one struct of function pointers for each library, to be filled at run time.
//!
//! `cargo run -p bindings --features generate` writes them; with `-- --check` behind it, it compares, and fails where what is
//! committed is not what comes out. Needs libclang (`LIBCLANG_PATH` says where, if it is not found).

mod sdk;
mod table;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use sdk::Sdk;

fn main() -> ExitCode {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => {
            eprintln!("unknown arguments {other:?}; there is only --check");
            return ExitCode::from(2);
        }
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut stale = 0;
    for sdk in sdk::ALL {
        match generate(&root, sdk, check) {
            Ok(files) => stale += files,
            Err(e) => {
                eprintln!("{}: {e}", sdk.dir);
                return ExitCode::FAILURE;
            }
        }
    }
    if stale > 0 {
        eprintln!(
            "{stale} files differ from what the headers give; run `cargo run -p bindings --features generate` and commit them"
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Writes or checks one SDK's files. Returns how many differ, when checking.
fn generate(root: &Path, sdk: &Sdk, check: bool) -> Result<usize, Box<dyn Error>> {
    let dir = root.join(sdk.dir);
    let include = dir.join("include");
    let bindings = sdk::bindgen(sdk, &include)?;
    let table = table::write(sdk, &include, &bindings)?;
    let mut stale = 0;
    for (name, text) in [("src/bindings.rs", &bindings), ("src/table.rs", &table)] {
        let path = dir.join(name);
        if !check {
            std::fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(text) {
            eprintln!("{} is out of date", path.display());
            stale += 1;
        }
    }
    Ok(stale)
}
