//! Tests of the installed tree: names, versions, and the exports of each library. A failed installation
//! leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_support::{built, stand_ins};

const LIBRARIES: [&str; 4] = ["argp", "comch", "common", "dma"];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("install")
}

fn has(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the calls that a header declares, with the symbol versions that their marks select.
fn declared(header: &str) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        let version = match line {
            "DOCA_STABLE" => "DOCA_2",
            "DOCA_EXPERIMENTAL" => "EXPERIMENTAL",
            _ => continue,
        };
        let declaration = lines.next().expect("a declaration after the mark");
        if declaration.starts_with("static ") {
            continue;
        }
        let before = declaration.split('(').next().expect("a name");
        let name = before.rsplit([' ', '*']).next().expect("a name");
        calls.insert(format!("{name}@@{version}"));
    }
    calls
}

#[test]
fn every_library_exports_the_calls_of_its_headers() {
    if !has("nm") {
        println!("skipped: the exports of the libraries, without nm");
        return;
    }
    exports(&stand_ins::doca_emu_prefix(), &LIBRARIES);
    for generation in ["1.5", "2.2"] {
        exports(&stand_ins::doca_emu_generation(generation), &["argp", "comm_channel", "common", "dma"]);
    }
    exports(&stand_ins::doca_emu_generation("2.5"), &["argp", "cc", "comm_channel", "common", "dma"]);
}

/// Checks the exports of each library of an installation.
fn exports(prefix: &Path, libraries: &[&str]) {
    let dir = stand_ins::library_dir(prefix);
    for &library in libraries {
        let mut wanted = BTreeSet::new();
        for header in fs::read_dir(prefix.join("include")).expect("the headers") {
            let header = header.expect("a header").path();
            let name = header.file_stem().expect("a name").to_string_lossy().into_owned();
            let home = match name.as_str() {
                "doca_argp" => "argp",
                "doca_comm_channel" => "comm_channel",
                cc if cc.starts_with("doca_cc") => "cc",
                comch if comch.starts_with("doca_comch") => "comch",
                "doca_dma" => "dma",
                _ => "common",
            };
            if home == library {
                wanted.extend(declared(&fs::read_to_string(&header).expect("a header")));
            }
        }
        assert!(wanted.len() > 5, "{library}");
        let output = Command::new("nm")
            .args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(dir.join(format!("libdoca_{library}.so")))
            .output()
            .expect("nm starts");
        let exported: BTreeSet<String> = text(&output.stdout)
            .lines()
            .filter_map(|line| line.rsplit(' ').next())
            .filter(|name| name.starts_with("doca_") && !name.starts_with("doca_emu_"))
            .map(str::to_owned)
            .collect();
        assert_eq!(exported, wanted, "libdoca_{library}");
    }
}

#[test]
fn files_and_sonames_are_the_vendors() {
    let dir = stand_ins::library_dir(&stand_ins::doca_emu_prefix());
    for library in LIBRARIES {
        let name = format!("libdoca_{library}.so");
        assert_eq!(fs::read_link(dir.join(&name)).expect("a link"), Path::new(&format!("{name}.2")));
        let file = format!("{name}.2.10.0087");
        assert_eq!(fs::read_link(dir.join(format!("{name}.2"))).expect("a link"), Path::new(&file));
        assert!(dir.join(&file).is_file());
        assert!(dir.join(format!("pkgconfig/doca-{library}.pc")).is_file());
    }
    if !has("readelf") {
        println!("skipped: sonames, without readelf");
        return;
    }
    for library in LIBRARIES {
        let file = dir.join(format!("libdoca_{library}.so"));
        let output = Command::new("readelf").arg("-dW").arg(file).output().expect("readelf starts");
        assert!(text(&output.stdout).contains(&format!("soname: [libdoca_{library}.so.2]")), "{library}");
    }
}

#[test]
fn pkg_config_says_how_to_build() {
    if !has("pkg-config") {
        println!("skipped: the pkg-config files, without pkg-config");
        return;
    }
    let prefix = stand_ins::doca_emu_prefix();
    if prefix.to_string_lossy().contains(['\'', '"', '\\']) {
        println!("skipped: pkg-config takes no paths with quotes");
        return;
    }
    let program = built::own_folder("install").join("pkg-config-program");
    let source = program.with_extension("c");
    let code = "#include <doca_argp.h>\n#include <doca_comch.h>\n#include <doca_dma.h>\n#include <doca_error.h>\n\
        int main(void)\n{\n\treturn doca_comch_client_destroy(NULL) == DOCA_SUCCESS || \
        doca_dma_destroy(NULL) == DOCA_SUCCESS ||\n\t       doca_argp_destroy() != DOCA_ERROR_BAD_STATE;\n}\n";
    fs::write(&source, code).expect("the program");
    // `pkg-config` escapes spaces for a shell that evaluates its output.
    let build = r#"flags=$(pkg-config --cflags --libs doca-dma doca-common doca-argp doca-comch)
        eval "${CC:-cc} -DDOCA_ALLOW_EXPERIMENTAL_API \"\$1\" -o \"\$2\" $flags""#;
    let output = Command::new("sh")
        .args(["-ec", build, "sh"])
        .arg(&source)
        .arg(&program)
        .env("PKG_CONFIG_PATH", stand_ins::library_dir(&prefix).join("pkgconfig"))
        .output()
        .expect("a shell");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let ran = Command::new(&program).env("LD_LIBRARY_PATH", stand_ins::library_dir(&prefix)).status();
    assert!(ran.expect("the program starts").success());
}

