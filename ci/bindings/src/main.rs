//! Writes `bindings.rs` of the `-sys` crates: the declarations of the vendors' C calls, as bindgen makes them
//! of the headers; and `call_bindings.rs`: types of these calls, by the same names.
//!
//! `cargo run -p bindings --features generate` writes them. With `-- --check`, it fails if the committed
//! files differ. Needs rustfmt and libclang (`LIBCLANG_PATH` says where, if it is not found).

mod sdk;

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
    let mut stale = false;
    for sdk in sdk::ALL {
        match generate(&root, sdk, check) {
            Ok(true) => {}
            Ok(false) => {
                eprintln!("{}/{} is out of date", sdk.dir, sdk.output);
                stale = true;
            }
            Err(e) => {
                eprintln!("{}: {e}", sdk.dir);
                return ExitCode::FAILURE;
            }
        }
    }
    if stale {
        eprintln!("run `cargo run -p bindings --features generate`, and commit what it writes");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Writes or checks one SDK's declarations. When checking, returns whether they are up to date.
fn generate(root: &Path, sdk: &Sdk, check: bool) -> Result<bool, Box<dyn Error>> {
    let path = root.join(sdk.dir).join(sdk.output);
    let text = sdk::bindgen(sdk, root)?;
    let types = sdk::call_types(sdk, &text);
    let mut current = true;
    for (path, text) in [(path.with_file_name("call_bindings.rs"), types), (path, text)] {
        let in_path = |e| format!("{}: {e}", path.display());
        if check {
            current &= std::fs::read_to_string(&path).map_err(in_path)? == text;
        } else {
            std::fs::write(&path, text).map_err(in_path)?;
        }
    }
    Ok(current)
}
