//! What the features need: `linked` asks `pkg-config` which libraries of SPDK and DPDK to link, `bindgen` binds the installed headers. Without them
//! it does nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in ["PKG_CONFIG_PATH", "SPDK_INCLUDE_DIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    #[cfg(feature = "linked")]
    linked::link();
    #[cfg(feature = "bindgen")]
    headers::bind();
}

#[cfg(any(feature = "linked", feature = "bindgen"))]
fn pkg_config(arguments: &[&str]) -> Result<Vec<String>, String> {
    let program = std::env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
    let output = std::process::Command::new(&program)
        .args(arguments)
        .output()
        .map_err(|e| format!("{program}: {e}; install pkg-config"))?;
    if !output.status.success() {
        return Err(format!(
            "{}\nset PKG_CONFIG_PATH to SPDK's and DPDK's: /path/to/spdk/build/lib/pkgconfig, /path/to/spdk/dpdk/build/lib/pkgconfig",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let text = String::from_utf8(output.stdout).map_err(|e| e.to_string())?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

#[cfg(feature = "linked")]
mod linked {
    use std::path::{Path, PathBuf};

    /// What of SPDK and DPDK is linked, as SPDK's own documentation (doc/pkgconfig.md) has it.
    const SPDK: [&str; 2] = ["spdk_ioat", "spdk_env_dpdk"];
    /// What these need; not every build has them all.
    const BEHIND: [&str; 3] = ["spdk_dpdklibs", "libdpdk", "spdk_syslibs"];

    pub(super) fn link() {
        let mut flags = super::pkg_config(&[&["--libs"], &SPDK[..]].concat())
            .unwrap_or_else(|e| panic!("the feature `linked` needs an installed SPDK: {e}"));
        // Shared libraries name what they need themselves.
        let shared = super::pkg_config(&["--variable=libdir", SPDK[1]])
            .is_ok_and(|dir| dir.iter().any(|dir| Path::new(dir).join("libspdk_env_dpdk.so").exists()));
        for package in BEHIND.into_iter().filter(|_| !shared) {
            if super::pkg_config(&["--exists", package]).is_ok() {
                flags.extend(super::pkg_config(&["--libs", "--static", package]).unwrap_or_default());
            }
        }
        let dirs: Vec<PathBuf> =
            flags.iter().filter_map(|f| f.strip_prefix("-L")).map(PathBuf::from).collect();
        for dir in &dirs {
            println!("cargo::rustc-link-search=native={}", dir.display());
        }
        let mut seen = Vec::new();
        for flag in &flags {
            let library = flag.strip_prefix("-l").unwrap_or(flag);
            let linked = match library.strip_prefix(':') {
                Some(file) => {
                    archive(&dirs.iter().map(|d| d.join(file)).find(|f| f.exists()).unwrap_or_default())
                }
                None if flag.starts_with("-l") => named(library, &dirs),
                None => archive(Path::new(flag)),
            };
            if let Some(linked) = linked.filter(|linked| !seen.contains(linked)) {
                println!("cargo::rustc-link-lib={linked}");
                seen.push(linked);
            }
        }
    }

    /// A library by its name: whole, if it is one of SPDK's or DPDK's archives, since drivers in it register themselves and nobody names them.
    fn named(library: &str, dirs: &[PathBuf]) -> Option<String> {
        let is = |prefix: &str, suffix: &str| {
            dirs.iter().any(|d| d.join(format!("{prefix}{library}{suffix}")).exists())
        };
        let of_spdk = library.starts_with("spdk") || library.starts_with("rte");
        Some(if of_spdk && is("lib", ".a") && !is("lib", ".so") {
            format!("static:+whole-archive,-bundle={library}")
        } else {
            format!("dylib={library}")
        })
    }

    /// An archive by its path.
    fn archive(path: &Path) -> Option<String> {
        let library = path.file_name()?.to_str()?.strip_prefix("lib")?.strip_suffix(".a")?;
        println!("cargo::rustc-link-search=native={}", path.parent()?.display());
        Some(format!("static:+whole-archive,-bundle={library}"))
    }
}

#[cfg(feature = "bindgen")]
mod headers {
    use std::path::PathBuf;

    pub(super) fn bind() {
        let include = match std::env::var("SPDK_INCLUDE_DIR") {
            Ok(dir) => vec![format!("-I{dir}")],
            Err(_) => super::pkg_config(&["--cflags-only-I", "spdk_ioat", "spdk_env_dpdk"]).unwrap_or_else(|e| {
                panic!("the feature `bindgen` needs SPDK's headers: set SPDK_INCLUDE_DIR, or PKG_CONFIG_PATH ({e})")
            }),
        };
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it")).join("bindings.rs");
        bindgen::Builder::default()
            .header_contents("all.h", "#include <spdk/stdinc.h>\n#include <spdk/env.h>\n#include <spdk/ioat.h>\n#include <spdk/log.h>\n#include <spdk/string.h>\n")
            .clang_args(include)
            .clang_args(compiler_include())
            .allowlist_function("spdk_.*")
            .allowlist_type("spdk_.*")
            .allowlist_var("SPDK_.*")
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .use_core()
            .generate()
            .unwrap_or_else(|e| panic!("SPDK's headers cannot be bound: {e}"))
            .write_to_file(&out)
            .unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }

    /// Where the C compiler has `limits.h` and its like: libclang often comes without its own.
    fn compiler_include() -> Option<String> {
        let output = std::process::Command::new("cc").arg("-print-file-name=include").output().ok()?;
        let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        dir.starts_with('/').then(|| format!("-isystem{dir}"))
    }
}
