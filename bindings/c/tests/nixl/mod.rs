//! Builds the NIXL plugin and programs that call it, for tests and benches. A file is built again only if its
//! sources, the command or the compiler have changed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use super::HERE;

/// The functions by which the plugin identifies the release of NIXL.
pub(crate) const FUNCTIONS: &str = include_str!("libnixl-1.5.1.txt");

/// The directory of the built files, which has the library under its installed names.
pub(crate) static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = std::env::current_exe().expect("this program's path");
    // The path is target/PROFILE/deps/NAME.
    let deps = program.parent().expect("a directory");
    let profile = deps.parent().and_then(Path::file_name).expect("a profile");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nixl").join(profile);
    fs::create_dir_all(&dir).expect("a directory");
    let library = deps.join("libdma_c.so");
    let _lock = lock(&dir.join("libdma"));
    for name in ["libdma.so".to_owned(), format!("libdma.so.{}", dma_c::header::DMA_ABI_VERSION)] {
        let link = dir.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&library) {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(&library, &link).expect("a link");
        }
    }
    dir
});

/// Builds the plugin, and returns its path. If `is_optimised`, it is compiled as `bindings/c/nixl/install`
/// compiles it.
pub(crate) fn plugin(is_optimised: bool) -> PathBuf {
    let dir = if is_optimised { DIR.join("optimised") } else { DIR.clone() };
    fs::create_dir_all(&dir).expect("a directory");
    let plugin = dir.join("libplugin_DMA.so");
    let header = Path::new(HERE).join("include");
    build(&plugin, &[&sources(), &header], &mut plugin_command(&sources(), &plugin, is_optimised));
    plugin
}

/// Returns the command that builds a plugin from the sources in a directory, linked to the shared library.
pub(crate) fn plugin_command(sources: &Path, plugin: &Path, is_optimised: bool) -> Command {
    let files =
        fs::read_dir(sources).expect("the plugin's sources").map(|entry| entry.expect("a file").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "cpp")).collect();
    files.sort();
    let mut command = compiler();
    command.args(["-fPIC", "-shared", "-fvisibility=hidden"]).arg(format!("-I{HERE}/include"));
    if is_optimised {
        command.args(["-O2", "-ffunction-sections"]).args(files);
    } else {
        // Compiling all sources as one takes less time than compiling them one by one.
        let last = files.pop();
        command.args(files.iter().flat_map(|file| [OsStr::new("-include"), file.as_os_str()])).args(last);
    }
    command.arg("-o").arg(plugin).arg(format!("-Wl,--version-script={HERE}/nixl/exports.map,-z,defs"));
    let dir = DIR.display();
    command.arg(format!("-L{dir}")).arg("-ldma").arg(format!("-Wl,-rpath,{dir}"));
    command
}

/// Returns the directory of the plugin's sources.
pub(crate) fn sources() -> PathBuf {
    Path::new(HERE).join("nixl")
}

/// Builds the C++ program `name` of this directory, and returns its path.
pub(crate) fn program(name: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (Path::new(HERE).join(format!("tests/nixl/{name}.cpp")), DIR.join(name));
    let mut command = compiler();
    command.arg(format!("-I{}", sources().display())).args(options).arg(&source);
    let tests = Path::new(HERE).join("tests/nixl");
    build(&program, &[&tests, &sources()], command.args(["-ldl", "-o"]).arg(&program));
    program
}

/// Builds a `libnixl.so` with these functions, and returns its path.
pub(crate) fn libnixl<'a>(name: &str, functions: impl Iterator<Item = &'a str>) -> PathBuf {
    let source = DIR.join(format!("{name}.c"));
    let text: String = functions.map(|function| format!("void {function}(void) {{}}\n")).collect();
    {
        // Another process may be compiling the same source.
        let _lock = lock(&source);
        if fs::read_to_string(&source).ok().as_ref() != Some(&text) {
            fs::write(&source, text).expect("a file");
        }
    }
    let library = DIR.join(name).join("libnixl.so");
    fs::create_dir_all(DIR.join(name)).expect("a directory");
    let mut command = Command::new("cc");
    command.args(["-shared", "-fPIC", "-Wl,-soname,libnixl.so,--hash-style=gnu", "-o"]);
    build(&library, &[&source], command.arg(&library).arg(&source));
    library
}

/// Returns a command of the C++ compiler, to which all warnings are errors.
fn compiler() -> Command {
    let mut command = Command::new("c++");
    command.args(["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror", "-pthread"]);
    command
}

/// Runs `command`, which writes `output`, unless it has done so before from the same `sources`: files, and
/// directories of files.
fn build(output: &Path, sources: &[&Path], command: &mut Command) {
    // Other tests of this process and of other processes build the same file.
    let _lock = lock(output);
    let mut state = expect_success(Command::new(command.get_program()).arg("--version"));
    state += &format!("{command:?}\n");
    for source in sources {
        let mut files = vec![source.to_path_buf()];
        if source.is_dir() {
            files =
                fs::read_dir(source).expect("readable").map(|entry| entry.expect("a file").path()).collect();
            files.sort();
        }
        let is_source = |file: &&PathBuf| {
            file.extension()
                .is_some_and(|end| ["c", "cpp", "hpp", "h", "map"].iter().any(|known| end == *known))
        };
        for file in files.iter().filter(is_source) {
            state += &fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        }
    }
    let recorded = with_suffix(output, ".sources");
    if output.exists() && fs::read_to_string(&recorded).is_ok_and(|recorded| recorded == state) {
        return;
    }
    let _ = fs::remove_file(&recorded);
    expect_success(command);
    fs::write(&recorded, state).expect("a file");
}

/// Locks a file for this process and thread, until the result is dropped.
pub(crate) fn lock(file: &Path) -> File {
    let lock = File::create(with_suffix(file, ".lock")).expect("a lock file");
    lock.lock().expect("the lock");
    lock
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

#[track_caller]
pub(crate) fn expect_success(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output));
    text(&output)
}