/// Runs the script with a changed environment.
fn install(arguments: &[&Path], set_up: impl FnOnce(&mut Command)) -> Output {
    let mut command = Command::new(script());
    command.args(arguments);
    set_up(&mut command);
    command.output().expect("the script starts")
}

fn refused(output: &Output, says: &str) {
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
}

#[test]
fn mistakes_are_named_and_leave_nothing_behind() {
    let parent = built::own_folder("install").join("mistakes");
    let _ = fs::remove_dir_all(&parent);
    fs::create_dir_all(&parent).expect("a directory");
    let prefix = parent.join("sdk");

    refused(&install(&[], |_| {}), "no PREFIX given");
    refused(&install(&[&prefix, Path::new("--fast")], |_| {}), "no option --fast");
    refused(&install(&[&prefix, &prefix], |_| {}), "more than one PREFIX");
    refused(&install(&[&prefix, Path::new("--generation"), Path::new("1.4")], |_| {}), "no generation 1.4");
    refused(&install(&[&prefix, Path::new("--generation")], |_| {}), "--generation needs");
    let no_compiler = install(&[&prefix], |command| {
        command.env("CC", "no-such-compiler");
    });
    refused(&no_compiler, "no C compiler 'no-such-compiler'");
    let no_rust = install(&[&prefix], |command| {
        command.env("CARGO", "no-such-cargo");
    });
    refused(&no_rust, "no cargo");

    // A directory that holds other files is not changed.
    fs::create_dir(&prefix).expect("a directory");
    fs::write(prefix.join("precious"), "data").expect("a file");
    refused(&install(&[&prefix], |_| {}), "holds something else");
    assert_eq!(fs::read(prefix.join("precious")).expect("the file"), b"data");
    fs::remove_dir_all(&prefix).expect("removed");

    fs::write(&prefix, "a file").expect("a file");
    refused(&install(&[&prefix], |_| {}), "is no directory");
    fs::remove_file(&prefix).expect("removed");
    let left: Vec<_> = fs::read_dir(&parent).expect("the directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_failure_leaves_the_old_installation() {
    let parent = built::own_folder("install").join("again");
    let _ = fs::remove_dir_all(&parent);
    let prefix = parent.join("sdk");
    // Build the archive now, and let no other test build that of another generation, so that cargo does not
    // rebuild it below.
    let _ = stand_ins::doca_emu_prefix();
    let _lock = stand_ins::lock();
    let profile = |command: &mut Command| {
        command.args(["--profile", "test"]);
    };
    let first = install(&[&prefix], profile);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let mark = fs::metadata(prefix.join(".doca-emu")).expect("the mark").modified().expect("a time");
    let second = install(&[&prefix], profile);
    assert!(text(&second.stdout).contains("is up to date"), "{}", text(&second.stdout));
    let same = fs::metadata(prefix.join(".doca-emu")).expect("the mark").modified().expect("a time");
    assert_eq!(mark, same);

    // Make a tool fail that the script uses late.
    let broken = parent.join("bin");
    fs::create_dir(&broken).expect("a directory");
    let tool = broken.join("awk");
    fs::write(&tool, "#!/bin/sh\nexit 1\n").expect("a script");
    assert!(Command::new("chmod").arg("+x").arg(&tool).status().expect("chmod starts").success());
    let path = format!("{}:{}", broken.display(), std::env::var("PATH").expect("a path"));
    fs::write(prefix.join(".doca-emu"), "an older archive").expect("the mark");
    let failed = install(&[&prefix], |command| {
        profile(command);
        command.env("PATH", path);
    });
    refused(&failed, "awk failed");
    assert!(stand_ins::library_dir(&prefix).join("libdoca_dma.so").exists());
    let mut left: Vec<_> = fs::read_dir(&parent)
        .expect("the directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["bin", "sdk"]);
    let third = install(&[&prefix], profile);
    assert!(text(&third.stdout).contains("holds the stand-in SDK"), "{}", text(&third.stdout));
    fs::remove_dir_all(&parent).expect("removed");
}
