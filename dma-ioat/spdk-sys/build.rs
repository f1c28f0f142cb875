//! Implements the crate's features. `linked` asks `pkg-config` which libraries of SPDK and DPDK to link.
//! `bindgen` makes the declarations from the installed headers.
//!
//! Without an installed SPDK, both features warn and have no effect: libraries are loaded at run time, and
//! this crate's declarations are used. So a build with all features works on every machine.

#[cfg(feature = "linked")]
#[path = "build/linking.rs"]
mod linking;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build/linking.rs");
    println!("cargo::rustc-check-cfg=cfg(spdk_linked, spdk_headers)");
    for variable in ["PKG_CONFIG", "PKG_CONFIG_PATH", "SPDK_INCLUDE_DIR"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    // If SPDK is installed in one of these directories later, that triggers a rebuild.
    #[cfg(any(feature = "linked", feature = "bindgen"))]
    for dir in std::env::split_paths(&std::env::var_os("PKG_CONFIG_PATH").unwrap_or_default()) {
        println!("cargo::rerun-if-changed={}", dir.display());
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
    // A shell's words: a space in a path is quoted.
    shlex::split(&text).ok_or_else(|| format!("{program} {}: an open quote in {text}", arguments.join(" ")))
}

#[cfg(feature = "linked")]
mod linked {
    use std::path::Path;

    use super::linking::{Flags, instructions};

    /// The packages of SPDK to link, from its documentation (doc/pkgconfig.md).
    const SPDK: [&str; 2] = ["spdk_ioat", "spdk_env_dpdk"];
    /// Packages of the dependencies of `SPDK`. An installation may lack some of them.
    const DPDK_OF_SPDK: &str = "spdk_dpdklibs";
    const BEHIND: [&str; 2] = ["libdpdk", "spdk_syslibs"];

    pub(super) fn link() {
        let mut spdk = match super::pkg_config(&[&["--libs"], &SPDK[..]].concat()) {
            Ok(flags) => flags,
            Err(e) => {
                let e = e.lines().next().unwrap_or_default();
                println!(
                    "cargo::warning=feature `linked`: no SPDK is installed that could be linked, so its shared libraries are looked for when the \
                     program runs; else set PKG_CONFIG_PATH to SPDK's and DPDK's pkgconfig ({e})"
                );
                return;
            }
        };
        // Shared libraries do not name all their dependencies, so programs cannot be linked with them. They
        // are loaded at run time instead.
        let dirs = super::pkg_config(&["--variable=libdir", SPDK[1]]).unwrap_or_default();
        let dirs =
            dirs.into_iter().chain(spdk.iter().filter_map(|flag| Some(flag.strip_prefix("-L")?.to_owned())));
        if let Some(dir) = dirs.into_iter().find(|dir| Path::new(dir).join("libspdk_env_dpdk.so").exists()) {
            println!("cargo::rustc-env=DMA_SPDK_LINKED_DIR={dir}");
            return;
        }
        let mut behind = Vec::new();
        let add = |flags: &mut Vec<String>, package| {
            if super::pkg_config(&["--exists", package]).is_ok() {
                flags.extend(super::pkg_config(&["--libs", "--static", package]).unwrap_or_default());
            }
        };
        add(&mut spdk, DPDK_OF_SPDK);
        BEHIND.into_iter().for_each(|package| add(&mut behind, package));
        println!("cargo::rustc-cfg=spdk_linked");
        for instruction in instructions(&Flags { spdk, behind }, Path::exists, is_known) {
            println!("{instruction}");
        }
    }

    /// Returns true if the C compiler, which links the program, finds a file in its own directories. Without
    /// a compiler, returns true, and linking fails later.
    fn is_known(file: &str) -> bool {
        let found = std::process::Command::new("cc").arg(format!("-print-file-name={file}")).output();
        found.map_or(true, |output| String::from_utf8_lossy(&output.stdout).trim().contains('/'))
    }
}

#[cfg(feature = "bindgen")]
mod headers {
    use std::path::PathBuf;

    pub(super) fn bind() {
        let include = match std::env::var("SPDK_INCLUDE_DIR") {
            Ok(dir) => vec![format!("-I{dir}")],
            Err(_) => match super::pkg_config(&["--cflags-only-I", "spdk_ioat", "spdk_env_dpdk"]) {
                Ok(flags) => flags,
                Err(e) => {
                    let e = e.lines().next().unwrap_or_default();
                    println!(
                        "cargo::warning=feature `bindgen`: SPDK's headers (spdk/env.h, spdk/ioat.h) are not installed, so this crate's own \
                         declarations are used; set SPDK_INCLUDE_DIR to the directory that has spdk/ ({e})"
                    );
                    return;
                }
            },
        };
        println!("cargo::rustc-cfg=spdk_headers");
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
            .unwrap_or_else(|e| panic!("SPDK's headers cannot be bound: {e}; set SPDK_INCLUDE_DIR to the directory that has spdk/env.h"))
            .write_to_file(&out)
            .unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }

    /// Returns the C compiler's directory that contains `limits.h`. libclang is often installed without this
    /// header.
    fn compiler_include() -> Option<String> {
        let output = std::process::Command::new("cc").arg("-print-file-name=include").output().ok()?;
        let dir = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        dir.starts_with('/').then(|| format!("-isystem{dir}"))
    }
}
