//! With the features `linked` and `bindgen`: where the installed SDK is. Without them it does nothing.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("CARGO_FEATURE_LINKED").is_some() {
        link();
    }
    #[cfg(feature = "bindgen")]
    bind();
}

/// What pkg-config says, if it is there and knows the package.
fn pkg_config(option: &str) -> Option<String> {
    let output = Command::new("pkg-config").args([option, "doca-dma", "doca-common"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The first directory of those with `file` in it.
fn first_with(file: &str, dirs: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    dirs.into_iter().find(|dir| dir.join(file).exists())
}

fn link() {
    println!("cargo::rerun-if-env-changed=DMA_DOCA_LIB_DIR");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let prefix = Path::new("/opt/mellanox/doca");
    let named = std::env::var_os("DMA_DOCA_LIB_DIR").map(PathBuf::from);
    let packaged = pkg_config("--libs-only-L").and_then(|flags| {
        flags.split_whitespace().find_map(|flag| flag.strip_prefix("-L").map(PathBuf::from))
    });
    let standard = [prefix.join(format!("lib/{arch}-linux-gnu")), prefix.join("lib64")];
    if let Some(dir) = first_with("libdoca_dma.so", named.into_iter().chain(packaged).chain(standard)) {
        println!("cargo::rustc-link-search=native={}", dir.display());
    }
    for library in ["doca_dma", "doca_comch", "doca_common"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

#[cfg(feature = "bindgen")]
fn bind() {
    println!("cargo::rerun-if-env-changed=DOCA_INCLUDE_DIR");
    let named = std::env::var_os("DOCA_INCLUDE_DIR").map(PathBuf::from);
    let packaged = pkg_config("--cflags-only-I").and_then(|flags| {
        flags.split_whitespace().find_map(|flag| flag.strip_prefix("-I").map(PathBuf::from))
    });
    let standard = PathBuf::from("/opt/mellanox/doca/include");
    let Some(include) = first_with("doca_dma.h", named.into_iter().chain(packaged).chain([standard])) else {
        panic!(
            "the headers of the DOCA SDK were not found; install it, or set DOCA_INCLUDE_DIR to the directory with doca_dma.h, or build \
             without the feature `bindgen`"
        );
    };
    let headers = [
        "argp",
        "buf",
        "buf_inventory",
        "buf_pool",
        "comch",
        "comch_consumer",
        "comch_producer",
        "ctx",
        "dev",
        "dma",
        "error",
        "graph",
        "log",
        "mmap",
        "mmap_advise",
        "pe",
        "sync_event",
        "types",
        "version",
    ];
    let all: String = headers.iter().map(|header| format!("#include <doca_{header}.h>\n")).collect();
    let builtin = Command::new("cc").arg("-print-file-name=include").output().ok().and_then(|output| {
        let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        Path::new(&dir).is_absolute().then(|| format!("-isystem{dir}"))
    });
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    bindgen::Builder::default()
        .header_contents("all.h", &all)
        .clang_arg(format!("-I{}", include.display()))
        // For headers that an older SDK has not got.
        .clang_args(["-idirafter", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
        .clang_args(builtin)
        .clang_arg("-DDOCA_ALLOW_EXPERIMENTAL_API")
        .allowlist_function("doca_.*")
        .allowlist_type("doca_.*")
        .allowlist_var("DOCA_.*")
        .blocklist_type("FILE|_IO_FILE|va_list|__.*va_list.*|__off.*|doca_argp_logger_cb_t")
        .raw_line("pub type FILE = ::core::ffi::c_void;")
        .raw_line("pub type doca_argp_logger_cb_t = ::core::option::Option<unsafe extern \"C\" fn(level: doca_log_level, format: *const ::core::ffi::c_char, args: *mut ::core::ffi::c_void) -> doca_error_t>;")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .generate_comments(false)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .disable_header_comment()
        .generate()
        .unwrap_or_else(|e| panic!("{}: {e}", include.display()))
        .write_to_file(&out)
        .unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}
