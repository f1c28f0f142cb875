//! Saved results: files in the user's data folder, each under a name.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folder that contains saved results.
fn folder() -> Result<PathBuf, String> {
    let named = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = named("XDG_DATA_HOME").or_else(|| Some(named("HOME")?.join(".local/share")));
    let data = data.ok_or("saved results need a folder; set XDG_DATA_HOME or HOME, or use --json FILE")?;
    Ok(data.join("dma-bench"))
}

/// Returns the file of the results that are saved as `name`.
pub(crate) fn file(name: &str) -> Result<PathBuf, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > 100 || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(plain)
    {
        return Err(format!(
            "`{name}` is not a name; write a letter or digit, then letters, digits, -, _ or ."
        ));
    }
    Ok(folder()?.join(format!("{name}.json")))
}

/// Returns the results file that a user names: the file at this path, or else the results that are saved
/// under this name.
pub(crate) fn find(path: &Path) -> Result<PathBuf, String> {
    let name = path.to_str().filter(|_| !path.exists());
    match name.and_then(|name| file(name).ok()) {
        None => Ok(path.to_owned()),
        Some(saved) if saved.exists() => Ok(saved),
        Some(saved) => {
            let files = saved.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
            let stem = |file: fs::DirEntry| Some(file.path().file_stem()?.to_string_lossy().into_owned());
            let mut names: Vec<String> = files.flatten().filter_map(stem).collect();
            names.sort();
            let remedy = match names.as_slice() {
                [] => "none are saved: `dma-bench run --save NAME` saves results".to_owned(),
                names => format!("saved are: {}", names.join(", ")),
            };
            Err(format!("{}: neither a file nor saved results; {remedy}", path.display()))
        }
    }
}
