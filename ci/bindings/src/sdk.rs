//! The SDKs: their headers, and what bindgen makes of them.

use std::error::Error;
use std::path::Path;

/// A vendor's SDK.
pub(crate) struct Sdk {
    /// The crate of its declarations, from the repository's root.
    pub(crate) dir: &'static str,
    /// The directory of its headers, and the file of the declarations, in that crate.
    pub(crate) include: &'static str,
    pub(crate) output: &'static str,
    /// Prefix of the names of its functions and types.
    pub(crate) prefix: &'static str,
    /// Prefix of the names of its constants.
    pub(crate) constants: &'static str,
    /// Its headers.
    pub(crate) headers: &'static [&'static str],
    /// Functions that no Rust code here calls, as a regular expression.
    pub(crate) uncalled: &'static str,
    /// Macros to define.
    pub(crate) defines: &'static [&'static str],
    /// Types that differ between processors in bindgen's eyes, with the declaration that holds for all.
    pub(crate) by_hand: &'static [(&'static str, &'static str)],
}

/// All of them.
pub(crate) const ALL: &[Sdk] = &[DOCA, WORKQ, SPDK, DMA];

const DOCA: Sdk = Sdk {
    dir: "dma-doca/doca-sys",
    include: "include",
    output: "src/bindings.rs",
    prefix: "doca_",
    constants: "DOCA_",
    headers: &[
        "doca_argp.h",
        "doca_buf.h",
        "doca_buf_inventory.h",
        "doca_buf_pool.h",
        "doca_comch.h",
        "doca_comch_consumer.h",
        "doca_comch_producer.h",
        "doca_config.h",
        "doca_ctx.h",
        "doca_dev.h",
        "doca_dma.h",
        "doca_error.h",
        "doca_graph.h",
        "doca_log.h",
        "doca_mmap.h",
        "doca_mmap_advise.h",
        "doca_pe.h",
        "doca_sync_event.h",
        "doca_types.h",
        "doca_version.h",
    ],
    uncalled: "doca_(comch_(consumer|producer)|graph|mmap_advise)_.*",
    defines: &["DOCA_ALLOW_EXPERIMENTAL_API"],
    by_hand: &[
        ("FILE", "pub type FILE = ::core::ffi::c_void;\n"),
        (
            "doca_argp_logger_cb_t",
            "/// The last parameter is a `va_list`: on the common processors, the address of one.\n\
            pub type doca_argp_logger_cb_t = ::core::option::Option<\n    unsafe extern \"C\" fn(\n        \
            level: doca_log_level,\n        format: *const ::core::ffi::c_char,\n        \
            args: *mut ::core::ffi::c_void,\n    ) -> doca_error_t,\n>;\n",
        ),
    ],
};

/// DOCA's generations of work queues. Types that later ones have too are those of their declarations.
const WORKQ: Sdk = Sdk {
    dir: "dma-doca/doca-sys",
    include: "include-workq",
    output: "src/workq/bindings.rs",
    prefix: "doca_",
    constants: "DOCA_(BUF_EXTENSION|DMA_JOB|JOB_FLAGS|WORKQ_RETRIEVE)_",
    headers: &[
        "doca_buf_inventory.h",
        "doca_comm_channel.h",
        "doca_dma.h",
        "doca_error.h",
        "doca_mmap.h",
        "doca_version.h",
    ],
    uncalled: "doca_(buf_(get|is|list_(is|last|next|num|unchain)|refcount_add|reset)_?.*|buf_inventory_(get|stop|buf_dup).*\
        |ctx_get_max.*|dev_rep_as_devinfo|devinfo_(get_(ip|is_pci|lid|mac)|rep_get_is).*|mmap_(dev_rm|stop)\
        |mmap_(get_(ex|from|max|num|user)|set_max_num_devices).*|version|workq_(get_(depth|event_driven)|set_depth).*)",
    defines: &["DOCA_ALLOW_EXPERIMENTAL_API", "DOCA_WORKQ_1_5", "DOCA_WORKQ_2_2"],
    by_hand: &[
        (
            "doca_(buf|buf_inventory|ctx|data|dev|dev_rep|devinfo|devinfo_rep|dma|error|error_t|event_handle_t|mmap|pci_func_type)",
            "pub(super) use crate::bindings::{\n    doca_buf, doca_buf_inventory, doca_ctx, doca_data, doca_dev, doca_dev_rep, doca_devinfo,\n    \
            doca_devinfo_rep, doca_dma, doca_error_t, doca_event_handle_t, doca_mmap, doca_pci_func_type,\n};\n",
        ),
        (
            "doca_pci_bdf.*",
            "/// The function in the upper 3 bits, the device in 5 below, the bus in the lowest 8.\n\
            #[repr(C)]\n#[derive(Clone, Copy, Debug, Default)]\npub struct doca_pci_bdf {\n    pub raw: u16,\n}\n",
        ),
        ("doca_access_flags", ""),
    ],
};

