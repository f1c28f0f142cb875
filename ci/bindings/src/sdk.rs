//! The SDKs: their headers, their libraries, what must be there.

use std::error::Error;
use std::path::Path;

/// A vendor's SDK.
pub(crate) struct Sdk {
    /// The crate of its declarations, from the repository's root.
    pub(crate) dir: &'static str,
    /// How the names of its functions and types begin.
    pub(crate) prefix: &'static str,
    /// How the names of its constants begin.
    pub(crate) constants: &'static str,
    /// Its headers.
    pub(crate) headers: &'static [&'static str],
    /// Macros to define.
    pub(crate) defines: &'static [&'static str],
    /// Types that differ between processors in bindgen's eyes, with the declaration that holds for all.
    pub(crate) by_hand: &'static [(&'static str, &'static str)],
    /// Its libraries that are loaded.
    pub(crate) libraries: &'static [Library],
}

/// A library of an SDK.
pub(crate) struct Library {
    /// The struct's name.
    pub(crate) name: &'static str,
    /// The file's name.
    pub(crate) file: &'static str,
    /// The headers whose functions it exports.
    pub(crate) headers: &'static [&'static str],
    /// What it must export to be used. Whatever else the headers name may be absent.
    pub(crate) required: &'static [&'static str],
}

/// All of them.
pub(crate) const ALL: &[Sdk] = &[DOCA, SPDK];

const DOCA: Sdk = Sdk {
    dir: "dma-doca/doca-sys",
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
    libraries: &[
        Library {
            name: "Common",
            file: "libdoca_common.so",
            headers: &[
                "doca_buf.h",
                "doca_buf_inventory.h",
                "doca_buf_pool.h",
                "doca_ctx.h",
                "doca_dev.h",
                "doca_error.h",
                "doca_graph.h",
                "doca_log.h",
                "doca_mmap.h",
                "doca_mmap_advise.h",
                "doca_pe.h",
                "doca_sync_event.h",
                "doca_version.h",
            ],
            required: &[
                "doca_buf_dec_refcount",
                "doca_buf_inventory_buf_get_by_args",
                "doca_buf_inventory_create",
                "doca_buf_inventory_destroy",
                "doca_buf_inventory_start",
                "doca_buf_set_data",
                "doca_ctx_get_state",
                "doca_ctx_set_user_data",
                "doca_ctx_start",
                "doca_ctx_stop",
                "doca_dev_as_devinfo",
                "doca_dev_close",
                "doca_dev_open",
                "doca_devinfo_create_list",
                "doca_devinfo_destroy_list",
                "doca_devinfo_get_pci_addr_str",
                "doca_error_get_descr",
                "doca_error_get_name",
                "doca_mmap_add_dev",
                "doca_mmap_create",
                "doca_mmap_destroy",
                "doca_mmap_set_memrange",
                "doca_mmap_set_permissions",
                "doca_mmap_start",
                "doca_mmap_stop",
                "doca_pe_connect_ctx",
                "doca_pe_create",
                "doca_pe_destroy",
                "doca_pe_progress",
                "doca_task_free",
                "doca_task_get_status",
                "doca_task_submit",
            ],
        },
        Library {
            name: "Dma",
            file: "libdoca_dma.so",
            headers: &["doca_dma.h"],
            required: &[
                "doca_dma_as_ctx",
                "doca_dma_cap_task_memcpy_get_max_buf_size",
                "doca_dma_cap_task_memcpy_is_supported",
                "doca_dma_create",
                "doca_dma_destroy",
                "doca_dma_task_memcpy_alloc_init",
                "doca_dma_task_memcpy_as_task",
                "doca_dma_task_memcpy_set_conf",
                "doca_dma_task_memcpy_set_dst",
                "doca_dma_task_memcpy_set_src",
            ],
        },
        Library {
            name: "Comch",
            file: "libdoca_comch.so",
            headers: &["doca_comch.h", "doca_comch_consumer.h", "doca_comch_producer.h"],
            required: &[
                "doca_comch_client_as_ctx",
                "doca_comch_client_create",
                "doca_comch_client_destroy",
                "doca_comch_client_event_msg_recv_register",
                "doca_comch_client_get_connection",
                "doca_comch_client_set_max_msg_size",
                "doca_comch_client_task_send_alloc_init",
                "doca_comch_client_task_send_set_conf",
                "doca_comch_server_as_ctx",
                "doca_comch_server_create",
                "doca_comch_server_destroy",
                "doca_comch_server_event_connection_status_changed_register",
                "doca_comch_server_event_msg_recv_register",
                "doca_comch_server_set_max_msg_size",
                "doca_comch_server_task_send_alloc_init",
                "doca_comch_server_task_send_set_conf",
                "doca_comch_task_send_as_task",
            ],
        },
    ],
};

