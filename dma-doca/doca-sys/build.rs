//! Locates the installed SDK for the features `linked` and `bindgen`. Without these features, this build
//! script does nothing. If the SDK is missing, the script prints a warning, and everything builds except
//! linked programs.

#[cfg(any(feature = "linked", feature = "bindgen"))]
use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "linked")]
    link();
    #[cfg(feature = "bindgen")]
    bind();
}

/// Returns the first directory that pkg-config prints for `option` after `flag`, if pkg-config is installed
/// and knows the packages.
#[cfg(any(feature = "linked", feature = "bindgen"))]
fn packaged(option: &str, flag: &str) -> Option<PathBuf> {
    let output = Command::new("pkg-config").args([option, "doca-dma", "doca-common"]).output().ok()?;
    // A shell's words: a space in a path is quoted.
    let words = shlex::split(str::from_utf8(&output.stdout).ok()?)?;
    words.iter().find_map(|word| word.strip_prefix(flag).map(PathBuf::from))
}

/// Returns the first directory that contains `file`.
#[cfg(any(feature = "linked", feature = "bindgen"))]
fn first_with(file: &str, dirs: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    dirs.into_iter().find(|dir| dir.join(file).exists())
}

#[cfg(feature = "linked")]
fn link() {
    println!("cargo::rerun-if-env-changed=DMA_DOCA_LIB_DIR");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let prefix = Path::new("/opt/mellanox/doca");
    let named = std::env::var_os("DMA_DOCA_LIB_DIR").map(PathBuf::from);
    let packaged = packaged("--libs-only-L", "-L");
    let standard = [prefix.join(format!("lib/{arch}-linux-gnu")), prefix.join("lib64")];
    let system = ["/usr/local/lib", "/usr/lib64", "/usr/lib"].map(PathBuf::from).into_iter();
    let system = system.chain([PathBuf::from(format!("/usr/lib/{arch}-linux-gnu"))]);
    let searched = named.into_iter().chain(packaged).chain(standard).chain(system);
    match first_with("libdoca_dma.so", searched) {
        Some(dir) => println!("cargo::rustc-link-search=native={}", dir.display()),
        // Without an SDK, libraries and checks can be built, but programs cannot be linked.
        None => println!(
            "cargo::warning=feature `linked`: libdoca_dma.so was not found, without which no program can be linked; install the DOCA SDK, or set \
             DMA_DOCA_LIB_DIR to the directory of its libraries, or build without the feature"
        ),
    }
    for library in ["doca_dma", "doca_comch", "doca_common"] {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}

#[cfg(feature = "bindgen")]
fn bind() {
    println!("cargo::rerun-if-env-changed=DOCA_INCLUDE_DIR");
    let named = std::env::var_os("DOCA_INCLUDE_DIR").map(PathBuf::from);
    let packaged = packaged("--cflags-only-I", "-I");
    let standard = PathBuf::from("/opt/mellanox/doca/include");
    let asked = named.is_some();
    let searched = named.into_iter().chain(packaged).chain([standard]);
    // DOCA 1.5 to 2.2 have no progress engine.
    let (dma, engine) = ("doca_dma.h", "doca_pe.h");
    let own = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/include"));
    let include = match first_with(dma, searched) {
        Some(include) if include.join(engine).exists() => include,
        Some(include) if asked => panic!(
            "the headers in {} have no {engine}, so they are older than DOCA 2.5: set DOCA_INCLUDE_DIR to newer headers, or build without the \
             feature `bindgen`; dma-doca also loads the libraries of DOCA 1.5 and 2.2",
            include.display()
        ),
        None if asked => {
            panic!("DOCA_INCLUDE_DIR has no {dma}: set it to the directory of the DOCA SDK's headers")
        }
        Some(include) => {
            println!(
                "cargo::warning=feature `bindgen`: the headers in {} have no {engine}, so they are older than DOCA 2.5, and this crate's own are bound",
                include.display()
            );
            own()
        }
        None => {
            println!(
                "cargo::warning=feature `bindgen`: the headers of the DOCA SDK ({dma}) were not found, so this crate's own are bound; install \
                 the SDK, or set DOCA_INCLUDE_DIR to the directory that has {dma}"
            );
            own()
        }
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
    let present = headers.iter().filter(|header| include.join(format!("doca_{header}.h")).exists());
    let all: String = present.map(|header| format!("#include <doca_{header}.h>\n")).collect();
    let builtin = Command::new("cc").arg("-print-file-name=include").output().ok().and_then(|output| {
        let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        Path::new(&dir).is_absolute().then(|| format!("-isystem{dir}"))
    });
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("bindings.rs");
    let installed = bindgen::Builder::default()
        .header_contents("all.h", &all)
        .clang_arg(format!("-I{}", include.display()))
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
        .to_string();
    let text = format!("{installed}\n{}", lacking(&installed));
    std::fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// Returns the types and constants of `include/` that the installed SDK lacks. The types of optional calls
/// need them. The calls themselves and the version number of `include/` are not added.
#[cfg(feature = "bindgen")]
fn lacking(installed: &str) -> String {
    use quote::ToTokens as _;

    println!("cargo::rerun-if-changed=src/bindings.rs");
    let parse = |text| syn::parse_file(text).unwrap_or_else(|e| panic!("bindgen's output: {e}"));
    let present: std::collections::HashSet<String> =
        parse(installed).items.iter().filter_map(type_or_constant).collect();
    let ours = parse(include_str!("src/bindings.rs"));
    let absent = |item: &syn::Item| {
        type_or_constant(item).is_some_and(|name| !present.contains(&name) && !name.starts_with("DOCA_VER"))
    };
    ours.items
        .iter()
        .filter(|item| absent(item))
        .map(|item| format!("{}\n", item.to_token_stream()))
        .collect()
}

/// Returns the name that an item declares, if the item is a type or a constant.
#[cfg(feature = "bindgen")]
fn type_or_constant(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string()).filter(|name| name != "_")
}