const SPDK: Sdk = Sdk {
    dir: "dma-ioat/spdk-sys",
    include: "include",
    output: "src/bindings.rs",
    prefix: "spdk_",
    constants: "SPDK_",
    headers: &["spdk/env.h", "spdk/ioat.h", "spdk/log.h", "spdk/cpuset.h", "spdk/version.h"],
    uncalled: "spdk_(cpuset_(copy|for_each_cpu|or|zero)|dma_realloc|flog|v?log_(close|dump|usage)|vf?log|pause)",
    defines: &["_GNU_SOURCE"],
    by_hand: &[
        ("FILE", "pub type FILE = ::core::ffi::c_void;\n"),
        (
            "__va_list_tag",
            "/// A `va_list`, as parameter: on the common processors, the address of one.\n\
            pub type __va_list_tag = ::core::ffi::c_void;\n",
        ),
    ],
};

/// This project's own header. The library takes its types and those of its functions from the declarations.
const DMA: Sdk = Sdk {
    dir: "bindings/c",
    include: "include",
    output: "src/header/bindings.rs",
    prefix: "dma_",
    constants: "DMA_",
    headers: &["dma.h"],
    uncalled: "",
    defines: &[],
    by_hand: &[],
};

const HEAD: &str = r#"//! The declarations of the headers in `INCLUDE/`, by the names that they have there.
//!
//! Written by the program in ci/bindings: change the headers, not this.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    unsafe_code,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::use_self,
    reason = "written by a program, with the names of C"
)]

"#;

/// Runs bindgen on the headers of an SDK.
pub(crate) fn bindgen(sdk: &Sdk, root: &Path) -> Result<String, Box<dyn Error>> {
    let include = root.join(sdk.dir).join(sdk.include);
    let all: String = sdk.headers.iter().map(|h| format!("#include <{h}>\n")).collect();
    let builder = bindgen::Builder::default()
        .header_contents("all.h", &all)
        .clang_arg(format!("-I{}", include.display()))
        .clang_args(compiler_include()?.map(|dir| format!("-isystem{dir}")))
        .clang_args(sdk.defines.iter().map(|d| format!("-D{d}")))
        .allowlist_function(format!("{}.*", sdk.prefix))
        .allowlist_type(format!("{}.*", sdk.prefix))
        .allowlist_var(format!("{}.*", sdk.constants))
        .blocklist_function(sdk.uncalled)
        // Types of the C library are passed on by pointers only.
        .blocklist_type("FILE|_IO_FILE|va_list|__.*va_list.*|__off.*")
        .blocklist_type(sdk.by_hand.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|"))
        .raw_line(sdk.by_hand.iter().map(|(_, text)| *text).collect::<String>().trim_end())
        // Numbers, not enums: a newer library may answer with a value that is not listed.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .merge_extern_blocks(true)
        .layout_tests(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|e| e.to_string())?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Rustfmt)
        .rustfmt_configuration_file(Some(root.join(".rustfmt.toml")))
        .disable_header_comment();
    let text = builder.generate()?.to_string();
    Ok(format!("{}{text}", HEAD.replace("INCLUDE", sdk.include)))
}

/// Writes the types of the functions that bindgen declared, by their names.
pub(crate) fn call_types(sdk: &Sdk, bindings: &str) -> String {
    let head = HEAD.replace("declarations of the headers", "types of the functions of the headers");
    let head = head.replacen("    missing_docs", "    dead_code,\n    unreachable_pub,\n    missing_docs", 1);
    let mut text = head.replace("INCLUDE", sdk.include) + "use super::bindings::*;\n\n";
    for call in bindings.split("    pub fn ").skip(1).filter(|call| call.starts_with(sdk.prefix)) {
        let words: Vec<_> = call.split(';').next().unwrap_or_default().split_whitespace().collect();
        if let Some((name, rest)) = words.join(" ").replace("( ", "(").replace(", )", ")").split_once('(') {
            text += &format!("pub type {name} = unsafe extern \"C\" fn({rest};\n");
        }
    }
    text
}

/// The C compiler's directory of `stddef.h` and the like, which libclang packages often lack.
fn compiler_include() -> Result<Option<String>, Box<dyn Error>> {
    let output = std::process::Command::new("cc")
        .arg("-print-file-name=include")
        .output()
        .map_err(|e| format!("cc, which knows where stddef.h is: {e}; install a C compiler"))?;
    let dir = String::from_utf8(output.stdout)?.trim().to_owned();
    Ok(Path::new(&dir).is_absolute().then_some(dir))
}
