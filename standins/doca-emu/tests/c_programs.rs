//! Builds the C programs of `tests/c` with the installed stand-in, as programs are built with the SDK, and
//! runs them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use test_support::{built, stand_ins};

/// The headers must compile without warnings, because programs are built with strict flags.
const WARNINGS: [&str; 4] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"];

struct Sdk {
    include: PathBuf,
    libraries: PathBuf,
    names: &'static [&'static str],
}

impl Sdk {
    fn at(prefix: &Path, names: &'static [&'static str]) -> Self {
        Self { include: prefix.join("include"), libraries: stand_ins::library_dir(prefix), names }
    }
}

fn sdk() -> &'static Sdk {
    static SDK: OnceLock<Sdk> = OnceLock::new();
    const ALL: &[&str] = &["-ldoca_comch", "-ldoca_argp", "-ldoca_dma", "-ldoca_common"];
    SDK.get_or_init(|| Sdk::at(&stand_ins::doca_emu_prefix(), ALL))
}

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn shown(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Returns the path of a built program.
fn binary(name: &str, how: &str) -> PathBuf {
    built::own_folder("c_programs").join(format!("{name}-{how}"))
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"))
}

/// Builds a program. Panics if the build fails.
fn build(sdk: &Sdk, name: &str, how: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let program = binary(&name.replace('/', "-"), how);
    let built = Command::new(compiler)
        .args(flags)
        .args(WARNINGS)
        .args(["-g", "-O1", "-D_GNU_SOURCE", "-DDOCA_ALLOW_EXPERIMENTAL_API", "-pthread"])
        .arg("-I")
        .arg(&sdk.include)
        .arg(source(name))
        .args(["-x", "none", "-o"])
        .arg(&program)
        .arg("-L")
        .arg(&sdk.libraries)
        .args(sdk.names)
        .output()
        .expect("the compiler starts");
    assert!(built.status.success(), "building {name} as {how}: {}", shown(&built));
    program
}

/// Makes a command that runs a program with the SDK.
fn run(sdk: &Sdk, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &sdk.libraries).env_remove("DOCA_EMU").env_remove("DOCA_EMU_CONFIG");
    command.stdin(Stdio::null());
    command
}

/// Builds and runs a program. Panics if the build or the run fails.
fn build_and_run(sdk: &Sdk, name: &str, how: &str, compiler: &str, flags: &[&str]) {
    let program = build(sdk, name, how, compiler, flags);
    let ran = run(sdk, &program).output().expect("the program starts");
    assert!(ran.status.success(), "{name}, built as {how}: {}", shown(&ran));
}

fn check(name: &str) {
    check_on(sdk(), name, "");
}

/// Builds and runs a program in three ways, which run at the same time, because some wait for the stand-in's
/// timeouts.
fn check_on(sdk: &Sdk, name: &str, version: &str) {
    let check = |how: &str, compiler: &str, flags: &[&str]| {
        build_and_run(sdk, name, &(how.to_owned() + version), compiler, flags);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| check("c", "cc", &["-std=c11"]));
        if is_there("g++") {
            scope.spawn(|| check("c++", "g++", &["-std=c++17", "-x", "c++"]));
        } else {
            println!("skipped: {name} as C++, without g++");
        }
        if built::can_sanitize(&built::own_folder("c_programs")) {
            let flags = ["-std=c11", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
            scope.spawn(move || check("sanitized", "cc", &flags));
        } else {
            println!("skipped: {name} with sanitizers, which this compiler lacks");
        }
    });
}

macro_rules! programs {
    ($($name:ident)+) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+

        #[test]
        fn every_program_is_run() {
            let dir = std::fs::read_dir(source("x").parent().expect("a directory")).expect("tests/c");
            let mut files: Vec<_> = dir
                .map(|entry| entry.expect("an entry").path())
                .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
                .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
                .collect();
            files.sort();
            assert_eq!(files, [$(stringify!($name)),+]);
        }
    };
}

programs! { argp clock comch comch_fast devices dma export graph headers log memory sync_event }

/// Returns the installed SDK of DOCA 1.5, 2.2 or 2.5.
fn older(generation: &str) -> Sdk {
    const ALL: &[&str] = &["-ldoca_cc", "-ldoca_comm_channel", "-ldoca_argp", "-ldoca_dma", "-ldoca_common"];
    let names = if generation == "2.5" { ALL } else { &ALL[1..] };
    Sdk::at(&stand_ins::doca_emu_generation(generation), names)
}

/// Builds and runs the programs for DOCA 1.5 and 2.2.
#[test]
fn work_queues() {
    for generation in ["1.5", "2.2"] {
        let sdk = older(generation);
        for name in ["workq/copies", "workq/comm_channel", "workq/program"] {
            check_on(&sdk, name, generation);
        }
        // 1.5 has no sync events.
        if generation == "2.2" {
            check_on(&sdk, "workq/sync_event", generation);
        }
    }
}

/// Builds and runs the programs for DOCA 2.5, which has the comm channel of 2.2 too.
#[test]
fn tasks_of_2_5() {
    let sdk = older("2.5");
    for name in ["tasks25/program", "workq/comm_channel"] {
        check_on(&sdk, name, "2.5");
    }
}

/// Services and clients of different generations exchange messages.
#[test]
fn the_comm_channel_joins_generations() {
    let strict = ["-std=c11"];
    let later = build(sdk(), "workq/later", "c", "cc", &strict);
    for generation in ["1.5", "2.2", "2.5"] {
        let sdk_then = older(generation);
        let then = build(&sdk_then, "workq/comm_channel", &format!("pair{generation}"), "cc", &strict);
        let pairs = [((&sdk_then, &then), (sdk(), &later)), ((sdk(), &later), (&sdk_then, &then))];
        for (n, (service, client)) in pairs.into_iter().enumerate() {
            let name = format!("{generation} pair {n} {}", std::process::id());
            let mut serving = run(service.0, service.1)
                .args(["serve", &name])
                .stdout(Stdio::piped())
                .spawn()
                .expect("the service starts");
            let mut line = String::new();
            let output = serving.stdout.as_mut().expect("its output");
            BufReader::new(output).read_line(&mut line).expect("a line");
            let client =
                run(client.0, client.1).args(["connect", &name]).output().expect("the client starts");
            if !client.status.success() {
                serving.kill().expect("the service runs");
            }
            let serving = serving.wait_with_output().expect("it ends");
            assert_eq!(line, "listening\n");
            assert!(client.status.success(), "{name}, client: {}", shown(&client));
            assert!(serving.status.success(), "{name}, service: {}", shown(&serving));
        }
    }
}