const SPDK: Sdk = Sdk {
    dir: "dma-ioat/spdk-sys",
    prefix: "spdk_",
    constants: "SPDK_",
    headers: &["spdk/env.h", "spdk/ioat.h", "spdk/log.h", "spdk/cpuset.h", "spdk/version.h"],
    defines: &["_GNU_SOURCE"],
    by_hand: &[
        ("FILE", "pub type FILE = ::core::ffi::c_void;\n"),
        (
            "__va_list_tag",
            "/// A `va_list`, as parameter: on the common processors, the address of one.\n\
            pub type __va_list_tag = ::core::ffi::c_void;\n",
        ),
    ],
    libraries: &[
        Library {
            name: "Env",
            file: "libspdk_env_dpdk.so",
            headers: &["spdk/env.h"],
            required: &[
                "spdk_env_init",
                "spdk_env_opts_init",
                "spdk_free",
                "spdk_mem_register",
                "spdk_mem_unregister",
                "spdk_pci_addr_fmt",
                "spdk_pci_device_get_addr",
                "spdk_pci_device_get_device_id",
                "spdk_pci_device_get_vendor_id",
                "spdk_vtophys",
                "spdk_zmalloc",
            ],
        },
        Library {
            name: "Ioat",
            file: "libspdk_ioat.so",
            headers: &["spdk/ioat.h"],
            required: &[
                "spdk_ioat_build_copy",
                "spdk_ioat_build_fill",
                "spdk_ioat_detach",
                "spdk_ioat_flush",
                "spdk_ioat_get_dma_capabilities",
                "spdk_ioat_get_max_descriptors",
                "spdk_ioat_probe",
                "spdk_ioat_process_events",
            ],
        },
        Library {
            name: "Log",
            file: "libspdk_log.so",
            headers: &["spdk/log.h"],
            required: &["spdk_log_open", "spdk_log_set_print_level"],
        },
    ],
};

const HEAD: &str = r#"//! The declarations of the headers in `include/`, by the names that they have there.
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

/// What bindgen makes of an SDK's headers.
pub(crate) fn bindgen(sdk: &Sdk, include: &Path) -> Result<String, Box<dyn Error>> {
    let all: String = sdk.headers.iter().map(|h| format!("#include <{h}>\n")).collect();
    let builder = bindgen::Builder::default()
        .header_contents("all.h", &all)
        .clang_arg(format!("-I{}", include.display()))
        .clang_args(compiler_include()?.map(|dir| format!("-isystem{dir}")))
        .clang_args(sdk.defines.iter().map(|d| format!("-D{d}")))
        .allowlist_function(format!("{}.*", sdk.prefix))
        .allowlist_type(format!("{}.*", sdk.prefix))
        .allowlist_var(format!("{}.*", sdk.constants))
        // Of the C library's own types only pointers are passed on.
        .blocklist_type("FILE|_IO_FILE|va_list|__.*va_list.*|__off.*")
        .blocklist_type(sdk.by_hand.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("|"))
        .raw_line(sdk.by_hand.iter().map(|(_, text)| *text).collect::<String>())
        // Numbers, not enums: a newer library may answer with a value that is not listed.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .layout_tests(true)
        .rust_target(bindgen::RustTarget::stable(85, 0).map_err(|e| e.to_string())?)
        .rust_edition(bindgen::RustEdition::Edition2024)
        .formatter(bindgen::Formatter::Prettyplease)
        .disable_header_comment();
    let text = builder.generate()?.to_string();
    Ok(format!("{HEAD}{text}"))
}

/// Where the C compiler has `stddef.h` and its like: libclang often comes without its own.
fn compiler_include() -> Result<Option<String>, Box<dyn Error>> {
    let output = std::process::Command::new("cc")
        .arg("-print-file-name=include")
        .output()
        .map_err(|e| format!("cc, which knows where stddef.h is: {e}; install a C compiler"))?;
    let dir = String::from_utf8(output.stdout)?.trim().to_owned();
    Ok(Path::new(&dir).is_absolute().then_some(dir))
}
