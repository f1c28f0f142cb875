//! The calls of each library, as function pointers.
//!
//! Written by the program in ci/bindings: change that, not this.
#![expect(unsafe_code, reason = "addresses found by name are taken for functions")]
#![allow(clippy::undocumented_unsafe_blocks, clippy::multiple_unsafe_ops_per_block, reason = "written by a program")]

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use crate::bindings::*;
/// # Safety
///
/// `F` is a function pointer, and what it says of the function at `address` is true.
unsafe fn function<F: Copy>(address: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) }
    unsafe { core::mem::transmute_copy(&address) }
}
/// The calls of `libdoca_common.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Common {
    /// `doca_buf_chain_list`.
    pub doca_buf_chain_list: Option<
        unsafe extern "C" fn(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t,
    >,
    /// `doca_buf_chain_list_tail`.
    pub doca_buf_chain_list_tail: Option<
        unsafe extern "C" fn(
            list1_head: *mut doca_buf,
            list1_tail: *mut doca_buf,
            list2: *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_buf_dec_refcount`.
    pub doca_buf_dec_refcount: unsafe extern "C" fn(
        buf: *mut doca_buf,
        refcount: *mut u16,
    ) -> doca_error_t,
    /// `doca_buf_get_data`.
    pub doca_buf_get_data: Option<
        unsafe extern "C" fn(
            buf: *const doca_buf,
            data: *mut *mut ::core::ffi::c_void,
        ) -> doca_error_t,
    >,
    /// `doca_buf_get_data_len`.
    pub doca_buf_get_data_len: Option<
        unsafe extern "C" fn(buf: *const doca_buf, data_len: *mut usize) -> doca_error_t,
    >,
    /// `doca_buf_get_head`.
    pub doca_buf_get_head: Option<
        unsafe extern "C" fn(
            buf: *const doca_buf,
            head: *mut *mut ::core::ffi::c_void,
        ) -> doca_error_t,
    >,
    /// `doca_buf_get_last_in_list`.
    pub doca_buf_get_last_in_list: Option<
        unsafe extern "C" fn(
            buf: *mut doca_buf,
            last_buf: *mut *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_buf_get_len`.
    pub doca_buf_get_len: Option<
        unsafe extern "C" fn(buf: *const doca_buf, len: *mut usize) -> doca_error_t,
    >,
    /// `doca_buf_get_list_len`.
    pub doca_buf_get_list_len: Option<
        unsafe extern "C" fn(
            buf: *const doca_buf,
            num_elements: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_get_next_in_list`.
    pub doca_buf_get_next_in_list: Option<
        unsafe extern "C" fn(
            buf: *mut doca_buf,
            next_buf: *mut *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_buf_get_refcount`.
    pub doca_buf_get_refcount: Option<
        unsafe extern "C" fn(buf: *const doca_buf, refcount: *mut u16) -> doca_error_t,
    >,
    /// `doca_buf_inc_refcount`.
    pub doca_buf_inc_refcount: Option<
        unsafe extern "C" fn(buf: *mut doca_buf, refcount: *mut u16) -> doca_error_t,
    >,
    /// `doca_buf_inventory_buf_dup`.
    pub doca_buf_inventory_buf_dup: Option<
        unsafe extern "C" fn(
            inventory: *mut doca_buf_inventory,
            src_buf: *const doca_buf,
            dst_buf: *mut *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_buf_get_by_args`.
    pub doca_buf_inventory_buf_get_by_args: unsafe extern "C" fn(
        inventory: *mut doca_buf_inventory,
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
        buf: *mut *mut doca_buf,
    ) -> doca_error_t,
    /// `doca_buf_inventory_buf_reuse_by_args`.
    pub doca_buf_inventory_buf_reuse_by_args: Option<
        unsafe extern "C" fn(
            buf: *mut doca_buf,
            addr: *mut ::core::ffi::c_void,
            len: usize,
            data: *mut ::core::ffi::c_void,
            data_len: usize,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_create`.
    pub doca_buf_inventory_create: unsafe extern "C" fn(
        num_elements: usize,
        inventory: *mut *mut doca_buf_inventory,
    ) -> doca_error_t,
    /// `doca_buf_inventory_destroy`.
    pub doca_buf_inventory_destroy: unsafe extern "C" fn(
        inventory: *mut doca_buf_inventory,
    ) -> doca_error_t,
    /// `doca_buf_inventory_expand`.
    pub doca_buf_inventory_expand: Option<
        unsafe extern "C" fn(
            inventory: *mut doca_buf_inventory,
            num_elements: u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_get_num_elements`.
    pub doca_buf_inventory_get_num_elements: Option<
        unsafe extern "C" fn(
            inventory: *const doca_buf_inventory,
            num_of_elements: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_get_num_free_elements`.
    pub doca_buf_inventory_get_num_free_elements: Option<
        unsafe extern "C" fn(
            inventory: *const doca_buf_inventory,
            num_of_free_elements: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_get_user_data`.
    pub doca_buf_inventory_get_user_data: Option<
        unsafe extern "C" fn(
            inventory: *const doca_buf_inventory,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_set_user_data`.
    pub doca_buf_inventory_set_user_data: Option<
        unsafe extern "C" fn(
            inventory: *mut doca_buf_inventory,
            user_data: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_buf_inventory_start`.
    pub doca_buf_inventory_start: unsafe extern "C" fn(
        inventory: *mut doca_buf_inventory,
    ) -> doca_error_t,
    /// `doca_buf_inventory_stop`.
    pub doca_buf_inventory_stop: Option<
        unsafe extern "C" fn(inventory: *mut doca_buf_inventory) -> doca_error_t,
    >,
    /// `doca_buf_is_first_in_list`.
    pub doca_buf_is_first_in_list: Option<
        unsafe extern "C" fn(buf: *const doca_buf, is_first: *mut u8) -> doca_error_t,
    >,
    /// `doca_buf_is_in_list`.
    pub doca_buf_is_in_list: Option<
        unsafe extern "C" fn(buf: *const doca_buf, is_in_list: *mut u8) -> doca_error_t,
    >,
    /// `doca_buf_is_last_in_list`.
    pub doca_buf_is_last_in_list: Option<
        unsafe extern "C" fn(buf: *const doca_buf, is_last: *mut u8) -> doca_error_t,
    >,
    /// `doca_buf_pool_buf_alloc`.
    pub doca_buf_pool_buf_alloc: Option<
        unsafe extern "C" fn(
            buf_pool: *mut doca_buf_pool,
            buf: *mut *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_create`.
    pub doca_buf_pool_create: Option<
        unsafe extern "C" fn(
            num_elements: usize,
            element_size: usize,
            mmap: *const doca_mmap,
            buf_pool: *mut *mut doca_buf_pool,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_destroy`.
    pub doca_buf_pool_destroy: Option<
        unsafe extern "C" fn(buf_pool: *mut doca_buf_pool) -> doca_error_t,
    >,
    /// `doca_buf_pool_get_element_alignment`.
    pub doca_buf_pool_get_element_alignment: Option<
        unsafe extern "C" fn(
            buf_pool: *const doca_buf_pool,
            element_alignment: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_get_num_elements`.
    pub doca_buf_pool_get_num_elements: Option<
        unsafe extern "C" fn(
            buf_pool: *const doca_buf_pool,
            num_of_elements: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_get_num_free_elements`.
    pub doca_buf_pool_get_num_free_elements: Option<
        unsafe extern "C" fn(
            buf_pool: *const doca_buf_pool,
            num_of_free_elements: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_get_user_data`.
    pub doca_buf_pool_get_user_data: Option<
        unsafe extern "C" fn(
            buf_pool: *const doca_buf_pool,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_set_element_alignment`.
    pub doca_buf_pool_set_element_alignment: Option<
        unsafe extern "C" fn(
            buf_pool: *mut doca_buf_pool,
            element_alignment: usize,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_set_user_data`.
    pub doca_buf_pool_set_user_data: Option<
        unsafe extern "C" fn(
            buf_pool: *mut doca_buf_pool,
            user_data: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_buf_pool_start`.
    pub doca_buf_pool_start: Option<
        unsafe extern "C" fn(buf_pool: *mut doca_buf_pool) -> doca_error_t,
    >,
    /// `doca_buf_pool_stop`.
    pub doca_buf_pool_stop: Option<
        unsafe extern "C" fn(buf_pool: *mut doca_buf_pool) -> doca_error_t,
    >,
    /// `doca_buf_reset_data_len`.
    pub doca_buf_reset_data_len: Option<
        unsafe extern "C" fn(buf: *mut doca_buf) -> doca_error_t,
    >,
    /// `doca_buf_set_data`.
    pub doca_buf_set_data: unsafe extern "C" fn(
        buf: *mut doca_buf,
        data: *mut ::core::ffi::c_void,
        data_len: usize,
    ) -> doca_error_t,
    /// `doca_buf_set_data_len`.
    pub doca_buf_set_data_len: Option<
        unsafe extern "C" fn(buf: *mut doca_buf, data_len: usize) -> doca_error_t,
    >,
    /// `doca_buf_unchain_list`.
    pub doca_buf_unchain_list: Option<
        unsafe extern "C" fn(list1: *mut doca_buf, list2: *mut doca_buf) -> doca_error_t,
    >,
    /// `doca_ctx_cap_get_num_completion_vectors`.
    pub doca_ctx_cap_get_num_completion_vectors: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            num_comp_vectors: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_ctx_flush_tasks`.
    pub doca_ctx_flush_tasks: Option<unsafe extern "C" fn(ctx: *mut doca_ctx)>,
    /// `doca_ctx_get_num_inflight_tasks`.
    pub doca_ctx_get_num_inflight_tasks: Option<
        unsafe extern "C" fn(
            ctx: *const doca_ctx,
            num_inflight_tasks: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_ctx_get_state`.
    pub doca_ctx_get_state: unsafe extern "C" fn(
        ctx: *const doca_ctx,
        state: *mut doca_ctx_states,
    ) -> doca_error_t,
    /// `doca_ctx_get_user_data`.
    pub doca_ctx_get_user_data: Option<
        unsafe extern "C" fn(
            ctx: *const doca_ctx,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_ctx_set_completion_vector`.
    pub doca_ctx_set_completion_vector: Option<
        unsafe extern "C" fn(ctx: *mut doca_ctx, comp_vector: u32) -> doca_error_t,
    >,
    /// `doca_ctx_set_datapath_on_dpa`.
    pub doca_ctx_set_datapath_on_dpa: Option<
        unsafe extern "C" fn(ctx: *mut doca_ctx, dpa_dev: *mut doca_dpa) -> doca_error_t,
    >,
    /// `doca_ctx_set_datapath_on_gpu`.
    pub doca_ctx_set_datapath_on_gpu: Option<
        unsafe extern "C" fn(ctx: *mut doca_ctx, gpu_dev: *mut doca_gpu) -> doca_error_t,
    >,
    /// `doca_ctx_set_state_changed_cb`.
    pub doca_ctx_set_state_changed_cb: Option<
        unsafe extern "C" fn(
            ctx: *mut doca_ctx,
            cb: doca_ctx_state_changed_callback_t,
        ) -> doca_error_t,
    >,
    /// `doca_ctx_set_user_data`.
    pub doca_ctx_set_user_data: unsafe extern "C" fn(
        ctx: *mut doca_ctx,
        user_data: doca_data,
    ) -> doca_error_t,
    /// `doca_ctx_start`.
    pub doca_ctx_start: unsafe extern "C" fn(ctx: *mut doca_ctx) -> doca_error_t,
    /// `doca_ctx_stop`.
    pub doca_ctx_stop: unsafe extern "C" fn(ctx: *mut doca_ctx) -> doca_error_t,
    /// `doca_dev_accelerate_resource_reclaim`.
    pub doca_dev_accelerate_resource_reclaim: Option<
        unsafe extern "C" fn(dev: *mut doca_dev) -> doca_error_t,
    >,
    /// `doca_dev_as_devinfo`.
    pub doca_dev_as_devinfo: unsafe extern "C" fn(
        dev: *const doca_dev,
    ) -> *mut doca_devinfo,
    /// `doca_dev_close`.
    pub doca_dev_close: unsafe extern "C" fn(dev: *mut doca_dev) -> doca_error_t,
    /// `doca_dev_open`.
    pub doca_dev_open: unsafe extern "C" fn(
        devinfo: *mut doca_devinfo,
        dev: *mut *mut doca_dev,
    ) -> doca_error_t,
    /// `doca_dev_rep_as_devinfo`.
    pub doca_dev_rep_as_devinfo: Option<
        unsafe extern "C" fn(dev_rep: *mut doca_dev_rep) -> *mut doca_devinfo_rep,
    >,
    /// `doca_dev_rep_close`.
    pub doca_dev_rep_close: Option<
        unsafe extern "C" fn(dev: *mut doca_dev_rep) -> doca_error_t,
    >,
    /// `doca_dev_rep_open`.
    pub doca_dev_rep_open: Option<
        unsafe extern "C" fn(
            devinfo: *mut doca_devinfo_rep,
            dev_rep: *mut *mut doca_dev_rep,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_cap_is_accelerate_resource_reclaim_supported`.
    pub doca_devinfo_cap_is_accelerate_resource_reclaim_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            is_accelerate_resource_reclaim: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_cap_is_hotplug_manager_supported`.
    pub doca_devinfo_cap_is_hotplug_manager_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            is_hotplug_manager: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_cap_is_notification_moderation_supported`.
    pub doca_devinfo_cap_is_notification_moderation_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            is_notification_moderation_supported: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_create_list`.
    pub doca_devinfo_create_list: unsafe extern "C" fn(
        dev_list: *mut *mut *mut doca_devinfo,
        nb_devs: *mut u32,
    ) -> doca_error_t,
    /// `doca_devinfo_destroy_list`.
    pub doca_devinfo_destroy_list: unsafe extern "C" fn(
        dev_list: *mut *mut doca_devinfo,
    ) -> doca_error_t,
    /// `doca_devinfo_get_active_rate`.
    pub doca_devinfo_get_active_rate: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            active_rate: *mut u64,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_ibdev_name`.
    pub doca_devinfo_get_ibdev_name: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            ibdev_name: *mut ::core::ffi::c_char,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_iface_name`.
    pub doca_devinfo_get_iface_name: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            iface_name: *mut ::core::ffi::c_char,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_ipv4_addr`.
    pub doca_devinfo_get_ipv4_addr: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            ipv4_addr: *mut u8,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_ipv6_addr`.
    pub doca_devinfo_get_ipv6_addr: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            ipv6_addr: *mut u8,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_lid`.
    pub doca_devinfo_get_lid: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo, lid: *mut u16) -> doca_error_t,
    >,
    /// `doca_devinfo_get_mac_addr`.
    pub doca_devinfo_get_mac_addr: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            mac_addr: *mut u8,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_pci_addr_str`.
    pub doca_devinfo_get_pci_addr_str: unsafe extern "C" fn(
        devinfo: *const doca_devinfo,
        pci_addr_str: *mut ::core::ffi::c_char,
    ) -> doca_error_t,
    /// `doca_devinfo_get_pci_func_type`.
    pub doca_devinfo_get_pci_func_type: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            pci_func_type: *mut doca_pci_func_type,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_sf_index`.
    pub doca_devinfo_get_sf_index: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            sf_index: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_get_vhca_id`.
    pub doca_devinfo_get_vhca_id: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            vhca_id: *mut u16,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_is_equal_pci_addr`.
    pub doca_devinfo_is_equal_pci_addr: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            pci_addr_str: *const ::core::ffi::c_char,
            is_equal: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_cap_is_filter_all_supported`.
    pub doca_devinfo_rep_cap_is_filter_all_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            filter_all_supported: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_cap_is_filter_emulated_supported`.
    pub doca_devinfo_rep_cap_is_filter_emulated_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            filter_emulated_supported: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_cap_is_filter_net_supported`.
    pub doca_devinfo_rep_cap_is_filter_net_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            filter_net_supported: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_create_list`.
    pub doca_devinfo_rep_create_list: Option<
        unsafe extern "C" fn(
            dev: *mut doca_dev,
            filter: ::core::ffi::c_int,
            dev_list_rep: *mut *mut *mut doca_devinfo_rep,
            nb_devs_rep: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_destroy_list`.
    pub doca_devinfo_rep_destroy_list: Option<
        unsafe extern "C" fn(dev_list_rep: *mut *mut doca_devinfo_rep) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_iface_name`.
    pub doca_devinfo_rep_get_iface_name: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            iface_name: *mut ::core::ffi::c_char,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_is_hotplug`.
    pub doca_devinfo_rep_get_is_hotplug: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            is_hotplug: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_pci_addr_str`.
    pub doca_devinfo_rep_get_pci_addr_str: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            pci_addr_str: *mut ::core::ffi::c_char,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_pci_func_type`.
    pub doca_devinfo_rep_get_pci_func_type: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            pci_func_type: *mut doca_pci_func_type,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_vhca_id`.
    pub doca_devinfo_rep_get_vhca_id: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            vhca_id: *mut u16,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_get_vuid`.
    pub doca_devinfo_rep_get_vuid: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            rep_vuid: *mut ::core::ffi::c_char,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_devinfo_rep_is_equal_pci_addr`.
    pub doca_devinfo_rep_is_equal_pci_addr: Option<
        unsafe extern "C" fn(
            devinfo_rep: *const doca_devinfo_rep,
            pci_addr_str: *const ::core::ffi::c_char,
            is_equal: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_error_get_descr`.
    pub doca_error_get_descr: unsafe extern "C" fn(
        error: doca_error_t,
    ) -> *const ::core::ffi::c_char,
    /// `doca_error_get_name`.
    pub doca_error_get_name: unsafe extern "C" fn(
        error: doca_error_t,
    ) -> *const ::core::ffi::c_char,
    /// `doca_graph_add_dependency`.
    pub doca_graph_add_dependency: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            from: *mut doca_graph_node,
            to: *mut doca_graph_node,
        ) -> doca_error_t,
    >,
    /// `doca_graph_create`.
    pub doca_graph_create: Option<
        unsafe extern "C" fn(
            pe: *mut doca_pe,
            graph: *mut *mut doca_graph,
        ) -> doca_error_t,
    >,
    /// `doca_graph_destroy`.
    pub doca_graph_destroy: Option<
        unsafe extern "C" fn(graph: *mut doca_graph) -> doca_error_t,
    >,
    /// `doca_graph_get_user_data`.
    pub doca_graph_get_user_data: Option<
        unsafe extern "C" fn(
            graph: *const doca_graph,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_create`.
    pub doca_graph_instance_create: Option<
        unsafe extern "C" fn(
            graph: *const doca_graph,
            graph_instance: *mut *mut doca_graph_instance,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_destroy`.
    pub doca_graph_instance_destroy: Option<
        unsafe extern "C" fn(graph_instance: *mut doca_graph_instance) -> doca_error_t,
    >,
    /// `doca_graph_instance_get_user_data`.
    pub doca_graph_instance_get_user_data: Option<
        unsafe extern "C" fn(
            graph_instance: *const doca_graph_instance,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_set_ctx_node_data`.
    pub doca_graph_instance_set_ctx_node_data: Option<
        unsafe extern "C" fn(
            graph_instance: *mut doca_graph_instance,
            node: *mut doca_graph_node,
            task: *mut doca_task,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_set_sub_graph_node_data`.
    pub doca_graph_instance_set_sub_graph_node_data: Option<
        unsafe extern "C" fn(
            graph_instance: *mut doca_graph_instance,
            node: *mut doca_graph_node,
            sub_graph_instance: *mut doca_graph_instance,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_set_user_data`.
    pub doca_graph_instance_set_user_data: Option<
        unsafe extern "C" fn(
            graph_instance: *mut doca_graph_instance,
            user_data: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_set_user_node_data`.
    pub doca_graph_instance_set_user_node_data: Option<
        unsafe extern "C" fn(
            graph_instance: *mut doca_graph_instance,
            node: *mut doca_graph_node,
            cookie: *mut ::core::ffi::c_void,
        ) -> doca_error_t,
    >,
    /// `doca_graph_instance_submit`.
    pub doca_graph_instance_submit: Option<
        unsafe extern "C" fn(graph_instance: *mut doca_graph_instance) -> doca_error_t,
    >,
    /// `doca_graph_node_create_from_ctx`.
    pub doca_graph_node_create_from_ctx: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            ctx: *const doca_ctx,
            node: *mut *mut doca_graph_node,
        ) -> doca_error_t,
    >,
    /// `doca_graph_node_create_from_graph`.
    pub doca_graph_node_create_from_graph: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            sub_graph: *mut doca_graph,
            node: *mut *mut doca_graph_node,
        ) -> doca_error_t,
    >,
    /// `doca_graph_node_create_from_user`.
    pub doca_graph_node_create_from_user: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            cb: doca_graph_user_node_cb_t,
            node: *mut *mut doca_graph_node,
        ) -> doca_error_t,
    >,
    /// `doca_graph_set_conf`.
    pub doca_graph_set_conf: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            graph_completion_cb: doca_graph_completion_cb_t,
            graph_error_cb: doca_graph_completion_cb_t,
            num_instances: u32,
        ) -> doca_error_t,
    >,
    /// `doca_graph_set_user_data`.
    pub doca_graph_set_user_data: Option<
        unsafe extern "C" fn(
            graph: *mut doca_graph,
            user_data: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_graph_start`.
    pub doca_graph_start: Option<
        unsafe extern "C" fn(graph: *mut doca_graph) -> doca_error_t,
    >,
    /// `doca_graph_stop`.
    pub doca_graph_stop: Option<
        unsafe extern "C" fn(graph: *mut doca_graph) -> doca_error_t,
    >,
    /// `doca_log_backend_create_standard`.
    pub doca_log_backend_create_standard: Option<unsafe extern "C" fn() -> doca_error_t>,
    /// `doca_log_backend_create_with_buf`.
    pub doca_log_backend_create_with_buf: Option<
        unsafe extern "C" fn(
            buf: *mut ::core::ffi::c_char,
            capacity: usize,
            handler: log_flush_callback,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_buf_sdk`.
    pub doca_log_backend_create_with_buf_sdk: Option<
        unsafe extern "C" fn(
            buf: *mut ::core::ffi::c_char,
            capacity: usize,
            handler: log_flush_callback,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_fd`.
    pub doca_log_backend_create_with_fd: Option<
        unsafe extern "C" fn(
            fd: ::core::ffi::c_int,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_fd_sdk`.
    pub doca_log_backend_create_with_fd_sdk: Option<
        unsafe extern "C" fn(
            fd: ::core::ffi::c_int,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_file`.
    pub doca_log_backend_create_with_file: Option<
        unsafe extern "C" fn(
            fptr: *mut FILE,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_file_sdk`.
    pub doca_log_backend_create_with_file_sdk: Option<
        unsafe extern "C" fn(
            fptr: *mut FILE,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_syslog`.
    pub doca_log_backend_create_with_syslog: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_create_with_syslog_sdk`.
    pub doca_log_backend_create_with_syslog_sdk: Option<
        unsafe extern "C" fn(
            name: *const ::core::ffi::c_char,
            backend: *mut *mut doca_log_backend,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_set_level_lower_limit`.
    pub doca_log_backend_set_level_lower_limit: Option<
        unsafe extern "C" fn(backend: *mut doca_log_backend, level: u32) -> doca_error_t,
    >,
    /// `doca_log_backend_set_level_lower_limit_strict`.
    pub doca_log_backend_set_level_lower_limit_strict: Option<
        unsafe extern "C" fn(backend: *mut doca_log_backend) -> doca_error_t,
    >,
    /// `doca_log_backend_set_level_upper_limit`.
    pub doca_log_backend_set_level_upper_limit: Option<
        unsafe extern "C" fn(
            backend: *mut doca_log_backend,
            upper_limit: u32,
        ) -> doca_error_t,
    >,
    /// `doca_log_backend_set_level_upper_limit_strict`.
    pub doca_log_backend_set_level_upper_limit_strict: Option<
        unsafe extern "C" fn(backend: *mut doca_log_backend) -> doca_error_t,
    >,
    /// `doca_log_backend_set_sdk_level`.
    pub doca_log_backend_set_sdk_level: Option<
        unsafe extern "C" fn(backend: *mut doca_log_backend, level: u32) -> doca_error_t,
    >,
    /// `doca_log_level_get_global_lower_limit`.
    pub doca_log_level_get_global_lower_limit: Option<unsafe extern "C" fn() -> u32>,
    /// `doca_log_level_get_global_sdk_limit`.
    pub doca_log_level_get_global_sdk_limit: Option<unsafe extern "C" fn() -> u32>,
    /// `doca_log_level_get_global_upper_limit`.
    pub doca_log_level_get_global_upper_limit: Option<unsafe extern "C" fn() -> u32>,
    /// `doca_log_level_set_global_lower_limit`.
    pub doca_log_level_set_global_lower_limit: Option<
        unsafe extern "C" fn(level: u32) -> doca_error_t,
    >,
    /// `doca_log_level_set_global_sdk_limit`.
    pub doca_log_level_set_global_sdk_limit: Option<
        unsafe extern "C" fn(level: u32) -> doca_error_t,
    >,
    /// `doca_log_level_set_global_upper_limit`.
    pub doca_log_level_set_global_upper_limit: Option<
        unsafe extern "C" fn(upper_limit: u32) -> doca_error_t,
    >,
    /// `doca_log_register_source`.
    pub doca_log_register_source: Option<
        unsafe extern "C" fn(
            source_name: *const ::core::ffi::c_char,
            source: *mut ::core::ffi::c_int,
        ) -> doca_error_t,
    >,
    /// `doca_log_unregister_source`.
    pub doca_log_unregister_source: Option<
        unsafe extern "C" fn(source: ::core::ffi::c_int) -> doca_error_t,
    >,
    /// `doca_mmap_add_dev`.
    pub doca_mmap_add_dev: unsafe extern "C" fn(
        mmap: *mut doca_mmap,
        dev: *mut doca_dev,
    ) -> doca_error_t,
    /// `doca_mmap_advise_as_ctx`.
    pub doca_mmap_advise_as_ctx: Option<
        unsafe extern "C" fn(mmap_advise: *mut doca_mmap_advise) -> *mut doca_ctx,
    >,
    /// `doca_mmap_advise_cap_task_cache_invalidate_is_supported`.
    pub doca_mmap_advise_cap_task_cache_invalidate_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_mmap_advise_create`.
    pub doca_mmap_advise_create: Option<
        unsafe extern "C" fn(
            dev: *mut doca_dev,
            mmap_advise: *mut *mut doca_mmap_advise,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_advise_destroy`.
    pub doca_mmap_advise_destroy: Option<
        unsafe extern "C" fn(mmap_advise: *mut doca_mmap_advise) -> doca_error_t,
    >,
    /// `doca_mmap_advise_task_cache_invalidate_get_max_buf_size`.
    pub doca_mmap_advise_task_cache_invalidate_get_max_buf_size: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            buf_size: *mut u64,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_advise_task_invalidate_cache_alloc_init`.
    pub doca_mmap_advise_task_invalidate_cache_alloc_init: Option<
        unsafe extern "C" fn(
            mmap_advise: *mut doca_mmap_advise,
            buf: *mut doca_buf,
            user_data: doca_data,
            task: *mut *mut doca_mmap_advise_task_invalidate_cache,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_advise_task_invalidate_cache_as_doca_task`.
    pub doca_mmap_advise_task_invalidate_cache_as_doca_task: Option<
        unsafe extern "C" fn(
            task: *mut doca_mmap_advise_task_invalidate_cache,
        ) -> *mut doca_task,
    >,
    /// `doca_mmap_advise_task_invalidate_cache_get_buf`.
    pub doca_mmap_advise_task_invalidate_cache_get_buf: Option<
        unsafe extern "C" fn(
            task: *const doca_mmap_advise_task_invalidate_cache,
        ) -> *mut doca_buf,
    >,
    /// `doca_mmap_advise_task_invalidate_cache_set_buf`.
    pub doca_mmap_advise_task_invalidate_cache_set_buf: Option<
        unsafe extern "C" fn(
            task: *mut doca_mmap_advise_task_invalidate_cache,
            buf: *mut doca_buf,
        ),
    >,
    /// `doca_mmap_advise_task_invalidate_cache_set_conf`.
    pub doca_mmap_advise_task_invalidate_cache_set_conf: Option<
        unsafe extern "C" fn(
            mmap_advise: *mut doca_mmap_advise,
            completion_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
            error_cb: doca_mmap_advise_task_invalidate_cache_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_cap_is_create_from_export_pci_supported`.
    pub doca_mmap_cap_is_create_from_export_pci_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            from_export: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_cap_is_export_pci_supported`.
    pub doca_mmap_cap_is_export_pci_supported: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            mmap_export: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_create`.
    pub doca_mmap_create: unsafe extern "C" fn(
        mmap: *mut *mut doca_mmap,
    ) -> doca_error_t,
    /// `doca_mmap_create_from_export`.
    pub doca_mmap_create_from_export: Option<
        unsafe extern "C" fn(
            user_data: *const doca_data,
            export_desc: *const ::core::ffi::c_void,
            export_desc_len: usize,
            dev: *mut doca_dev,
            mmap: *mut *mut doca_mmap,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_destroy`.
    pub doca_mmap_destroy: unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t,
    /// `doca_mmap_dev_get_dpa_handle`.
    pub doca_mmap_dev_get_dpa_handle: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            dev: *const doca_dev,
            dpa_mmap_handle: *mut doca_dpa_dev_mmap_t,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_enable_thread_safety`.
    pub doca_mmap_enable_thread_safety: Option<
        unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t,
    >,
    /// `doca_mmap_export_pci`.
    pub doca_mmap_export_pci: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            dev: *const doca_dev,
            export_desc: *mut *const ::core::ffi::c_void,
            export_desc_len: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_export_rdma`.
    pub doca_mmap_export_rdma: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            dev: *const doca_dev,
            export_desc: *mut *const ::core::ffi::c_void,
            export_desc_len: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_get_exported`.
    pub doca_mmap_get_exported: Option<
        unsafe extern "C" fn(mmap: *const doca_mmap, exported: *mut u8) -> doca_error_t,
    >,
    /// `doca_mmap_get_from_export`.
    pub doca_mmap_get_from_export: Option<
        unsafe extern "C" fn(
            mmap: *const doca_mmap,
            from_export: *mut u8,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_get_max_num_devices`.
    pub doca_mmap_get_max_num_devices: Option<
        unsafe extern "C" fn(
            mmap: *const doca_mmap,
            max_num_devices: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_get_memrange`.
    pub doca_mmap_get_memrange: Option<
        unsafe extern "C" fn(
            mmap: *const doca_mmap,
            addr: *mut *mut ::core::ffi::c_void,
            len: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_get_num_bufs`.
    pub doca_mmap_get_num_bufs: Option<
        unsafe extern "C" fn(mmap: *const doca_mmap, num_bufs: *mut u32) -> doca_error_t,
    >,
    /// `doca_mmap_get_user_data`.
    pub doca_mmap_get_user_data: Option<
        unsafe extern "C" fn(
            mmap: *const doca_mmap,
            user_data: *mut doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_rm_dev`.
    pub doca_mmap_rm_dev: Option<
        unsafe extern "C" fn(mmap: *mut doca_mmap, dev: *mut doca_dev) -> doca_error_t,
    >,
    /// `doca_mmap_set_dmabuf_memrange`.
    pub doca_mmap_set_dmabuf_memrange: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            dmabuf_fd: ::core::ffi::c_int,
            addr: *mut ::core::ffi::c_void,
            dmabuf_offset: usize,
            len: usize,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_set_dpa_memrange`.
    pub doca_mmap_set_dpa_memrange: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            dpa: *mut doca_dpa,
            dpa_addr: u64,
            len: usize,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_set_free_cb`.
    pub doca_mmap_set_free_cb: Option<
        unsafe extern "C" fn(
            mmap: *mut doca_mmap,
            free_cb: doca_mmap_memrange_free_cb_t,
            opaque: *mut ::core::ffi::c_void,
        ) -> doca_error_t,
    >,
    /// `doca_mmap_set_max_num_devices`.
    pub doca_mmap_set_max_num_devices: Option<
        unsafe extern "C" fn(mmap: *mut doca_mmap, max_num_devices: u32) -> doca_error_t,
    >,
    /// `doca_mmap_set_memrange`.
    pub doca_mmap_set_memrange: unsafe extern "C" fn(
        mmap: *mut doca_mmap,
        addr: *mut ::core::ffi::c_void,
        len: usize,
    ) -> doca_error_t,
    /// `doca_mmap_set_permissions`.
    pub doca_mmap_set_permissions: unsafe extern "C" fn(
        mmap: *mut doca_mmap,
        access_mask: u32,
    ) -> doca_error_t,
    /// `doca_mmap_set_user_data`.
    pub doca_mmap_set_user_data: Option<
        unsafe extern "C" fn(mmap: *mut doca_mmap, user_data: doca_data) -> doca_error_t,
    >,
    /// `doca_mmap_start`.
    pub doca_mmap_start: unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t,
    /// `doca_mmap_stop`.
    pub doca_mmap_stop: unsafe extern "C" fn(mmap: *mut doca_mmap) -> doca_error_t,
    /// `doca_pe_clear_notification`.
    pub doca_pe_clear_notification: Option<
        unsafe extern "C" fn(
            pe: *mut doca_pe,
            handle: doca_notification_handle_t,
        ) -> doca_error_t,
    >,
    /// `doca_pe_connect_ctx`.
    pub doca_pe_connect_ctx: unsafe extern "C" fn(
        pe: *mut doca_pe,
        ctx: *mut doca_ctx,
    ) -> doca_error_t,
    /// `doca_pe_create`.
    pub doca_pe_create: unsafe extern "C" fn(pe: *mut *mut doca_pe) -> doca_error_t,
    /// `doca_pe_destroy`.
    pub doca_pe_destroy: unsafe extern "C" fn(pe: *mut doca_pe) -> doca_error_t,
    /// `doca_pe_get_notification_handle`.
    pub doca_pe_get_notification_handle: Option<
        unsafe extern "C" fn(
            pe: *const doca_pe,
            handle: *mut doca_notification_handle_t,
        ) -> doca_error_t,
    >,
    /// `doca_pe_get_num_inflight_tasks`.
    pub doca_pe_get_num_inflight_tasks: Option<
        unsafe extern "C" fn(
            pe: *const doca_pe,
            num_inflight_tasks: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_pe_progress`.
    pub doca_pe_progress: unsafe extern "C" fn(pe: *mut doca_pe) -> u8,
    /// `doca_pe_request_notification`.
    pub doca_pe_request_notification: Option<
        unsafe extern "C" fn(pe: *mut doca_pe) -> doca_error_t,
    >,
    /// `doca_pe_set_event_mode`.
    pub doca_pe_set_event_mode: Option<
        unsafe extern "C" fn(
            pe: *mut doca_pe,
            event_mode: doca_pe_event_mode,
        ) -> doca_error_t,
    >,
    /// `doca_pe_set_notification_handle`.
    pub doca_pe_set_notification_handle: Option<
        unsafe extern "C" fn(
            pe: *mut doca_pe,
            handle: doca_notification_handle_t,
            completion_key: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_publisher_location_cpu`.
    pub doca_sync_event_add_publisher_location_cpu: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dev: *mut doca_dev,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_publisher_location_dpa`.
    pub doca_sync_event_add_publisher_location_dpa: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dpa: *mut doca_dpa,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_publisher_location_gpu`.
    pub doca_sync_event_add_publisher_location_gpu: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            gpu: *mut doca_gpu,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_publisher_location_remote_net`.
    pub doca_sync_event_add_publisher_location_remote_net: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_add_publisher_location_remote_pci`.
    pub doca_sync_event_add_publisher_location_remote_pci: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_add_subscriber_location_cpu`.
    pub doca_sync_event_add_subscriber_location_cpu: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dev: *mut doca_dev,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_subscriber_location_dpa`.
    pub doca_sync_event_add_subscriber_location_dpa: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dpa: *mut doca_dpa,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_subscriber_location_gpu`.
    pub doca_sync_event_add_subscriber_location_gpu: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            gpu: *mut doca_gpu,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_add_subscriber_location_remote_pci`.
    pub doca_sync_event_add_subscriber_location_remote_pci: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_as_ctx`.
    pub doca_sync_event_as_ctx: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> *mut doca_ctx,
    >,
    /// `doca_sync_event_cap_is_create_from_export_supported`.
    pub doca_sync_event_cap_is_create_from_export_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_is_export_to_dpa_supported`.
    pub doca_sync_event_cap_is_export_to_dpa_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_is_export_to_gpu_supported`.
    pub doca_sync_event_cap_is_export_to_gpu_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_is_export_to_remote_net_supported`.
    pub doca_sync_event_cap_is_export_to_remote_net_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_is_export_to_remote_pci_supported`.
    pub doca_sync_event_cap_is_export_to_remote_pci_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_remote_net_is_create_from_export_supported`.
    pub doca_sync_event_cap_remote_net_is_create_from_export_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_remote_net_is_export_to_dpa_supported`.
    pub doca_sync_event_cap_remote_net_is_export_to_dpa_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_remote_net_is_export_to_gpu_supported`.
    pub doca_sync_event_cap_remote_net_is_export_to_gpu_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_task_get_is_supported`.
    pub doca_sync_event_cap_task_get_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_task_notify_add_is_supported`.
    pub doca_sync_event_cap_task_notify_add_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_task_notify_set_is_supported`.
    pub doca_sync_event_cap_task_notify_set_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_task_wait_eq_is_supported`.
    pub doca_sync_event_cap_task_wait_eq_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_cap_task_wait_neq_is_supported`.
    pub doca_sync_event_cap_task_wait_neq_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_sync_event_create`.
    pub doca_sync_event_create: Option<
        unsafe extern "C" fn(event: *mut *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_create_from_export`.
    pub doca_sync_event_create_from_export: Option<
        unsafe extern "C" fn(
            dev: *mut doca_dev,
            data: *const u8,
            sz: usize,
            event: *mut *mut doca_sync_event,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_destroy`.
    pub doca_sync_event_destroy: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_export_to_remote_net`.
    pub doca_sync_event_export_to_remote_net: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            data: *mut *const u8,
            sz: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_export_to_remote_pci`.
    pub doca_sync_event_export_to_remote_pci: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dev: *mut doca_dev,
            data: *mut *const u8,
            sz: *mut usize,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_get`.
    pub doca_sync_event_get: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: *mut u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_get_dpa_handle`.
    pub doca_sync_event_get_dpa_handle: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            dpa: *mut doca_dpa,
            dpa_dev_se_handle: *mut doca_dpa_dev_sync_event_t,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_get_gpu_handle`.
    pub doca_sync_event_get_gpu_handle: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            gpu: *mut doca_gpu,
            gpu_dev_se: *mut *mut doca_gpu_dev_sync_event_t,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_remote_net_create_from_export`.
    pub doca_sync_event_remote_net_create_from_export: Option<
        unsafe extern "C" fn(
            dev: *mut doca_dev,
            data: *const u8,
            sz: usize,
            event: *mut *mut doca_sync_event_remote_net,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_remote_net_destroy`.
    pub doca_sync_event_remote_net_destroy: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event_remote_net) -> doca_error_t,
    >,
    /// `doca_sync_event_remote_net_get_dpa_handle`.
    pub doca_sync_event_remote_net_get_dpa_handle: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event_remote_net,
            dpa: *mut doca_dpa,
            dpa_remote_event: *mut doca_dpa_dev_sync_event_remote_net_t,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_remote_net_get_gpu_handle`.
    pub doca_sync_event_remote_net_get_gpu_handle: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event_remote_net,
            gpu: *mut doca_gpu,
            gpu_remote_event: *mut doca_gpu_dev_sync_event_remote_net_t,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_set_addr`.
    pub doca_sync_event_set_addr: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event, addr: *mut u64) -> doca_error_t,
    >,
    /// `doca_sync_event_set_doca_buf`.
    pub doca_sync_event_set_doca_buf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            buf: *mut doca_buf,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_start`.
    pub doca_sync_event_start: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_stop`.
    pub doca_sync_event_stop: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event) -> doca_error_t,
    >,
    /// `doca_sync_event_task_get_alloc_init`.
    pub doca_sync_event_task_get_alloc_init: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            ret_val_ptr: *mut u64,
            user_data: doca_data,
            task: *mut *mut doca_sync_event_task_get,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_get_as_doca_task`.
    pub doca_sync_event_task_get_as_doca_task: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_get) -> *mut doca_task,
    >,
    /// `doca_sync_event_task_get_get_ret_val_ptr`.
    pub doca_sync_event_task_get_get_ret_val_ptr: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_get) -> *mut u64,
    >,
    /// `doca_sync_event_task_get_set_conf`.
    pub doca_sync_event_task_get_set_conf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            completion_cb: doca_sync_event_task_get_completion_cb_t,
            error_cb: doca_sync_event_task_get_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_get_set_ret_val_ptr`.
    pub doca_sync_event_task_get_set_ret_val_ptr: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_get, ret_val_ptr: *mut u64),
    >,
    /// `doca_sync_event_task_notify_add_alloc_init`.
    pub doca_sync_event_task_notify_add_alloc_init: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            inc_val: u64,
            fetched_val_ptr: *mut u64,
            user_data: doca_data,
            task: *mut *mut doca_sync_event_task_notify_add,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_notify_add_as_doca_task`.
    pub doca_sync_event_task_notify_add_as_doca_task: Option<
        unsafe extern "C" fn(
            task: *mut doca_sync_event_task_notify_add,
        ) -> *mut doca_task,
    >,
    /// `doca_sync_event_task_notify_add_get_fetched_val_ptr`.
    pub doca_sync_event_task_notify_add_get_fetched_val_ptr: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_notify_add) -> *mut u64,
    >,
    /// `doca_sync_event_task_notify_add_get_inc_val`.
    pub doca_sync_event_task_notify_add_get_inc_val: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_notify_add) -> u64,
    >,
    /// `doca_sync_event_task_notify_add_set_conf`.
    pub doca_sync_event_task_notify_add_set_conf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            completion_cb: doca_sync_event_task_notify_add_completion_cb_t,
            error_cb: doca_sync_event_task_notify_add_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_notify_add_set_fetched_val_ptr`.
    pub doca_sync_event_task_notify_add_set_fetched_val_ptr: Option<
        unsafe extern "C" fn(
            task: *mut doca_sync_event_task_notify_add,
            fetched_val_ptr: *mut u64,
        ),
    >,
    /// `doca_sync_event_task_notify_add_set_inc_val`.
    pub doca_sync_event_task_notify_add_set_inc_val: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_notify_add, inc_val: u64),
    >,
    /// `doca_sync_event_task_notify_set_alloc_init`.
    pub doca_sync_event_task_notify_set_alloc_init: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            set_val: u64,
            user_data: doca_data,
            task: *mut *mut doca_sync_event_task_notify_set,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_notify_set_as_doca_task`.
    pub doca_sync_event_task_notify_set_as_doca_task: Option<
        unsafe extern "C" fn(
            task: *mut doca_sync_event_task_notify_set,
        ) -> *mut doca_task,
    >,
    /// `doca_sync_event_task_notify_set_get_set_val`.
    pub doca_sync_event_task_notify_set_get_set_val: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_notify_set) -> u64,
    >,
    /// `doca_sync_event_task_notify_set_set_conf`.
    pub doca_sync_event_task_notify_set_set_conf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            completion_cb: doca_sync_event_task_notify_set_completion_cb_t,
            error_cb: doca_sync_event_task_notify_set_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_notify_set_set_set_val`.
    pub doca_sync_event_task_notify_set_set_set_val: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_notify_set, set_val: u64),
    >,
    /// `doca_sync_event_task_wait_eq_alloc_init`.
    pub doca_sync_event_task_wait_eq_alloc_init: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            wait_val: u64,
            mask: u64,
            user_data: doca_data,
            task: *mut *mut doca_sync_event_task_wait_eq,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_wait_eq_as_doca_task`.
    pub doca_sync_event_task_wait_eq_as_doca_task: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_eq) -> *mut doca_task,
    >,
    /// `doca_sync_event_task_wait_eq_get_mask`.
    pub doca_sync_event_task_wait_eq_get_mask: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_wait_eq) -> u64,
    >,
    /// `doca_sync_event_task_wait_eq_get_wait_val`.
    pub doca_sync_event_task_wait_eq_get_wait_val: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_wait_eq) -> u64,
    >,
    /// `doca_sync_event_task_wait_eq_set_conf`.
    pub doca_sync_event_task_wait_eq_set_conf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            completion_cb: doca_sync_event_task_wait_eq_completion_cb_t,
            error_cb: doca_sync_event_task_wait_eq_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_wait_eq_set_mask`.
    pub doca_sync_event_task_wait_eq_set_mask: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_eq, mask: u64),
    >,
    /// `doca_sync_event_task_wait_eq_set_wait_val`.
    pub doca_sync_event_task_wait_eq_set_wait_val: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_eq, wait_val: u64),
    >,
    /// `doca_sync_event_task_wait_neq_alloc_init`.
    pub doca_sync_event_task_wait_neq_alloc_init: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            wait_val: u64,
            mask: u64,
            user_data: doca_data,
            task: *mut *mut doca_sync_event_task_wait_neq,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_wait_neq_as_doca_task`.
    pub doca_sync_event_task_wait_neq_as_doca_task: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_neq) -> *mut doca_task,
    >,
    /// `doca_sync_event_task_wait_neq_get_mask`.
    pub doca_sync_event_task_wait_neq_get_mask: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_wait_neq) -> u64,
    >,
    /// `doca_sync_event_task_wait_neq_get_wait_val`.
    pub doca_sync_event_task_wait_neq_get_wait_val: Option<
        unsafe extern "C" fn(task: *const doca_sync_event_task_wait_neq) -> u64,
    >,
    /// `doca_sync_event_task_wait_neq_set_conf`.
    pub doca_sync_event_task_wait_neq_set_conf: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            completion_cb: doca_sync_event_task_wait_neq_completion_cb_t,
            error_cb: doca_sync_event_task_wait_neq_completion_cb_t,
            num_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_task_wait_neq_set_mask`.
    pub doca_sync_event_task_wait_neq_set_mask: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_neq, mask: u64),
    >,
    /// `doca_sync_event_task_wait_neq_set_wait_val`.
    pub doca_sync_event_task_wait_neq_set_wait_val: Option<
        unsafe extern "C" fn(task: *mut doca_sync_event_task_wait_neq, wait_val: u64),
    >,
    /// `doca_sync_event_update_add`.
    pub doca_sync_event_update_add: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            fetched: *mut u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_update_set`.
    pub doca_sync_event_update_set: Option<
        unsafe extern "C" fn(event: *mut doca_sync_event, value: u64) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_eq`.
    pub doca_sync_event_wait_eq: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_eq_yield`.
    pub doca_sync_event_wait_eq_yield: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_gt`.
    pub doca_sync_event_wait_gt: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_gt_yield`.
    pub doca_sync_event_wait_gt_yield: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_neq`.
    pub doca_sync_event_wait_neq: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_sync_event_wait_neq_yield`.
    pub doca_sync_event_wait_neq_yield: Option<
        unsafe extern "C" fn(
            event: *mut doca_sync_event,
            value: u64,
            mask: u64,
        ) -> doca_error_t,
    >,
    /// `doca_task_batch_free`.
    pub doca_task_batch_free: Option<
        unsafe extern "C" fn(task_batch: *mut doca_task_batch),
    >,
    /// `doca_task_batch_get_ctx`.
    pub doca_task_batch_get_ctx: Option<
        unsafe extern "C" fn(task_batch: *const doca_task_batch) -> *mut doca_ctx,
    >,
    /// `doca_task_batch_get_ctx_user_data`.
    pub doca_task_batch_get_ctx_user_data: Option<
        unsafe extern "C" fn(task_batch: *const doca_task_batch) -> doca_data,
    >,
    /// `doca_task_batch_get_status`.
    pub doca_task_batch_get_status: Option<
        unsafe extern "C" fn(task_batch: *const doca_task_batch) -> doca_error_t,
    >,
    /// `doca_task_batch_get_tasks_num`.
    pub doca_task_batch_get_tasks_num: Option<
        unsafe extern "C" fn(task_batch: *mut doca_task_batch) -> u16,
    >,
    /// `doca_task_batch_get_user_data`.
    pub doca_task_batch_get_user_data: Option<
        unsafe extern "C" fn(task_batch: *const doca_task_batch) -> doca_data,
    >,
    /// `doca_task_batch_set_user_data`.
    pub doca_task_batch_set_user_data: Option<
        unsafe extern "C" fn(task_batch: *mut doca_task_batch, user_data: doca_data),
    >,
    /// `doca_task_batch_submit`.
    pub doca_task_batch_submit: Option<
        unsafe extern "C" fn(task_batch: *mut doca_task_batch) -> doca_error_t,
    >,
    /// `doca_task_batch_try_submit`.
    pub doca_task_batch_try_submit: Option<
        unsafe extern "C" fn(task_batch: *mut doca_task_batch) -> doca_error_t,
    >,
    /// `doca_task_free`.
    pub doca_task_free: unsafe extern "C" fn(task: *mut doca_task),
    /// `doca_task_get_ctx`.
    pub doca_task_get_ctx: Option<
        unsafe extern "C" fn(task: *const doca_task) -> *mut doca_ctx,
    >,
    /// `doca_task_get_status`.
    pub doca_task_get_status: unsafe extern "C" fn(
        task: *const doca_task,
    ) -> doca_error_t,
    /// `doca_task_get_user_data`.
    pub doca_task_get_user_data: Option<
        unsafe extern "C" fn(task: *const doca_task) -> doca_data,
    >,
    /// `doca_task_set_user_data`.
    pub doca_task_set_user_data: Option<
        unsafe extern "C" fn(task: *mut doca_task, user_data: doca_data),
    >,
    /// `doca_task_submit`.
    pub doca_task_submit: unsafe extern "C" fn(task: *mut doca_task) -> doca_error_t,
    /// `doca_task_submit_ex`.
    pub doca_task_submit_ex: Option<
        unsafe extern "C" fn(task: *mut doca_task, flags: u32) -> doca_error_t,
    >,
    /// `doca_task_try_submit`.
    pub doca_task_try_submit: Option<
        unsafe extern "C" fn(task: *mut doca_task) -> doca_error_t,
    >,
    /// `doca_version_runtime`.
    pub doca_version_runtime: Option<
        unsafe extern "C" fn() -> *const ::core::ffi::c_char,
    >,
}
impl Common {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let doca_buf_dec_refcount = need(c"doca_buf_dec_refcount");
        let doca_buf_inventory_buf_get_by_args = need(
            c"doca_buf_inventory_buf_get_by_args",
        );
        let doca_buf_inventory_create = need(c"doca_buf_inventory_create");
        let doca_buf_inventory_destroy = need(c"doca_buf_inventory_destroy");
        let doca_buf_inventory_start = need(c"doca_buf_inventory_start");
        let doca_buf_set_data = need(c"doca_buf_set_data");
        let doca_ctx_get_state = need(c"doca_ctx_get_state");
        let doca_ctx_set_user_data = need(c"doca_ctx_set_user_data");
        let doca_ctx_start = need(c"doca_ctx_start");
        let doca_ctx_stop = need(c"doca_ctx_stop");
        let doca_dev_as_devinfo = need(c"doca_dev_as_devinfo");
        let doca_dev_close = need(c"doca_dev_close");
        let doca_dev_open = need(c"doca_dev_open");
        let doca_devinfo_create_list = need(c"doca_devinfo_create_list");
        let doca_devinfo_destroy_list = need(c"doca_devinfo_destroy_list");
        let doca_devinfo_get_pci_addr_str = need(c"doca_devinfo_get_pci_addr_str");
        let doca_error_get_descr = need(c"doca_error_get_descr");
        let doca_error_get_name = need(c"doca_error_get_name");
        let doca_mmap_add_dev = need(c"doca_mmap_add_dev");
        let doca_mmap_create = need(c"doca_mmap_create");
        let doca_mmap_destroy = need(c"doca_mmap_destroy");
        let doca_mmap_set_memrange = need(c"doca_mmap_set_memrange");
        let doca_mmap_set_permissions = need(c"doca_mmap_set_permissions");
        let doca_mmap_start = need(c"doca_mmap_start");
        let doca_mmap_stop = need(c"doca_mmap_stop");
        let doca_pe_connect_ctx = need(c"doca_pe_connect_ctx");
        let doca_pe_create = need(c"doca_pe_create");
        let doca_pe_destroy = need(c"doca_pe_destroy");
        let doca_pe_progress = need(c"doca_pe_progress");
        let doca_task_free = need(c"doca_task_free");
        let doca_task_get_status = need(c"doca_task_get_status");
        let doca_task_submit = need(c"doca_task_submit");
        let mut all = || unsafe {
            Some(Self {
                doca_buf_chain_list: get(c"doca_buf_chain_list").map(|f| function(f)),
                doca_buf_chain_list_tail: get(c"doca_buf_chain_list_tail")
                    .map(|f| function(f)),
                doca_buf_dec_refcount: function(doca_buf_dec_refcount?),
                doca_buf_get_data: get(c"doca_buf_get_data").map(|f| function(f)),
                doca_buf_get_data_len: get(c"doca_buf_get_data_len")
                    .map(|f| function(f)),
                doca_buf_get_head: get(c"doca_buf_get_head").map(|f| function(f)),
                doca_buf_get_last_in_list: get(c"doca_buf_get_last_in_list")
                    .map(|f| function(f)),
                doca_buf_get_len: get(c"doca_buf_get_len").map(|f| function(f)),
                doca_buf_get_list_len: get(c"doca_buf_get_list_len")
                    .map(|f| function(f)),
                doca_buf_get_next_in_list: get(c"doca_buf_get_next_in_list")
                    .map(|f| function(f)),
                doca_buf_get_refcount: get(c"doca_buf_get_refcount")
                    .map(|f| function(f)),
                doca_buf_inc_refcount: get(c"doca_buf_inc_refcount")
                    .map(|f| function(f)),
                doca_buf_inventory_buf_dup: get(c"doca_buf_inventory_buf_dup")
                    .map(|f| function(f)),
                doca_buf_inventory_buf_get_by_args: function(
                    doca_buf_inventory_buf_get_by_args?,
                ),
                doca_buf_inventory_buf_reuse_by_args: get(
                        c"doca_buf_inventory_buf_reuse_by_args",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_create: function(doca_buf_inventory_create?),
                doca_buf_inventory_destroy: function(doca_buf_inventory_destroy?),
                doca_buf_inventory_expand: get(c"doca_buf_inventory_expand")
                    .map(|f| function(f)),
                doca_buf_inventory_get_num_elements: get(
                        c"doca_buf_inventory_get_num_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_get_num_free_elements: get(
                        c"doca_buf_inventory_get_num_free_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_get_user_data: get(
                        c"doca_buf_inventory_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_set_user_data: get(
                        c"doca_buf_inventory_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_start: function(doca_buf_inventory_start?),
                doca_buf_inventory_stop: get(c"doca_buf_inventory_stop")
                    .map(|f| function(f)),
                doca_buf_is_first_in_list: get(c"doca_buf_is_first_in_list")
                    .map(|f| function(f)),
                doca_buf_is_in_list: get(c"doca_buf_is_in_list").map(|f| function(f)),
                doca_buf_is_last_in_list: get(c"doca_buf_is_last_in_list")
                    .map(|f| function(f)),
                doca_buf_pool_buf_alloc: get(c"doca_buf_pool_buf_alloc")
                    .map(|f| function(f)),
                doca_buf_pool_create: get(c"doca_buf_pool_create").map(|f| function(f)),
                doca_buf_pool_destroy: get(c"doca_buf_pool_destroy")
                    .map(|f| function(f)),
                doca_buf_pool_get_element_alignment: get(
                        c"doca_buf_pool_get_element_alignment",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_get_num_elements: get(c"doca_buf_pool_get_num_elements")
                    .map(|f| function(f)),
                doca_buf_pool_get_num_free_elements: get(
                        c"doca_buf_pool_get_num_free_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_get_user_data: get(c"doca_buf_pool_get_user_data")
                    .map(|f| function(f)),
                doca_buf_pool_set_element_alignment: get(
                        c"doca_buf_pool_set_element_alignment",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_set_user_data: get(c"doca_buf_pool_set_user_data")
                    .map(|f| function(f)),
                doca_buf_pool_start: get(c"doca_buf_pool_start").map(|f| function(f)),
                doca_buf_pool_stop: get(c"doca_buf_pool_stop").map(|f| function(f)),
                doca_buf_reset_data_len: get(c"doca_buf_reset_data_len")
                    .map(|f| function(f)),
                doca_buf_set_data: function(doca_buf_set_data?),
                doca_buf_set_data_len: get(c"doca_buf_set_data_len")
                    .map(|f| function(f)),
                doca_buf_unchain_list: get(c"doca_buf_unchain_list")
                    .map(|f| function(f)),
                doca_ctx_cap_get_num_completion_vectors: get(
                        c"doca_ctx_cap_get_num_completion_vectors",
                    )
                    .map(|f| function(f)),
                doca_ctx_flush_tasks: get(c"doca_ctx_flush_tasks").map(|f| function(f)),
                doca_ctx_get_num_inflight_tasks: get(c"doca_ctx_get_num_inflight_tasks")
                    .map(|f| function(f)),
                doca_ctx_get_state: function(doca_ctx_get_state?),
                doca_ctx_get_user_data: get(c"doca_ctx_get_user_data")
                    .map(|f| function(f)),
                doca_ctx_set_completion_vector: get(c"doca_ctx_set_completion_vector")
                    .map(|f| function(f)),
                doca_ctx_set_datapath_on_dpa: get(c"doca_ctx_set_datapath_on_dpa")
                    .map(|f| function(f)),
                doca_ctx_set_datapath_on_gpu: get(c"doca_ctx_set_datapath_on_gpu")
                    .map(|f| function(f)),
                doca_ctx_set_state_changed_cb: get(c"doca_ctx_set_state_changed_cb")
                    .map(|f| function(f)),
                doca_ctx_set_user_data: function(doca_ctx_set_user_data?),
                doca_ctx_start: function(doca_ctx_start?),
                doca_ctx_stop: function(doca_ctx_stop?),
                doca_dev_accelerate_resource_reclaim: get(
                        c"doca_dev_accelerate_resource_reclaim",
                    )
                    .map(|f| function(f)),
                doca_dev_as_devinfo: function(doca_dev_as_devinfo?),
                doca_dev_close: function(doca_dev_close?),
                doca_dev_open: function(doca_dev_open?),
                doca_dev_rep_as_devinfo: get(c"doca_dev_rep_as_devinfo")
                    .map(|f| function(f)),
                doca_dev_rep_close: get(c"doca_dev_rep_close").map(|f| function(f)),
                doca_dev_rep_open: get(c"doca_dev_rep_open").map(|f| function(f)),
                doca_devinfo_cap_is_accelerate_resource_reclaim_supported: get(
                        c"doca_devinfo_cap_is_accelerate_resource_reclaim_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_cap_is_hotplug_manager_supported: get(
                        c"doca_devinfo_cap_is_hotplug_manager_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_cap_is_notification_moderation_supported: get(
                        c"doca_devinfo_cap_is_notification_moderation_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_create_list: function(doca_devinfo_create_list?),
                doca_devinfo_destroy_list: function(doca_devinfo_destroy_list?),
                doca_devinfo_get_active_rate: get(c"doca_devinfo_get_active_rate")
                    .map(|f| function(f)),
                doca_devinfo_get_ibdev_name: get(c"doca_devinfo_get_ibdev_name")
                    .map(|f| function(f)),
                doca_devinfo_get_iface_name: get(c"doca_devinfo_get_iface_name")
                    .map(|f| function(f)),
                doca_devinfo_get_ipv4_addr: get(c"doca_devinfo_get_ipv4_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_ipv6_addr: get(c"doca_devinfo_get_ipv6_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_lid: get(c"doca_devinfo_get_lid").map(|f| function(f)),
                doca_devinfo_get_mac_addr: get(c"doca_devinfo_get_mac_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_pci_addr_str: function(doca_devinfo_get_pci_addr_str?),
                doca_devinfo_get_pci_func_type: get(c"doca_devinfo_get_pci_func_type")
                    .map(|f| function(f)),
                doca_devinfo_get_sf_index: get(c"doca_devinfo_get_sf_index")
                    .map(|f| function(f)),
                doca_devinfo_get_vhca_id: get(c"doca_devinfo_get_vhca_id")
                    .map(|f| function(f)),
                doca_devinfo_is_equal_pci_addr: get(c"doca_devinfo_is_equal_pci_addr")
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_all_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_all_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_emulated_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_emulated_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_net_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_net_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_create_list: get(c"doca_devinfo_rep_create_list")
                    .map(|f| function(f)),
                doca_devinfo_rep_destroy_list: get(c"doca_devinfo_rep_destroy_list")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_iface_name: get(c"doca_devinfo_rep_get_iface_name")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_is_hotplug: get(c"doca_devinfo_rep_get_is_hotplug")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_pci_addr_str: get(
                        c"doca_devinfo_rep_get_pci_addr_str",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_get_pci_func_type: get(
                        c"doca_devinfo_rep_get_pci_func_type",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_get_vhca_id: get(c"doca_devinfo_rep_get_vhca_id")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_vuid: get(c"doca_devinfo_rep_get_vuid")
                    .map(|f| function(f)),
                doca_devinfo_rep_is_equal_pci_addr: get(
                        c"doca_devinfo_rep_is_equal_pci_addr",
                    )
                    .map(|f| function(f)),
                doca_error_get_descr: function(doca_error_get_descr?),
                doca_error_get_name: function(doca_error_get_name?),
                doca_graph_add_dependency: get(c"doca_graph_add_dependency")
                    .map(|f| function(f)),
                doca_graph_create: get(c"doca_graph_create").map(|f| function(f)),
                doca_graph_destroy: get(c"doca_graph_destroy").map(|f| function(f)),
                doca_graph_get_user_data: get(c"doca_graph_get_user_data")
                    .map(|f| function(f)),
                doca_graph_instance_create: get(c"doca_graph_instance_create")
                    .map(|f| function(f)),
                doca_graph_instance_destroy: get(c"doca_graph_instance_destroy")
                    .map(|f| function(f)),
                doca_graph_instance_get_user_data: get(
                        c"doca_graph_instance_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_ctx_node_data: get(
                        c"doca_graph_instance_set_ctx_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_sub_graph_node_data: get(
                        c"doca_graph_instance_set_sub_graph_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_user_data: get(
                        c"doca_graph_instance_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_user_node_data: get(
                        c"doca_graph_instance_set_user_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_submit: get(c"doca_graph_instance_submit")
                    .map(|f| function(f)),
                doca_graph_node_create_from_ctx: get(c"doca_graph_node_create_from_ctx")
                    .map(|f| function(f)),
                doca_graph_node_create_from_graph: get(
                        c"doca_graph_node_create_from_graph",
                    )
                    .map(|f| function(f)),
                doca_graph_node_create_from_user: get(
                        c"doca_graph_node_create_from_user",
                    )
                    .map(|f| function(f)),
                doca_graph_set_conf: get(c"doca_graph_set_conf").map(|f| function(f)),
                doca_graph_set_user_data: get(c"doca_graph_set_user_data")
                    .map(|f| function(f)),
                doca_graph_start: get(c"doca_graph_start").map(|f| function(f)),
                doca_graph_stop: get(c"doca_graph_stop").map(|f| function(f)),
                doca_log_backend_create_standard: get(
                        c"doca_log_backend_create_standard",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_buf: get(
                        c"doca_log_backend_create_with_buf",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_buf_sdk: get(
                        c"doca_log_backend_create_with_buf_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_fd: get(c"doca_log_backend_create_with_fd")
                    .map(|f| function(f)),
                doca_log_backend_create_with_fd_sdk: get(
                        c"doca_log_backend_create_with_fd_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_file: get(
                        c"doca_log_backend_create_with_file",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_file_sdk: get(
                        c"doca_log_backend_create_with_file_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_syslog: get(
                        c"doca_log_backend_create_with_syslog",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_syslog_sdk: get(
                        c"doca_log_backend_create_with_syslog_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_lower_limit: get(
                        c"doca_log_backend_set_level_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_lower_limit_strict: get(
                        c"doca_log_backend_set_level_lower_limit_strict",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_upper_limit: get(
                        c"doca_log_backend_set_level_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_upper_limit_strict: get(
                        c"doca_log_backend_set_level_upper_limit_strict",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_sdk_level: get(c"doca_log_backend_set_sdk_level")
                    .map(|f| function(f)),
                doca_log_level_get_global_lower_limit: get(
                        c"doca_log_level_get_global_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_get_global_sdk_limit: get(
                        c"doca_log_level_get_global_sdk_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_get_global_upper_limit: get(
                        c"doca_log_level_get_global_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_lower_limit: get(
                        c"doca_log_level_set_global_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_sdk_limit: get(
                        c"doca_log_level_set_global_sdk_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_upper_limit: get(
                        c"doca_log_level_set_global_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_register_source: get(c"doca_log_register_source")
                    .map(|f| function(f)),
                doca_log_unregister_source: get(c"doca_log_unregister_source")
                    .map(|f| function(f)),
                doca_mmap_add_dev: function(doca_mmap_add_dev?),
                doca_mmap_advise_as_ctx: get(c"doca_mmap_advise_as_ctx")
                    .map(|f| function(f)),
                doca_mmap_advise_cap_task_cache_invalidate_is_supported: get(
                        c"doca_mmap_advise_cap_task_cache_invalidate_is_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_create: get(c"doca_mmap_advise_create")
                    .map(|f| function(f)),
                doca_mmap_advise_destroy: get(c"doca_mmap_advise_destroy")
                    .map(|f| function(f)),
                doca_mmap_advise_task_cache_invalidate_get_max_buf_size: get(
                        c"doca_mmap_advise_task_cache_invalidate_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_alloc_init: get(
                        c"doca_mmap_advise_task_invalidate_cache_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_as_doca_task: get(
                        c"doca_mmap_advise_task_invalidate_cache_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_get_buf: get(
                        c"doca_mmap_advise_task_invalidate_cache_get_buf",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_set_buf: get(
                        c"doca_mmap_advise_task_invalidate_cache_set_buf",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_set_conf: get(
                        c"doca_mmap_advise_task_invalidate_cache_set_conf",
                    )
                    .map(|f| function(f)),
                doca_mmap_cap_is_create_from_export_pci_supported: get(
                        c"doca_mmap_cap_is_create_from_export_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_cap_is_export_pci_supported: get(
                        c"doca_mmap_cap_is_export_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_create: function(doca_mmap_create?),
                doca_mmap_create_from_export: get(c"doca_mmap_create_from_export")
                    .map(|f| function(f)),
                doca_mmap_destroy: function(doca_mmap_destroy?),
                doca_mmap_dev_get_dpa_handle: get(c"doca_mmap_dev_get_dpa_handle")
                    .map(|f| function(f)),
                doca_mmap_enable_thread_safety: get(c"doca_mmap_enable_thread_safety")
                    .map(|f| function(f)),
                doca_mmap_export_pci: get(c"doca_mmap_export_pci").map(|f| function(f)),
                doca_mmap_export_rdma: get(c"doca_mmap_export_rdma")
                    .map(|f| function(f)),
                doca_mmap_get_exported: get(c"doca_mmap_get_exported")
                    .map(|f| function(f)),
                doca_mmap_get_from_export: get(c"doca_mmap_get_from_export")
                    .map(|f| function(f)),
                doca_mmap_get_max_num_devices: get(c"doca_mmap_get_max_num_devices")
                    .map(|f| function(f)),
                doca_mmap_get_memrange: get(c"doca_mmap_get_memrange")
                    .map(|f| function(f)),
                doca_mmap_get_num_bufs: get(c"doca_mmap_get_num_bufs")
                    .map(|f| function(f)),
                doca_mmap_get_user_data: get(c"doca_mmap_get_user_data")
                    .map(|f| function(f)),
                doca_mmap_rm_dev: get(c"doca_mmap_rm_dev").map(|f| function(f)),
                doca_mmap_set_dmabuf_memrange: get(c"doca_mmap_set_dmabuf_memrange")
                    .map(|f| function(f)),
                doca_mmap_set_dpa_memrange: get(c"doca_mmap_set_dpa_memrange")
                    .map(|f| function(f)),
                doca_mmap_set_free_cb: get(c"doca_mmap_set_free_cb")
                    .map(|f| function(f)),
                doca_mmap_set_max_num_devices: get(c"doca_mmap_set_max_num_devices")
                    .map(|f| function(f)),
                doca_mmap_set_memrange: function(doca_mmap_set_memrange?),
                doca_mmap_set_permissions: function(doca_mmap_set_permissions?),
                doca_mmap_set_user_data: get(c"doca_mmap_set_user_data")
                    .map(|f| function(f)),
                doca_mmap_start: function(doca_mmap_start?),
                doca_mmap_stop: function(doca_mmap_stop?),
                doca_pe_clear_notification: get(c"doca_pe_clear_notification")
                    .map(|f| function(f)),
                doca_pe_connect_ctx: function(doca_pe_connect_ctx?),
                doca_pe_create: function(doca_pe_create?),
                doca_pe_destroy: function(doca_pe_destroy?),
                doca_pe_get_notification_handle: get(c"doca_pe_get_notification_handle")
                    .map(|f| function(f)),
                doca_pe_get_num_inflight_tasks: get(c"doca_pe_get_num_inflight_tasks")
                    .map(|f| function(f)),
                doca_pe_progress: function(doca_pe_progress?),
                doca_pe_request_notification: get(c"doca_pe_request_notification")
                    .map(|f| function(f)),
                doca_pe_set_event_mode: get(c"doca_pe_set_event_mode")
                    .map(|f| function(f)),
                doca_pe_set_notification_handle: get(c"doca_pe_set_notification_handle")
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_cpu: get(
                        c"doca_sync_event_add_publisher_location_cpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_dpa: get(
                        c"doca_sync_event_add_publisher_location_dpa",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_gpu: get(
                        c"doca_sync_event_add_publisher_location_gpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_remote_net: get(
                        c"doca_sync_event_add_publisher_location_remote_net",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_remote_pci: get(
                        c"doca_sync_event_add_publisher_location_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_cpu: get(
                        c"doca_sync_event_add_subscriber_location_cpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_dpa: get(
                        c"doca_sync_event_add_subscriber_location_dpa",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_gpu: get(
                        c"doca_sync_event_add_subscriber_location_gpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_remote_pci: get(
                        c"doca_sync_event_add_subscriber_location_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_as_ctx: get(c"doca_sync_event_as_ctx")
                    .map(|f| function(f)),
                doca_sync_event_cap_is_create_from_export_supported: get(
                        c"doca_sync_event_cap_is_create_from_export_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_dpa_supported: get(
                        c"doca_sync_event_cap_is_export_to_dpa_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_gpu_supported: get(
                        c"doca_sync_event_cap_is_export_to_gpu_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_remote_net_supported: get(
                        c"doca_sync_event_cap_is_export_to_remote_net_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_remote_pci_supported: get(
                        c"doca_sync_event_cap_is_export_to_remote_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_create_from_export_supported: get(
                        c"doca_sync_event_cap_remote_net_is_create_from_export_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_export_to_dpa_supported: get(
                        c"doca_sync_event_cap_remote_net_is_export_to_dpa_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_export_to_gpu_supported: get(
                        c"doca_sync_event_cap_remote_net_is_export_to_gpu_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_get_is_supported: get(
                        c"doca_sync_event_cap_task_get_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_notify_add_is_supported: get(
                        c"doca_sync_event_cap_task_notify_add_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_notify_set_is_supported: get(
                        c"doca_sync_event_cap_task_notify_set_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_wait_eq_is_supported: get(
                        c"doca_sync_event_cap_task_wait_eq_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_wait_neq_is_supported: get(
                        c"doca_sync_event_cap_task_wait_neq_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_create: get(c"doca_sync_event_create")
                    .map(|f| function(f)),
                doca_sync_event_create_from_export: get(
                        c"doca_sync_event_create_from_export",
                    )
                    .map(|f| function(f)),
                doca_sync_event_destroy: get(c"doca_sync_event_destroy")
                    .map(|f| function(f)),
                doca_sync_event_export_to_remote_net: get(
                        c"doca_sync_event_export_to_remote_net",
                    )
                    .map(|f| function(f)),
                doca_sync_event_export_to_remote_pci: get(
                        c"doca_sync_event_export_to_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_get: get(c"doca_sync_event_get").map(|f| function(f)),
                doca_sync_event_get_dpa_handle: get(c"doca_sync_event_get_dpa_handle")
                    .map(|f| function(f)),
                doca_sync_event_get_gpu_handle: get(c"doca_sync_event_get_gpu_handle")
                    .map(|f| function(f)),
                doca_sync_event_remote_net_create_from_export: get(
                        c"doca_sync_event_remote_net_create_from_export",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_destroy: get(
                        c"doca_sync_event_remote_net_destroy",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_get_dpa_handle: get(
                        c"doca_sync_event_remote_net_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_get_gpu_handle: get(
                        c"doca_sync_event_remote_net_get_gpu_handle",
                    )
                    .map(|f| function(f)),
                doca_sync_event_set_addr: get(c"doca_sync_event_set_addr")
                    .map(|f| function(f)),
                doca_sync_event_set_doca_buf: get(c"doca_sync_event_set_doca_buf")
                    .map(|f| function(f)),
                doca_sync_event_start: get(c"doca_sync_event_start")
                    .map(|f| function(f)),
                doca_sync_event_stop: get(c"doca_sync_event_stop").map(|f| function(f)),
                doca_sync_event_task_get_alloc_init: get(
                        c"doca_sync_event_task_get_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_as_doca_task: get(
                        c"doca_sync_event_task_get_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_get_ret_val_ptr: get(
                        c"doca_sync_event_task_get_get_ret_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_set_conf: get(
                        c"doca_sync_event_task_get_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_set_ret_val_ptr: get(
                        c"doca_sync_event_task_get_set_ret_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_alloc_init: get(
                        c"doca_sync_event_task_notify_add_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_as_doca_task: get(
                        c"doca_sync_event_task_notify_add_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_get_fetched_val_ptr: get(
                        c"doca_sync_event_task_notify_add_get_fetched_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_get_inc_val: get(
                        c"doca_sync_event_task_notify_add_get_inc_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_conf: get(
                        c"doca_sync_event_task_notify_add_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_fetched_val_ptr: get(
                        c"doca_sync_event_task_notify_add_set_fetched_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_inc_val: get(
                        c"doca_sync_event_task_notify_add_set_inc_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_alloc_init: get(
                        c"doca_sync_event_task_notify_set_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_as_doca_task: get(
                        c"doca_sync_event_task_notify_set_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_get_set_val: get(
                        c"doca_sync_event_task_notify_set_get_set_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_set_conf: get(
                        c"doca_sync_event_task_notify_set_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_set_set_val: get(
                        c"doca_sync_event_task_notify_set_set_set_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_alloc_init: get(
                        c"doca_sync_event_task_wait_eq_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_as_doca_task: get(
                        c"doca_sync_event_task_wait_eq_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_get_mask: get(
                        c"doca_sync_event_task_wait_eq_get_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_get_wait_val: get(
                        c"doca_sync_event_task_wait_eq_get_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_conf: get(
                        c"doca_sync_event_task_wait_eq_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_mask: get(
                        c"doca_sync_event_task_wait_eq_set_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_wait_val: get(
                        c"doca_sync_event_task_wait_eq_set_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_alloc_init: get(
                        c"doca_sync_event_task_wait_neq_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_as_doca_task: get(
                        c"doca_sync_event_task_wait_neq_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_get_mask: get(
                        c"doca_sync_event_task_wait_neq_get_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_get_wait_val: get(
                        c"doca_sync_event_task_wait_neq_get_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_conf: get(
                        c"doca_sync_event_task_wait_neq_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_mask: get(
                        c"doca_sync_event_task_wait_neq_set_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_wait_val: get(
                        c"doca_sync_event_task_wait_neq_set_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_update_add: get(c"doca_sync_event_update_add")
                    .map(|f| function(f)),
                doca_sync_event_update_set: get(c"doca_sync_event_update_set")
                    .map(|f| function(f)),
                doca_sync_event_wait_eq: get(c"doca_sync_event_wait_eq")
                    .map(|f| function(f)),
                doca_sync_event_wait_eq_yield: get(c"doca_sync_event_wait_eq_yield")
                    .map(|f| function(f)),
                doca_sync_event_wait_gt: get(c"doca_sync_event_wait_gt")
                    .map(|f| function(f)),
                doca_sync_event_wait_gt_yield: get(c"doca_sync_event_wait_gt_yield")
                    .map(|f| function(f)),
                doca_sync_event_wait_neq: get(c"doca_sync_event_wait_neq")
                    .map(|f| function(f)),
                doca_sync_event_wait_neq_yield: get(c"doca_sync_event_wait_neq_yield")
                    .map(|f| function(f)),
                doca_task_batch_free: get(c"doca_task_batch_free").map(|f| function(f)),
                doca_task_batch_get_ctx: get(c"doca_task_batch_get_ctx")
                    .map(|f| function(f)),
                doca_task_batch_get_ctx_user_data: get(
                        c"doca_task_batch_get_ctx_user_data",
                    )
                    .map(|f| function(f)),
                doca_task_batch_get_status: get(c"doca_task_batch_get_status")
                    .map(|f| function(f)),
                doca_task_batch_get_tasks_num: get(c"doca_task_batch_get_tasks_num")
                    .map(|f| function(f)),
                doca_task_batch_get_user_data: get(c"doca_task_batch_get_user_data")
                    .map(|f| function(f)),
                doca_task_batch_set_user_data: get(c"doca_task_batch_set_user_data")
                    .map(|f| function(f)),
                doca_task_batch_submit: get(c"doca_task_batch_submit")
                    .map(|f| function(f)),
                doca_task_batch_try_submit: get(c"doca_task_batch_try_submit")
                    .map(|f| function(f)),
                doca_task_free: function(doca_task_free?),
                doca_task_get_ctx: get(c"doca_task_get_ctx").map(|f| function(f)),
                doca_task_get_status: function(doca_task_get_status?),
                doca_task_get_user_data: get(c"doca_task_get_user_data")
                    .map(|f| function(f)),
                doca_task_set_user_data: get(c"doca_task_set_user_data")
                    .map(|f| function(f)),
                doca_task_submit: function(doca_task_submit?),
                doca_task_submit_ex: get(c"doca_task_submit_ex").map(|f| function(f)),
                doca_task_try_submit: get(c"doca_task_try_submit").map(|f| function(f)),
                doca_version_runtime: get(c"doca_version_runtime").map(|f| function(f)),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                doca_buf_chain_list: get(c"doca_buf_chain_list").map(|f| function(f)),
                doca_buf_chain_list_tail: get(c"doca_buf_chain_list_tail")
                    .map(|f| function(f)),
                doca_buf_dec_refcount,
                doca_buf_get_data: get(c"doca_buf_get_data").map(|f| function(f)),
                doca_buf_get_data_len: get(c"doca_buf_get_data_len")
                    .map(|f| function(f)),
                doca_buf_get_head: get(c"doca_buf_get_head").map(|f| function(f)),
                doca_buf_get_last_in_list: get(c"doca_buf_get_last_in_list")
                    .map(|f| function(f)),
                doca_buf_get_len: get(c"doca_buf_get_len").map(|f| function(f)),
                doca_buf_get_list_len: get(c"doca_buf_get_list_len")
                    .map(|f| function(f)),
                doca_buf_get_next_in_list: get(c"doca_buf_get_next_in_list")
                    .map(|f| function(f)),
                doca_buf_get_refcount: get(c"doca_buf_get_refcount")
                    .map(|f| function(f)),
                doca_buf_inc_refcount: get(c"doca_buf_inc_refcount")
                    .map(|f| function(f)),
                doca_buf_inventory_buf_dup: get(c"doca_buf_inventory_buf_dup")
                    .map(|f| function(f)),
                doca_buf_inventory_buf_get_by_args,
                doca_buf_inventory_buf_reuse_by_args: get(
                        c"doca_buf_inventory_buf_reuse_by_args",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_create,
                doca_buf_inventory_destroy,
                doca_buf_inventory_expand: get(c"doca_buf_inventory_expand")
                    .map(|f| function(f)),
                doca_buf_inventory_get_num_elements: get(
                        c"doca_buf_inventory_get_num_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_get_num_free_elements: get(
                        c"doca_buf_inventory_get_num_free_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_get_user_data: get(
                        c"doca_buf_inventory_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_set_user_data: get(
                        c"doca_buf_inventory_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_buf_inventory_start,
                doca_buf_inventory_stop: get(c"doca_buf_inventory_stop")
                    .map(|f| function(f)),
                doca_buf_is_first_in_list: get(c"doca_buf_is_first_in_list")
                    .map(|f| function(f)),
                doca_buf_is_in_list: get(c"doca_buf_is_in_list").map(|f| function(f)),
                doca_buf_is_last_in_list: get(c"doca_buf_is_last_in_list")
                    .map(|f| function(f)),
                doca_buf_pool_buf_alloc: get(c"doca_buf_pool_buf_alloc")
                    .map(|f| function(f)),
                doca_buf_pool_create: get(c"doca_buf_pool_create").map(|f| function(f)),
                doca_buf_pool_destroy: get(c"doca_buf_pool_destroy")
                    .map(|f| function(f)),
                doca_buf_pool_get_element_alignment: get(
                        c"doca_buf_pool_get_element_alignment",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_get_num_elements: get(c"doca_buf_pool_get_num_elements")
                    .map(|f| function(f)),
                doca_buf_pool_get_num_free_elements: get(
                        c"doca_buf_pool_get_num_free_elements",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_get_user_data: get(c"doca_buf_pool_get_user_data")
                    .map(|f| function(f)),
                doca_buf_pool_set_element_alignment: get(
                        c"doca_buf_pool_set_element_alignment",
                    )
                    .map(|f| function(f)),
                doca_buf_pool_set_user_data: get(c"doca_buf_pool_set_user_data")
                    .map(|f| function(f)),
                doca_buf_pool_start: get(c"doca_buf_pool_start").map(|f| function(f)),
                doca_buf_pool_stop: get(c"doca_buf_pool_stop").map(|f| function(f)),
                doca_buf_reset_data_len: get(c"doca_buf_reset_data_len")
                    .map(|f| function(f)),
                doca_buf_set_data,
                doca_buf_set_data_len: get(c"doca_buf_set_data_len")
                    .map(|f| function(f)),
                doca_buf_unchain_list: get(c"doca_buf_unchain_list")
                    .map(|f| function(f)),
                doca_ctx_cap_get_num_completion_vectors: get(
                        c"doca_ctx_cap_get_num_completion_vectors",
                    )
                    .map(|f| function(f)),
                doca_ctx_flush_tasks: get(c"doca_ctx_flush_tasks").map(|f| function(f)),
                doca_ctx_get_num_inflight_tasks: get(c"doca_ctx_get_num_inflight_tasks")
                    .map(|f| function(f)),
                doca_ctx_get_state,
                doca_ctx_get_user_data: get(c"doca_ctx_get_user_data")
                    .map(|f| function(f)),
                doca_ctx_set_completion_vector: get(c"doca_ctx_set_completion_vector")
                    .map(|f| function(f)),
                doca_ctx_set_datapath_on_dpa: get(c"doca_ctx_set_datapath_on_dpa")
                    .map(|f| function(f)),
                doca_ctx_set_datapath_on_gpu: get(c"doca_ctx_set_datapath_on_gpu")
                    .map(|f| function(f)),
                doca_ctx_set_state_changed_cb: get(c"doca_ctx_set_state_changed_cb")
                    .map(|f| function(f)),
                doca_ctx_set_user_data,
                doca_ctx_start,
                doca_ctx_stop,
                doca_dev_accelerate_resource_reclaim: get(
                        c"doca_dev_accelerate_resource_reclaim",
                    )
                    .map(|f| function(f)),
                doca_dev_as_devinfo,
                doca_dev_close,
                doca_dev_open,
                doca_dev_rep_as_devinfo: get(c"doca_dev_rep_as_devinfo")
                    .map(|f| function(f)),
                doca_dev_rep_close: get(c"doca_dev_rep_close").map(|f| function(f)),
                doca_dev_rep_open: get(c"doca_dev_rep_open").map(|f| function(f)),
                doca_devinfo_cap_is_accelerate_resource_reclaim_supported: get(
                        c"doca_devinfo_cap_is_accelerate_resource_reclaim_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_cap_is_hotplug_manager_supported: get(
                        c"doca_devinfo_cap_is_hotplug_manager_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_cap_is_notification_moderation_supported: get(
                        c"doca_devinfo_cap_is_notification_moderation_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_create_list,
                doca_devinfo_destroy_list,
                doca_devinfo_get_active_rate: get(c"doca_devinfo_get_active_rate")
                    .map(|f| function(f)),
                doca_devinfo_get_ibdev_name: get(c"doca_devinfo_get_ibdev_name")
                    .map(|f| function(f)),
                doca_devinfo_get_iface_name: get(c"doca_devinfo_get_iface_name")
                    .map(|f| function(f)),
                doca_devinfo_get_ipv4_addr: get(c"doca_devinfo_get_ipv4_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_ipv6_addr: get(c"doca_devinfo_get_ipv6_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_lid: get(c"doca_devinfo_get_lid").map(|f| function(f)),
                doca_devinfo_get_mac_addr: get(c"doca_devinfo_get_mac_addr")
                    .map(|f| function(f)),
                doca_devinfo_get_pci_addr_str,
                doca_devinfo_get_pci_func_type: get(c"doca_devinfo_get_pci_func_type")
                    .map(|f| function(f)),
                doca_devinfo_get_sf_index: get(c"doca_devinfo_get_sf_index")
                    .map(|f| function(f)),
                doca_devinfo_get_vhca_id: get(c"doca_devinfo_get_vhca_id")
                    .map(|f| function(f)),
                doca_devinfo_is_equal_pci_addr: get(c"doca_devinfo_is_equal_pci_addr")
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_all_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_all_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_emulated_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_emulated_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_cap_is_filter_net_supported: get(
                        c"doca_devinfo_rep_cap_is_filter_net_supported",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_create_list: get(c"doca_devinfo_rep_create_list")
                    .map(|f| function(f)),
                doca_devinfo_rep_destroy_list: get(c"doca_devinfo_rep_destroy_list")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_iface_name: get(c"doca_devinfo_rep_get_iface_name")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_is_hotplug: get(c"doca_devinfo_rep_get_is_hotplug")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_pci_addr_str: get(
                        c"doca_devinfo_rep_get_pci_addr_str",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_get_pci_func_type: get(
                        c"doca_devinfo_rep_get_pci_func_type",
                    )
                    .map(|f| function(f)),
                doca_devinfo_rep_get_vhca_id: get(c"doca_devinfo_rep_get_vhca_id")
                    .map(|f| function(f)),
                doca_devinfo_rep_get_vuid: get(c"doca_devinfo_rep_get_vuid")
                    .map(|f| function(f)),
                doca_devinfo_rep_is_equal_pci_addr: get(
                        c"doca_devinfo_rep_is_equal_pci_addr",
                    )
                    .map(|f| function(f)),
                doca_error_get_descr,
                doca_error_get_name,
                doca_graph_add_dependency: get(c"doca_graph_add_dependency")
                    .map(|f| function(f)),
                doca_graph_create: get(c"doca_graph_create").map(|f| function(f)),
                doca_graph_destroy: get(c"doca_graph_destroy").map(|f| function(f)),
                doca_graph_get_user_data: get(c"doca_graph_get_user_data")
                    .map(|f| function(f)),
                doca_graph_instance_create: get(c"doca_graph_instance_create")
                    .map(|f| function(f)),
                doca_graph_instance_destroy: get(c"doca_graph_instance_destroy")
                    .map(|f| function(f)),
                doca_graph_instance_get_user_data: get(
                        c"doca_graph_instance_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_ctx_node_data: get(
                        c"doca_graph_instance_set_ctx_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_sub_graph_node_data: get(
                        c"doca_graph_instance_set_sub_graph_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_user_data: get(
                        c"doca_graph_instance_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_set_user_node_data: get(
                        c"doca_graph_instance_set_user_node_data",
                    )
                    .map(|f| function(f)),
                doca_graph_instance_submit: get(c"doca_graph_instance_submit")
                    .map(|f| function(f)),
                doca_graph_node_create_from_ctx: get(c"doca_graph_node_create_from_ctx")
                    .map(|f| function(f)),
                doca_graph_node_create_from_graph: get(
                        c"doca_graph_node_create_from_graph",
                    )
                    .map(|f| function(f)),
                doca_graph_node_create_from_user: get(
                        c"doca_graph_node_create_from_user",
                    )
                    .map(|f| function(f)),
                doca_graph_set_conf: get(c"doca_graph_set_conf").map(|f| function(f)),
                doca_graph_set_user_data: get(c"doca_graph_set_user_data")
                    .map(|f| function(f)),
                doca_graph_start: get(c"doca_graph_start").map(|f| function(f)),
                doca_graph_stop: get(c"doca_graph_stop").map(|f| function(f)),
                doca_log_backend_create_standard: get(
                        c"doca_log_backend_create_standard",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_buf: get(
                        c"doca_log_backend_create_with_buf",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_buf_sdk: get(
                        c"doca_log_backend_create_with_buf_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_fd: get(c"doca_log_backend_create_with_fd")
                    .map(|f| function(f)),
                doca_log_backend_create_with_fd_sdk: get(
                        c"doca_log_backend_create_with_fd_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_file: get(
                        c"doca_log_backend_create_with_file",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_file_sdk: get(
                        c"doca_log_backend_create_with_file_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_syslog: get(
                        c"doca_log_backend_create_with_syslog",
                    )
                    .map(|f| function(f)),
                doca_log_backend_create_with_syslog_sdk: get(
                        c"doca_log_backend_create_with_syslog_sdk",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_lower_limit: get(
                        c"doca_log_backend_set_level_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_lower_limit_strict: get(
                        c"doca_log_backend_set_level_lower_limit_strict",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_upper_limit: get(
                        c"doca_log_backend_set_level_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_level_upper_limit_strict: get(
                        c"doca_log_backend_set_level_upper_limit_strict",
                    )
                    .map(|f| function(f)),
                doca_log_backend_set_sdk_level: get(c"doca_log_backend_set_sdk_level")
                    .map(|f| function(f)),
                doca_log_level_get_global_lower_limit: get(
                        c"doca_log_level_get_global_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_get_global_sdk_limit: get(
                        c"doca_log_level_get_global_sdk_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_get_global_upper_limit: get(
                        c"doca_log_level_get_global_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_lower_limit: get(
                        c"doca_log_level_set_global_lower_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_sdk_limit: get(
                        c"doca_log_level_set_global_sdk_limit",
                    )
                    .map(|f| function(f)),
                doca_log_level_set_global_upper_limit: get(
                        c"doca_log_level_set_global_upper_limit",
                    )
                    .map(|f| function(f)),
                doca_log_register_source: get(c"doca_log_register_source")
                    .map(|f| function(f)),
                doca_log_unregister_source: get(c"doca_log_unregister_source")
                    .map(|f| function(f)),
                doca_mmap_add_dev,
                doca_mmap_advise_as_ctx: get(c"doca_mmap_advise_as_ctx")
                    .map(|f| function(f)),
                doca_mmap_advise_cap_task_cache_invalidate_is_supported: get(
                        c"doca_mmap_advise_cap_task_cache_invalidate_is_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_create: get(c"doca_mmap_advise_create")
                    .map(|f| function(f)),
                doca_mmap_advise_destroy: get(c"doca_mmap_advise_destroy")
                    .map(|f| function(f)),
                doca_mmap_advise_task_cache_invalidate_get_max_buf_size: get(
                        c"doca_mmap_advise_task_cache_invalidate_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_alloc_init: get(
                        c"doca_mmap_advise_task_invalidate_cache_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_as_doca_task: get(
                        c"doca_mmap_advise_task_invalidate_cache_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_get_buf: get(
                        c"doca_mmap_advise_task_invalidate_cache_get_buf",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_set_buf: get(
                        c"doca_mmap_advise_task_invalidate_cache_set_buf",
                    )
                    .map(|f| function(f)),
                doca_mmap_advise_task_invalidate_cache_set_conf: get(
                        c"doca_mmap_advise_task_invalidate_cache_set_conf",
                    )
                    .map(|f| function(f)),
                doca_mmap_cap_is_create_from_export_pci_supported: get(
                        c"doca_mmap_cap_is_create_from_export_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_cap_is_export_pci_supported: get(
                        c"doca_mmap_cap_is_export_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_mmap_create,
                doca_mmap_create_from_export: get(c"doca_mmap_create_from_export")
                    .map(|f| function(f)),
                doca_mmap_destroy,
                doca_mmap_dev_get_dpa_handle: get(c"doca_mmap_dev_get_dpa_handle")
                    .map(|f| function(f)),
                doca_mmap_enable_thread_safety: get(c"doca_mmap_enable_thread_safety")
                    .map(|f| function(f)),
                doca_mmap_export_pci: get(c"doca_mmap_export_pci").map(|f| function(f)),
                doca_mmap_export_rdma: get(c"doca_mmap_export_rdma")
                    .map(|f| function(f)),
                doca_mmap_get_exported: get(c"doca_mmap_get_exported")
                    .map(|f| function(f)),
                doca_mmap_get_from_export: get(c"doca_mmap_get_from_export")
                    .map(|f| function(f)),
                doca_mmap_get_max_num_devices: get(c"doca_mmap_get_max_num_devices")
                    .map(|f| function(f)),
                doca_mmap_get_memrange: get(c"doca_mmap_get_memrange")
                    .map(|f| function(f)),
                doca_mmap_get_num_bufs: get(c"doca_mmap_get_num_bufs")
                    .map(|f| function(f)),
                doca_mmap_get_user_data: get(c"doca_mmap_get_user_data")
                    .map(|f| function(f)),
                doca_mmap_rm_dev: get(c"doca_mmap_rm_dev").map(|f| function(f)),
                doca_mmap_set_dmabuf_memrange: get(c"doca_mmap_set_dmabuf_memrange")
                    .map(|f| function(f)),
                doca_mmap_set_dpa_memrange: get(c"doca_mmap_set_dpa_memrange")
                    .map(|f| function(f)),
                doca_mmap_set_free_cb: get(c"doca_mmap_set_free_cb")
                    .map(|f| function(f)),
                doca_mmap_set_max_num_devices: get(c"doca_mmap_set_max_num_devices")
                    .map(|f| function(f)),
                doca_mmap_set_memrange,
                doca_mmap_set_permissions,
                doca_mmap_set_user_data: get(c"doca_mmap_set_user_data")
                    .map(|f| function(f)),
                doca_mmap_start,
                doca_mmap_stop,
                doca_pe_clear_notification: get(c"doca_pe_clear_notification")
                    .map(|f| function(f)),
                doca_pe_connect_ctx,
                doca_pe_create,
                doca_pe_destroy,
                doca_pe_get_notification_handle: get(c"doca_pe_get_notification_handle")
                    .map(|f| function(f)),
                doca_pe_get_num_inflight_tasks: get(c"doca_pe_get_num_inflight_tasks")
                    .map(|f| function(f)),
                doca_pe_progress,
                doca_pe_request_notification: get(c"doca_pe_request_notification")
                    .map(|f| function(f)),
                doca_pe_set_event_mode: get(c"doca_pe_set_event_mode")
                    .map(|f| function(f)),
                doca_pe_set_notification_handle: get(c"doca_pe_set_notification_handle")
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_cpu: get(
                        c"doca_sync_event_add_publisher_location_cpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_dpa: get(
                        c"doca_sync_event_add_publisher_location_dpa",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_gpu: get(
                        c"doca_sync_event_add_publisher_location_gpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_remote_net: get(
                        c"doca_sync_event_add_publisher_location_remote_net",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_publisher_location_remote_pci: get(
                        c"doca_sync_event_add_publisher_location_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_cpu: get(
                        c"doca_sync_event_add_subscriber_location_cpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_dpa: get(
                        c"doca_sync_event_add_subscriber_location_dpa",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_gpu: get(
                        c"doca_sync_event_add_subscriber_location_gpu",
                    )
                    .map(|f| function(f)),
                doca_sync_event_add_subscriber_location_remote_pci: get(
                        c"doca_sync_event_add_subscriber_location_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_as_ctx: get(c"doca_sync_event_as_ctx")
                    .map(|f| function(f)),
                doca_sync_event_cap_is_create_from_export_supported: get(
                        c"doca_sync_event_cap_is_create_from_export_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_dpa_supported: get(
                        c"doca_sync_event_cap_is_export_to_dpa_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_gpu_supported: get(
                        c"doca_sync_event_cap_is_export_to_gpu_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_remote_net_supported: get(
                        c"doca_sync_event_cap_is_export_to_remote_net_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_is_export_to_remote_pci_supported: get(
                        c"doca_sync_event_cap_is_export_to_remote_pci_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_create_from_export_supported: get(
                        c"doca_sync_event_cap_remote_net_is_create_from_export_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_export_to_dpa_supported: get(
                        c"doca_sync_event_cap_remote_net_is_export_to_dpa_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_remote_net_is_export_to_gpu_supported: get(
                        c"doca_sync_event_cap_remote_net_is_export_to_gpu_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_get_is_supported: get(
                        c"doca_sync_event_cap_task_get_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_notify_add_is_supported: get(
                        c"doca_sync_event_cap_task_notify_add_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_notify_set_is_supported: get(
                        c"doca_sync_event_cap_task_notify_set_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_wait_eq_is_supported: get(
                        c"doca_sync_event_cap_task_wait_eq_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_cap_task_wait_neq_is_supported: get(
                        c"doca_sync_event_cap_task_wait_neq_is_supported",
                    )
                    .map(|f| function(f)),
                doca_sync_event_create: get(c"doca_sync_event_create")
                    .map(|f| function(f)),
                doca_sync_event_create_from_export: get(
                        c"doca_sync_event_create_from_export",
                    )
                    .map(|f| function(f)),
                doca_sync_event_destroy: get(c"doca_sync_event_destroy")
                    .map(|f| function(f)),
                doca_sync_event_export_to_remote_net: get(
                        c"doca_sync_event_export_to_remote_net",
                    )
                    .map(|f| function(f)),
                doca_sync_event_export_to_remote_pci: get(
                        c"doca_sync_event_export_to_remote_pci",
                    )
                    .map(|f| function(f)),
                doca_sync_event_get: get(c"doca_sync_event_get").map(|f| function(f)),
                doca_sync_event_get_dpa_handle: get(c"doca_sync_event_get_dpa_handle")
                    .map(|f| function(f)),
                doca_sync_event_get_gpu_handle: get(c"doca_sync_event_get_gpu_handle")
                    .map(|f| function(f)),
                doca_sync_event_remote_net_create_from_export: get(
                        c"doca_sync_event_remote_net_create_from_export",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_destroy: get(
                        c"doca_sync_event_remote_net_destroy",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_get_dpa_handle: get(
                        c"doca_sync_event_remote_net_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_sync_event_remote_net_get_gpu_handle: get(
                        c"doca_sync_event_remote_net_get_gpu_handle",
                    )
                    .map(|f| function(f)),
                doca_sync_event_set_addr: get(c"doca_sync_event_set_addr")
                    .map(|f| function(f)),
                doca_sync_event_set_doca_buf: get(c"doca_sync_event_set_doca_buf")
                    .map(|f| function(f)),
                doca_sync_event_start: get(c"doca_sync_event_start")
                    .map(|f| function(f)),
                doca_sync_event_stop: get(c"doca_sync_event_stop").map(|f| function(f)),
                doca_sync_event_task_get_alloc_init: get(
                        c"doca_sync_event_task_get_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_as_doca_task: get(
                        c"doca_sync_event_task_get_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_get_ret_val_ptr: get(
                        c"doca_sync_event_task_get_get_ret_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_set_conf: get(
                        c"doca_sync_event_task_get_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_get_set_ret_val_ptr: get(
                        c"doca_sync_event_task_get_set_ret_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_alloc_init: get(
                        c"doca_sync_event_task_notify_add_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_as_doca_task: get(
                        c"doca_sync_event_task_notify_add_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_get_fetched_val_ptr: get(
                        c"doca_sync_event_task_notify_add_get_fetched_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_get_inc_val: get(
                        c"doca_sync_event_task_notify_add_get_inc_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_conf: get(
                        c"doca_sync_event_task_notify_add_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_fetched_val_ptr: get(
                        c"doca_sync_event_task_notify_add_set_fetched_val_ptr",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_add_set_inc_val: get(
                        c"doca_sync_event_task_notify_add_set_inc_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_alloc_init: get(
                        c"doca_sync_event_task_notify_set_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_as_doca_task: get(
                        c"doca_sync_event_task_notify_set_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_get_set_val: get(
                        c"doca_sync_event_task_notify_set_get_set_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_set_conf: get(
                        c"doca_sync_event_task_notify_set_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_notify_set_set_set_val: get(
                        c"doca_sync_event_task_notify_set_set_set_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_alloc_init: get(
                        c"doca_sync_event_task_wait_eq_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_as_doca_task: get(
                        c"doca_sync_event_task_wait_eq_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_get_mask: get(
                        c"doca_sync_event_task_wait_eq_get_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_get_wait_val: get(
                        c"doca_sync_event_task_wait_eq_get_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_conf: get(
                        c"doca_sync_event_task_wait_eq_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_mask: get(
                        c"doca_sync_event_task_wait_eq_set_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_eq_set_wait_val: get(
                        c"doca_sync_event_task_wait_eq_set_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_alloc_init: get(
                        c"doca_sync_event_task_wait_neq_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_as_doca_task: get(
                        c"doca_sync_event_task_wait_neq_as_doca_task",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_get_mask: get(
                        c"doca_sync_event_task_wait_neq_get_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_get_wait_val: get(
                        c"doca_sync_event_task_wait_neq_get_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_conf: get(
                        c"doca_sync_event_task_wait_neq_set_conf",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_mask: get(
                        c"doca_sync_event_task_wait_neq_set_mask",
                    )
                    .map(|f| function(f)),
                doca_sync_event_task_wait_neq_set_wait_val: get(
                        c"doca_sync_event_task_wait_neq_set_wait_val",
                    )
                    .map(|f| function(f)),
                doca_sync_event_update_add: get(c"doca_sync_event_update_add")
                    .map(|f| function(f)),
                doca_sync_event_update_set: get(c"doca_sync_event_update_set")
                    .map(|f| function(f)),
                doca_sync_event_wait_eq: get(c"doca_sync_event_wait_eq")
                    .map(|f| function(f)),
                doca_sync_event_wait_eq_yield: get(c"doca_sync_event_wait_eq_yield")
                    .map(|f| function(f)),
                doca_sync_event_wait_gt: get(c"doca_sync_event_wait_gt")
                    .map(|f| function(f)),
                doca_sync_event_wait_gt_yield: get(c"doca_sync_event_wait_gt_yield")
                    .map(|f| function(f)),
                doca_sync_event_wait_neq: get(c"doca_sync_event_wait_neq")
                    .map(|f| function(f)),
                doca_sync_event_wait_neq_yield: get(c"doca_sync_event_wait_neq_yield")
                    .map(|f| function(f)),
                doca_task_batch_free: get(c"doca_task_batch_free").map(|f| function(f)),
                doca_task_batch_get_ctx: get(c"doca_task_batch_get_ctx")
                    .map(|f| function(f)),
                doca_task_batch_get_ctx_user_data: get(
                        c"doca_task_batch_get_ctx_user_data",
                    )
                    .map(|f| function(f)),
                doca_task_batch_get_status: get(c"doca_task_batch_get_status")
                    .map(|f| function(f)),
                doca_task_batch_get_tasks_num: get(c"doca_task_batch_get_tasks_num")
                    .map(|f| function(f)),
                doca_task_batch_get_user_data: get(c"doca_task_batch_get_user_data")
                    .map(|f| function(f)),
                doca_task_batch_set_user_data: get(c"doca_task_batch_set_user_data")
                    .map(|f| function(f)),
                doca_task_batch_submit: get(c"doca_task_batch_submit")
                    .map(|f| function(f)),
                doca_task_batch_try_submit: get(c"doca_task_batch_try_submit")
                    .map(|f| function(f)),
                doca_task_free,
                doca_task_get_ctx: get(c"doca_task_get_ctx").map(|f| function(f)),
                doca_task_get_status,
                doca_task_get_user_data: get(c"doca_task_get_user_data")
                    .map(|f| function(f)),
                doca_task_set_user_data: get(c"doca_task_set_user_data")
                    .map(|f| function(f)),
                doca_task_submit,
                doca_task_submit_ex: get(c"doca_task_submit_ex").map(|f| function(f)),
                doca_task_try_submit: get(c"doca_task_try_submit").map(|f| function(f)),
                doca_version_runtime: get(c"doca_version_runtime").map(|f| function(f)),
            }
        }
    }
}
/// The calls of `libdoca_dma.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Dma {
    /// `doca_dma_as_ctx`.
    pub doca_dma_as_ctx: unsafe extern "C" fn(dma: *mut doca_dma) -> *mut doca_ctx,
    /// `doca_dma_cap_get_max_num_tasks`.
    pub doca_dma_cap_get_max_num_tasks: Option<
        unsafe extern "C" fn(dma: *mut doca_dma, max_num_tasks: *mut u32) -> doca_error_t,
    >,
    /// `doca_dma_cap_task_memcpy_get_max_buf_list_len`.
    pub doca_dma_cap_task_memcpy_get_max_buf_list_len: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_buf_list_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_dma_cap_task_memcpy_get_max_buf_size`.
    pub doca_dma_cap_task_memcpy_get_max_buf_size: unsafe extern "C" fn(
        devinfo: *const doca_devinfo,
        buf_size: *mut u64,
    ) -> doca_error_t,
    /// `doca_dma_cap_task_memcpy_is_supported`.
    pub doca_dma_cap_task_memcpy_is_supported: unsafe extern "C" fn(
        devinfo: *const doca_devinfo,
    ) -> doca_error_t,
    /// `doca_dma_create`.
    pub doca_dma_create: unsafe extern "C" fn(
        dev: *mut doca_dev,
        dma: *mut *mut doca_dma,
    ) -> doca_error_t,
    /// `doca_dma_destroy`.
    pub doca_dma_destroy: unsafe extern "C" fn(dma: *mut doca_dma) -> doca_error_t,
    /// `doca_dma_get_gpu_handle`.
    pub doca_dma_get_gpu_handle: Option<
        unsafe extern "C" fn(
            dma: *mut doca_dma,
            gpu_dma: *mut *mut doca_gpu_dma,
        ) -> doca_error_t,
    >,
    /// `doca_dma_task_memcpy_alloc_init`.
    pub doca_dma_task_memcpy_alloc_init: unsafe extern "C" fn(
        dma: *mut doca_dma,
        src: *const doca_buf,
        dst: *mut doca_buf,
        user_data: doca_data,
        task: *mut *mut doca_dma_task_memcpy,
    ) -> doca_error_t,
    /// `doca_dma_task_memcpy_as_task`.
    pub doca_dma_task_memcpy_as_task: unsafe extern "C" fn(
        task: *mut doca_dma_task_memcpy,
    ) -> *mut doca_task,
    /// `doca_dma_task_memcpy_get_dst`.
    pub doca_dma_task_memcpy_get_dst: Option<
        unsafe extern "C" fn(task: *const doca_dma_task_memcpy) -> *mut doca_buf,
    >,
    /// `doca_dma_task_memcpy_get_src`.
    pub doca_dma_task_memcpy_get_src: Option<
        unsafe extern "C" fn(task: *const doca_dma_task_memcpy) -> *const doca_buf,
    >,
    /// `doca_dma_task_memcpy_set_conf`.
    pub doca_dma_task_memcpy_set_conf: unsafe extern "C" fn(
        dma: *mut doca_dma,
        task_completion_cb: doca_dma_task_memcpy_completion_cb_t,
        task_error_cb: doca_dma_task_memcpy_completion_cb_t,
        num_memcpy_tasks: u32,
    ) -> doca_error_t,
    /// `doca_dma_task_memcpy_set_dst`.
    pub doca_dma_task_memcpy_set_dst: unsafe extern "C" fn(
        task: *mut doca_dma_task_memcpy,
        dst: *mut doca_buf,
    ),
    /// `doca_dma_task_memcpy_set_src`.
    pub doca_dma_task_memcpy_set_src: unsafe extern "C" fn(
        task: *mut doca_dma_task_memcpy,
        src: *const doca_buf,
    ),
}
impl Dma {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let doca_dma_as_ctx = need(c"doca_dma_as_ctx");
        let doca_dma_cap_task_memcpy_get_max_buf_size = need(
            c"doca_dma_cap_task_memcpy_get_max_buf_size",
        );
        let doca_dma_cap_task_memcpy_is_supported = need(
            c"doca_dma_cap_task_memcpy_is_supported",
        );
        let doca_dma_create = need(c"doca_dma_create");
        let doca_dma_destroy = need(c"doca_dma_destroy");
        let doca_dma_task_memcpy_alloc_init = need(c"doca_dma_task_memcpy_alloc_init");
        let doca_dma_task_memcpy_as_task = need(c"doca_dma_task_memcpy_as_task");
        let doca_dma_task_memcpy_set_conf = need(c"doca_dma_task_memcpy_set_conf");
        let doca_dma_task_memcpy_set_dst = need(c"doca_dma_task_memcpy_set_dst");
        let doca_dma_task_memcpy_set_src = need(c"doca_dma_task_memcpy_set_src");
        let mut all = || unsafe {
            Some(Self {
                doca_dma_as_ctx: function(doca_dma_as_ctx?),
                doca_dma_cap_get_max_num_tasks: get(c"doca_dma_cap_get_max_num_tasks")
                    .map(|f| function(f)),
                doca_dma_cap_task_memcpy_get_max_buf_list_len: get(
                        c"doca_dma_cap_task_memcpy_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_dma_cap_task_memcpy_get_max_buf_size: function(
                    doca_dma_cap_task_memcpy_get_max_buf_size?,
                ),
                doca_dma_cap_task_memcpy_is_supported: function(
                    doca_dma_cap_task_memcpy_is_supported?,
                ),
                doca_dma_create: function(doca_dma_create?),
                doca_dma_destroy: function(doca_dma_destroy?),
                doca_dma_get_gpu_handle: get(c"doca_dma_get_gpu_handle")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_alloc_init: function(
                    doca_dma_task_memcpy_alloc_init?,
                ),
                doca_dma_task_memcpy_as_task: function(doca_dma_task_memcpy_as_task?),
                doca_dma_task_memcpy_get_dst: get(c"doca_dma_task_memcpy_get_dst")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_get_src: get(c"doca_dma_task_memcpy_get_src")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_set_conf: function(doca_dma_task_memcpy_set_conf?),
                doca_dma_task_memcpy_set_dst: function(doca_dma_task_memcpy_set_dst?),
                doca_dma_task_memcpy_set_src: function(doca_dma_task_memcpy_set_src?),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                doca_dma_as_ctx,
                doca_dma_cap_get_max_num_tasks: get(c"doca_dma_cap_get_max_num_tasks")
                    .map(|f| function(f)),
                doca_dma_cap_task_memcpy_get_max_buf_list_len: get(
                        c"doca_dma_cap_task_memcpy_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_dma_cap_task_memcpy_get_max_buf_size,
                doca_dma_cap_task_memcpy_is_supported,
                doca_dma_create,
                doca_dma_destroy,
                doca_dma_get_gpu_handle: get(c"doca_dma_get_gpu_handle")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_alloc_init,
                doca_dma_task_memcpy_as_task,
                doca_dma_task_memcpy_get_dst: get(c"doca_dma_task_memcpy_get_dst")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_get_src: get(c"doca_dma_task_memcpy_get_src")
                    .map(|f| function(f)),
                doca_dma_task_memcpy_set_conf,
                doca_dma_task_memcpy_set_dst,
                doca_dma_task_memcpy_set_src,
            }
        }
    }
}
/// The calls of `libdoca_comch.so`. Each field has the name of its call, and is an option where a version may
/// lack it.
#[derive(Clone, Copy, Debug)]
pub struct Comch {
    /// `doca_comch_cap_client_is_supported`.
    pub doca_comch_cap_client_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_comch_cap_get_max_clients`.
    pub doca_comch_cap_get_max_clients: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            num_clients: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_cap_get_max_msg_size`.
    pub doca_comch_cap_get_max_msg_size: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_cap_get_max_name_len`.
    pub doca_comch_cap_get_max_name_len: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_name_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_cap_get_max_recv_queue_size`.
    pub doca_comch_cap_get_max_recv_queue_size: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_cap_get_max_send_tasks`.
    pub doca_comch_cap_get_max_send_tasks: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_send_tasks: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_cap_server_is_supported`.
    pub doca_comch_cap_server_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_comch_client_as_ctx`.
    pub doca_comch_client_as_ctx: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
    ) -> *mut doca_ctx,
    /// `doca_comch_client_create`.
    pub doca_comch_client_create: unsafe extern "C" fn(
        dev: *mut doca_dev,
        name: *const ::core::ffi::c_char,
        comch_client: *mut *mut doca_comch_client,
    ) -> doca_error_t,
    /// `doca_comch_client_destroy`.
    pub doca_comch_client_destroy: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
    ) -> doca_error_t,
    /// `doca_comch_client_event_consumer_register`.
    pub doca_comch_client_event_consumer_register: Option<
        unsafe extern "C" fn(
            comch_client: *mut doca_comch_client,
            new_consumer_event_cb: doca_comch_event_consumer_cb_t,
            expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
        ) -> doca_error_t,
    >,
    /// `doca_comch_client_event_msg_recv_register`.
    pub doca_comch_client_event_msg_recv_register: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
        recv_event_cb: doca_comch_event_msg_recv_cb_t,
    ) -> doca_error_t,
    /// `doca_comch_client_get_client_ctx`.
    pub doca_comch_client_get_client_ctx: Option<
        unsafe extern "C" fn(
            connection: *const doca_comch_connection,
        ) -> *mut doca_comch_client,
    >,
    /// `doca_comch_client_get_connection`.
    pub doca_comch_client_get_connection: unsafe extern "C" fn(
        comch_client: *const doca_comch_client,
        connection: *mut *mut doca_comch_connection,
    ) -> doca_error_t,
    /// `doca_comch_client_get_device`.
    pub doca_comch_client_get_device: Option<
        unsafe extern "C" fn(
            comch_client: *const doca_comch_client,
            dev: *mut *mut doca_dev,
        ) -> doca_error_t,
    >,
    /// `doca_comch_client_get_max_msg_size`.
    pub doca_comch_client_get_max_msg_size: Option<
        unsafe extern "C" fn(
            comch_client: *const doca_comch_client,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_client_get_recv_queue_size`.
    pub doca_comch_client_get_recv_queue_size: Option<
        unsafe extern "C" fn(
            comch_client: *const doca_comch_client,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_client_set_max_msg_size`.
    pub doca_comch_client_set_max_msg_size: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
        size: u32,
    ) -> doca_error_t,
    /// `doca_comch_client_set_recv_queue_size`.
    pub doca_comch_client_set_recv_queue_size: Option<
        unsafe extern "C" fn(
            comch_client: *mut doca_comch_client,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_client_task_send_alloc_init`.
    pub doca_comch_client_task_send_alloc_init: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
        peer: *mut doca_comch_connection,
        msg: *const ::core::ffi::c_void,
        len: u32,
        task: *mut *mut doca_comch_task_send,
    ) -> doca_error_t,
    /// `doca_comch_client_task_send_set_conf`.
    pub doca_comch_client_task_send_set_conf: unsafe extern "C" fn(
        comch_client: *mut doca_comch_client,
        task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t,
        num_send_tasks: u32,
    ) -> doca_error_t,
    /// `doca_comch_connection_get_counter`.
    pub doca_comch_connection_get_counter: Option<
        unsafe extern "C" fn(
            comch_connection: *const doca_comch_connection,
            counter_type: doca_comch_counter,
            counter_value: *mut u64,
        ) -> doca_error_t,
    >,
    /// `doca_comch_connection_get_user_data`.
    pub doca_comch_connection_get_user_data: Option<
        unsafe extern "C" fn(connection: *const doca_comch_connection) -> doca_data,
    >,
    /// `doca_comch_connection_set_user_data`.
    pub doca_comch_connection_set_user_data: Option<
        unsafe extern "C" fn(
            connection: *mut doca_comch_connection,
            user_data: doca_data,
        ) -> doca_error_t,
    >,
    /// `doca_comch_connection_update_info`.
    pub doca_comch_connection_update_info: Option<
        unsafe extern "C" fn(
            comch_connection: *mut doca_comch_connection,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_as_ctx`.
    pub doca_comch_consumer_as_ctx: Option<
        unsafe extern "C" fn(consumer: *mut doca_comch_consumer) -> *mut doca_ctx,
    >,
    /// `doca_comch_consumer_cap_get_max_buf_list_len`.
    pub doca_comch_consumer_cap_get_max_buf_list_len: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_buf_list_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_cap_get_max_buf_size`.
    pub doca_comch_consumer_cap_get_max_buf_size: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_buf_size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_cap_get_max_consumers`.
    pub doca_comch_consumer_cap_get_max_consumers: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_consumers: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_cap_get_max_imm_data_len`.
    pub doca_comch_consumer_cap_get_max_imm_data_len: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_imm_data_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_cap_get_max_num_tasks`.
    pub doca_comch_consumer_cap_get_max_num_tasks: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_num_tasks: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_cap_is_supported`.
    pub doca_comch_consumer_cap_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_create`.
    pub doca_comch_consumer_completion_create: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut *mut doca_comch_consumer_completion,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_destroy`.
    pub doca_comch_consumer_completion_destroy: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_get_dpa_handle`.
    pub doca_comch_consumer_completion_get_dpa_handle: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
            consumer_comp_handle: *mut doca_dpa_dev_comch_consumer_completion_t,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_get_imm_data_len`.
    pub doca_comch_consumer_completion_get_imm_data_len: Option<
        unsafe extern "C" fn(
            consumer_comp: *const doca_comch_consumer_completion,
            imm_data_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_get_max_num_consumers`.
    pub doca_comch_consumer_completion_get_max_num_consumers: Option<
        unsafe extern "C" fn(
            consumer_comp: *const doca_comch_consumer_completion,
            max_num_consumers: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_get_max_num_recv`.
    pub doca_comch_consumer_completion_get_max_num_recv: Option<
        unsafe extern "C" fn(
            consumer_comp: *const doca_comch_consumer_completion,
            max_num_recv: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_set_dpa_thread`.
    pub doca_comch_consumer_completion_set_dpa_thread: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
            dpa_thread: *mut doca_dpa_thread,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_set_imm_data_len`.
    pub doca_comch_consumer_completion_set_imm_data_len: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
            imm_data_len: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_set_max_num_consumers`.
    pub doca_comch_consumer_completion_set_max_num_consumers: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
            max_num_consumers: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_set_max_num_recv`.
    pub doca_comch_consumer_completion_set_max_num_recv: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
            max_num_recv: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_start`.
    pub doca_comch_consumer_completion_start: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_completion_stop`.
    pub doca_comch_consumer_completion_stop: Option<
        unsafe extern "C" fn(
            consumer_comp: *mut doca_comch_consumer_completion,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_create`.
    pub doca_comch_consumer_create: Option<
        unsafe extern "C" fn(
            comch_connection: *mut doca_comch_connection,
            buf_mmap: *mut doca_mmap,
            consumer: *mut *mut doca_comch_consumer,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_destroy`.
    pub doca_comch_consumer_destroy: Option<
        unsafe extern "C" fn(consumer: *mut doca_comch_consumer) -> doca_error_t,
    >,
    /// `doca_comch_consumer_get_dpa_handle`.
    pub doca_comch_consumer_get_dpa_handle: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            dpa_consumer: *mut doca_dpa_dev_comch_consumer_t,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_get_id`.
    pub doca_comch_consumer_get_id: Option<
        unsafe extern "C" fn(
            consumer: *const doca_comch_consumer,
            id: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_get_imm_data_len`.
    pub doca_comch_consumer_get_imm_data_len: Option<
        unsafe extern "C" fn(
            consumer: *const doca_comch_consumer,
            imm_data_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_set_completion`.
    pub doca_comch_consumer_set_completion: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            consumer_comp: *mut doca_comch_consumer_completion,
            user_data: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_set_dev_max_num_recv`.
    pub doca_comch_consumer_set_dev_max_num_recv: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            dev_num_recv: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_set_imm_data_len`.
    pub doca_comch_consumer_set_imm_data_len: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            imm_data_len: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_task_post_recv_alloc_init`.
    pub doca_comch_consumer_task_post_recv_alloc_init: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            buf: *mut doca_buf,
            task: *mut *mut doca_comch_consumer_task_post_recv,
        ) -> doca_error_t,
    >,
    /// `doca_comch_consumer_task_post_recv_as_task`.
    pub doca_comch_consumer_task_post_recv_as_task: Option<
        unsafe extern "C" fn(
            task: *mut doca_comch_consumer_task_post_recv,
        ) -> *mut doca_task,
    >,
    /// `doca_comch_consumer_task_post_recv_get_buf`.
    pub doca_comch_consumer_task_post_recv_get_buf: Option<
        unsafe extern "C" fn(
            task: *const doca_comch_consumer_task_post_recv,
        ) -> *mut doca_buf,
    >,
    /// `doca_comch_consumer_task_post_recv_get_imm_data`.
    pub doca_comch_consumer_task_post_recv_get_imm_data: Option<
        unsafe extern "C" fn(
            task: *const doca_comch_consumer_task_post_recv,
        ) -> *const u8,
    >,
    /// `doca_comch_consumer_task_post_recv_get_imm_data_len`.
    pub doca_comch_consumer_task_post_recv_get_imm_data_len: Option<
        unsafe extern "C" fn(task: *const doca_comch_consumer_task_post_recv) -> u32,
    >,
    /// `doca_comch_consumer_task_post_recv_get_producer_id`.
    pub doca_comch_consumer_task_post_recv_get_producer_id: Option<
        unsafe extern "C" fn(task: *const doca_comch_consumer_task_post_recv) -> u32,
    >,
    /// `doca_comch_consumer_task_post_recv_set_buf`.
    pub doca_comch_consumer_task_post_recv_set_buf: Option<
        unsafe extern "C" fn(
            task: *mut doca_comch_consumer_task_post_recv,
            buf: *mut doca_buf,
        ),
    >,
    /// `doca_comch_consumer_task_post_recv_set_conf`.
    pub doca_comch_consumer_task_post_recv_set_conf: Option<
        unsafe extern "C" fn(
            consumer: *mut doca_comch_consumer,
            task_completion_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
            task_error_cb: doca_comch_consumer_task_post_recv_completion_cb_t,
            num_post_recv_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_as_ctx`.
    pub doca_comch_producer_as_ctx: Option<
        unsafe extern "C" fn(producer: *mut doca_comch_producer) -> *mut doca_ctx,
    >,
    /// `doca_comch_producer_cap_get_max_buf_list_len`.
    pub doca_comch_producer_cap_get_max_buf_list_len: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_buf_list_len: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_cap_get_max_buf_size`.
    pub doca_comch_producer_cap_get_max_buf_size: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_buf_size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_cap_get_max_num_tasks`.
    pub doca_comch_producer_cap_get_max_num_tasks: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_num_tasks: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_cap_get_max_producers`.
    pub doca_comch_producer_cap_get_max_producers: Option<
        unsafe extern "C" fn(
            devinfo: *const doca_devinfo,
            max_producers: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_cap_is_supported`.
    pub doca_comch_producer_cap_is_supported: Option<
        unsafe extern "C" fn(devinfo: *const doca_devinfo) -> doca_error_t,
    >,
    /// `doca_comch_producer_create`.
    pub doca_comch_producer_create: Option<
        unsafe extern "C" fn(
            comch_connection: *mut doca_comch_connection,
            producer: *mut *mut doca_comch_producer,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_destroy`.
    pub doca_comch_producer_destroy: Option<
        unsafe extern "C" fn(producer: *mut doca_comch_producer) -> doca_error_t,
    >,
    /// `doca_comch_producer_dpa_completion_attach`.
    pub doca_comch_producer_dpa_completion_attach: Option<
        unsafe extern "C" fn(
            producer: *mut doca_comch_producer,
            dpa_comp: *mut doca_dpa_completion,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_get_dpa_handle`.
    pub doca_comch_producer_get_dpa_handle: Option<
        unsafe extern "C" fn(
            producer: *mut doca_comch_producer,
            dpa_producer: *mut doca_dpa_dev_comch_producer_t,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_get_id`.
    pub doca_comch_producer_get_id: Option<
        unsafe extern "C" fn(
            producer: *const doca_comch_producer,
            id: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_set_dev_max_num_send`.
    pub doca_comch_producer_set_dev_max_num_send: Option<
        unsafe extern "C" fn(
            producer: *mut doca_comch_producer,
            dev_num_send: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_task_send_alloc_init`.
    pub doca_comch_producer_task_send_alloc_init: Option<
        unsafe extern "C" fn(
            producer: *mut doca_comch_producer,
            buf: *const doca_buf,
            imm_data: *mut u8,
            imm_data_len: u32,
            consumer_id: u32,
            task: *mut *mut doca_comch_producer_task_send,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_task_send_as_task`.
    pub doca_comch_producer_task_send_as_task: Option<
        unsafe extern "C" fn(task: *mut doca_comch_producer_task_send) -> *mut doca_task,
    >,
    /// `doca_comch_producer_task_send_get_buf`.
    pub doca_comch_producer_task_send_get_buf: Option<
        unsafe extern "C" fn(
            task: *const doca_comch_producer_task_send,
        ) -> *const doca_buf,
    >,
    /// `doca_comch_producer_task_send_get_consumer_id`.
    pub doca_comch_producer_task_send_get_consumer_id: Option<
        unsafe extern "C" fn(task: *const doca_comch_producer_task_send) -> u32,
    >,
    /// `doca_comch_producer_task_send_get_imm_data`.
    pub doca_comch_producer_task_send_get_imm_data: Option<
        unsafe extern "C" fn(task: *const doca_comch_producer_task_send) -> *mut u8,
    >,
    /// `doca_comch_producer_task_send_get_imm_data_len`.
    pub doca_comch_producer_task_send_get_imm_data_len: Option<
        unsafe extern "C" fn(task: *const doca_comch_producer_task_send) -> u32,
    >,
    /// `doca_comch_producer_task_send_set_buf`.
    pub doca_comch_producer_task_send_set_buf: Option<
        unsafe extern "C" fn(
            task: *mut doca_comch_producer_task_send,
            buf: *const doca_buf,
        ),
    >,
    /// `doca_comch_producer_task_send_set_conf`.
    pub doca_comch_producer_task_send_set_conf: Option<
        unsafe extern "C" fn(
            producer: *mut doca_comch_producer,
            task_completion_cb: doca_comch_producer_task_send_completion_cb_t,
            task_error_cb: doca_comch_producer_task_send_completion_cb_t,
            num_send_tasks: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_producer_task_send_set_consumer_id`.
    pub doca_comch_producer_task_send_set_consumer_id: Option<
        unsafe extern "C" fn(task: *mut doca_comch_producer_task_send, consumer_id: u32),
    >,
    /// `doca_comch_producer_task_send_set_imm_data`.
    pub doca_comch_producer_task_send_set_imm_data: Option<
        unsafe extern "C" fn(
            task: *mut doca_comch_producer_task_send,
            imm_data: *mut u8,
            imm_data_len: u32,
        ),
    >,
    /// `doca_comch_server_as_ctx`.
    pub doca_comch_server_as_ctx: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
    ) -> *mut doca_ctx,
    /// `doca_comch_server_create`.
    pub doca_comch_server_create: unsafe extern "C" fn(
        dev: *mut doca_dev,
        repr: *mut doca_dev_rep,
        name: *const ::core::ffi::c_char,
        comch_server: *mut *mut doca_comch_server,
    ) -> doca_error_t,
    /// `doca_comch_server_destroy`.
    pub doca_comch_server_destroy: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
    ) -> doca_error_t,
    /// `doca_comch_server_disconnect`.
    pub doca_comch_server_disconnect: Option<
        unsafe extern "C" fn(
            comch_server: *mut doca_comch_server,
            connection: *mut doca_comch_connection,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_event_connection_status_changed_register`.
    pub doca_comch_server_event_connection_status_changed_register: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
        connect_event_cb: doca_comch_event_connection_status_changed_cb_t,
        disconnect_event_cb: doca_comch_event_connection_status_changed_cb_t,
    ) -> doca_error_t,
    /// `doca_comch_server_event_consumer_register`.
    pub doca_comch_server_event_consumer_register: Option<
        unsafe extern "C" fn(
            comch_server: *mut doca_comch_server,
            new_consumer_event_cb: doca_comch_event_consumer_cb_t,
            expired_consumer_event_cb: doca_comch_event_consumer_cb_t,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_event_msg_recv_register`.
    pub doca_comch_server_event_msg_recv_register: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
        recv_event_cb: doca_comch_event_msg_recv_cb_t,
    ) -> doca_error_t,
    /// `doca_comch_server_get_device`.
    pub doca_comch_server_get_device: Option<
        unsafe extern "C" fn(
            comch_server: *const doca_comch_server,
            dev: *mut *mut doca_dev,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_get_device_rep`.
    pub doca_comch_server_get_device_rep: Option<
        unsafe extern "C" fn(
            comch_server: *const doca_comch_server,
            rep: *mut *mut doca_dev_rep,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_get_max_msg_size`.
    pub doca_comch_server_get_max_msg_size: Option<
        unsafe extern "C" fn(
            comch_server: *const doca_comch_server,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_get_recv_queue_size`.
    pub doca_comch_server_get_recv_queue_size: Option<
        unsafe extern "C" fn(
            comch_server: *const doca_comch_server,
            size: *mut u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_get_server_ctx`.
    pub doca_comch_server_get_server_ctx: Option<
        unsafe extern "C" fn(
            connection: *const doca_comch_connection,
        ) -> *mut doca_comch_server,
    >,
    /// `doca_comch_server_set_max_msg_size`.
    pub doca_comch_server_set_max_msg_size: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
        size: u32,
    ) -> doca_error_t,
    /// `doca_comch_server_set_recv_queue_size`.
    pub doca_comch_server_set_recv_queue_size: Option<
        unsafe extern "C" fn(
            comch_server: *mut doca_comch_server,
            size: u32,
        ) -> doca_error_t,
    >,
    /// `doca_comch_server_task_send_alloc_init`.
    pub doca_comch_server_task_send_alloc_init: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
        peer: *mut doca_comch_connection,
        msg: *const ::core::ffi::c_void,
        len: u32,
        task: *mut *mut doca_comch_task_send,
    ) -> doca_error_t,
    /// `doca_comch_server_task_send_set_conf`.
    pub doca_comch_server_task_send_set_conf: unsafe extern "C" fn(
        comch_server: *mut doca_comch_server,
        task_completion_cb: doca_comch_task_send_completion_cb_t,
        task_error_cb: doca_comch_task_send_completion_cb_t,
        num_send_tasks: u32,
    ) -> doca_error_t,
    /// `doca_comch_task_send_as_task`.
    pub doca_comch_task_send_as_task: unsafe extern "C" fn(
        task: *mut doca_comch_task_send,
    ) -> *mut doca_task,
}
impl Comch {
    /// Takes from `get` the address of each call. `Err` names the required ones that it does not have.
    ///
    /// # Errors
    ///
    /// The names of all required calls for which `get` answered `None`.
    ///
    /// # Safety
    ///
    /// What `get` answers for a name is the address of the function that the headers declare by it, and stays so for as
    /// long as the table or a copy of it is used.
    pub unsafe fn load(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Result<Self, Vec<&'static CStr>> {
        let mut missing = Vec::new();
        let mut need = |name| {
            let found = get(name);
            if found.is_none() {
                missing.push(name);
            }
            found
        };
        let doca_comch_client_as_ctx = need(c"doca_comch_client_as_ctx");
        let doca_comch_client_create = need(c"doca_comch_client_create");
        let doca_comch_client_destroy = need(c"doca_comch_client_destroy");
        let doca_comch_client_event_msg_recv_register = need(
            c"doca_comch_client_event_msg_recv_register",
        );
        let doca_comch_client_get_connection = need(c"doca_comch_client_get_connection");
        let doca_comch_client_set_max_msg_size = need(
            c"doca_comch_client_set_max_msg_size",
        );
        let doca_comch_client_task_send_alloc_init = need(
            c"doca_comch_client_task_send_alloc_init",
        );
        let doca_comch_client_task_send_set_conf = need(
            c"doca_comch_client_task_send_set_conf",
        );
        let doca_comch_server_as_ctx = need(c"doca_comch_server_as_ctx");
        let doca_comch_server_create = need(c"doca_comch_server_create");
        let doca_comch_server_destroy = need(c"doca_comch_server_destroy");
        let doca_comch_server_event_connection_status_changed_register = need(
            c"doca_comch_server_event_connection_status_changed_register",
        );
        let doca_comch_server_event_msg_recv_register = need(
            c"doca_comch_server_event_msg_recv_register",
        );
        let doca_comch_server_set_max_msg_size = need(
            c"doca_comch_server_set_max_msg_size",
        );
        let doca_comch_server_task_send_alloc_init = need(
            c"doca_comch_server_task_send_alloc_init",
        );
        let doca_comch_server_task_send_set_conf = need(
            c"doca_comch_server_task_send_set_conf",
        );
        let doca_comch_task_send_as_task = need(c"doca_comch_task_send_as_task");
        let mut all = || unsafe {
            Some(Self {
                doca_comch_cap_client_is_supported: get(
                        c"doca_comch_cap_client_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_get_max_clients: get(c"doca_comch_cap_get_max_clients")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_msg_size: get(c"doca_comch_cap_get_max_msg_size")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_name_len: get(c"doca_comch_cap_get_max_name_len")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_recv_queue_size: get(
                        c"doca_comch_cap_get_max_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_get_max_send_tasks: get(
                        c"doca_comch_cap_get_max_send_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_server_is_supported: get(
                        c"doca_comch_cap_server_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_client_as_ctx: function(doca_comch_client_as_ctx?),
                doca_comch_client_create: function(doca_comch_client_create?),
                doca_comch_client_destroy: function(doca_comch_client_destroy?),
                doca_comch_client_event_consumer_register: get(
                        c"doca_comch_client_event_consumer_register",
                    )
                    .map(|f| function(f)),
                doca_comch_client_event_msg_recv_register: function(
                    doca_comch_client_event_msg_recv_register?,
                ),
                doca_comch_client_get_client_ctx: get(
                        c"doca_comch_client_get_client_ctx",
                    )
                    .map(|f| function(f)),
                doca_comch_client_get_connection: function(
                    doca_comch_client_get_connection?,
                ),
                doca_comch_client_get_device: get(c"doca_comch_client_get_device")
                    .map(|f| function(f)),
                doca_comch_client_get_max_msg_size: get(
                        c"doca_comch_client_get_max_msg_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_get_recv_queue_size: get(
                        c"doca_comch_client_get_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_set_max_msg_size: function(
                    doca_comch_client_set_max_msg_size?,
                ),
                doca_comch_client_set_recv_queue_size: get(
                        c"doca_comch_client_set_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_task_send_alloc_init: function(
                    doca_comch_client_task_send_alloc_init?,
                ),
                doca_comch_client_task_send_set_conf: function(
                    doca_comch_client_task_send_set_conf?,
                ),
                doca_comch_connection_get_counter: get(
                        c"doca_comch_connection_get_counter",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_get_user_data: get(
                        c"doca_comch_connection_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_set_user_data: get(
                        c"doca_comch_connection_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_update_info: get(
                        c"doca_comch_connection_update_info",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_as_ctx: get(c"doca_comch_consumer_as_ctx")
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_buf_list_len: get(
                        c"doca_comch_consumer_cap_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_buf_size: get(
                        c"doca_comch_consumer_cap_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_consumers: get(
                        c"doca_comch_consumer_cap_get_max_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_imm_data_len: get(
                        c"doca_comch_consumer_cap_get_max_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_num_tasks: get(
                        c"doca_comch_consumer_cap_get_max_num_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_is_supported: get(
                        c"doca_comch_consumer_cap_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_create: get(
                        c"doca_comch_consumer_completion_create",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_destroy: get(
                        c"doca_comch_consumer_completion_destroy",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_dpa_handle: get(
                        c"doca_comch_consumer_completion_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_imm_data_len: get(
                        c"doca_comch_consumer_completion_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_max_num_consumers: get(
                        c"doca_comch_consumer_completion_get_max_num_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_max_num_recv: get(
                        c"doca_comch_consumer_completion_get_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_dpa_thread: get(
                        c"doca_comch_consumer_completion_set_dpa_thread",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_imm_data_len: get(
                        c"doca_comch_consumer_completion_set_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_max_num_consumers: get(
                        c"doca_comch_consumer_completion_set_max_num_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_max_num_recv: get(
                        c"doca_comch_consumer_completion_set_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_start: get(
                        c"doca_comch_consumer_completion_start",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_stop: get(
                        c"doca_comch_consumer_completion_stop",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_create: get(c"doca_comch_consumer_create")
                    .map(|f| function(f)),
                doca_comch_consumer_destroy: get(c"doca_comch_consumer_destroy")
                    .map(|f| function(f)),
                doca_comch_consumer_get_dpa_handle: get(
                        c"doca_comch_consumer_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_get_id: get(c"doca_comch_consumer_get_id")
                    .map(|f| function(f)),
                doca_comch_consumer_get_imm_data_len: get(
                        c"doca_comch_consumer_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_completion: get(
                        c"doca_comch_consumer_set_completion",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_dev_max_num_recv: get(
                        c"doca_comch_consumer_set_dev_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_imm_data_len: get(
                        c"doca_comch_consumer_set_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_alloc_init: get(
                        c"doca_comch_consumer_task_post_recv_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_as_task: get(
                        c"doca_comch_consumer_task_post_recv_as_task",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_buf: get(
                        c"doca_comch_consumer_task_post_recv_get_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_imm_data: get(
                        c"doca_comch_consumer_task_post_recv_get_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_imm_data_len: get(
                        c"doca_comch_consumer_task_post_recv_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_producer_id: get(
                        c"doca_comch_consumer_task_post_recv_get_producer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_set_buf: get(
                        c"doca_comch_consumer_task_post_recv_set_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_set_conf: get(
                        c"doca_comch_consumer_task_post_recv_set_conf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_as_ctx: get(c"doca_comch_producer_as_ctx")
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_buf_list_len: get(
                        c"doca_comch_producer_cap_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_buf_size: get(
                        c"doca_comch_producer_cap_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_num_tasks: get(
                        c"doca_comch_producer_cap_get_max_num_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_producers: get(
                        c"doca_comch_producer_cap_get_max_producers",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_is_supported: get(
                        c"doca_comch_producer_cap_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_create: get(c"doca_comch_producer_create")
                    .map(|f| function(f)),
                doca_comch_producer_destroy: get(c"doca_comch_producer_destroy")
                    .map(|f| function(f)),
                doca_comch_producer_dpa_completion_attach: get(
                        c"doca_comch_producer_dpa_completion_attach",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_get_dpa_handle: get(
                        c"doca_comch_producer_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_get_id: get(c"doca_comch_producer_get_id")
                    .map(|f| function(f)),
                doca_comch_producer_set_dev_max_num_send: get(
                        c"doca_comch_producer_set_dev_max_num_send",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_alloc_init: get(
                        c"doca_comch_producer_task_send_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_as_task: get(
                        c"doca_comch_producer_task_send_as_task",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_buf: get(
                        c"doca_comch_producer_task_send_get_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_consumer_id: get(
                        c"doca_comch_producer_task_send_get_consumer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_imm_data: get(
                        c"doca_comch_producer_task_send_get_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_imm_data_len: get(
                        c"doca_comch_producer_task_send_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_buf: get(
                        c"doca_comch_producer_task_send_set_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_conf: get(
                        c"doca_comch_producer_task_send_set_conf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_consumer_id: get(
                        c"doca_comch_producer_task_send_set_consumer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_imm_data: get(
                        c"doca_comch_producer_task_send_set_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_server_as_ctx: function(doca_comch_server_as_ctx?),
                doca_comch_server_create: function(doca_comch_server_create?),
                doca_comch_server_destroy: function(doca_comch_server_destroy?),
                doca_comch_server_disconnect: get(c"doca_comch_server_disconnect")
                    .map(|f| function(f)),
                doca_comch_server_event_connection_status_changed_register: function(
                    doca_comch_server_event_connection_status_changed_register?,
                ),
                doca_comch_server_event_consumer_register: get(
                        c"doca_comch_server_event_consumer_register",
                    )
                    .map(|f| function(f)),
                doca_comch_server_event_msg_recv_register: function(
                    doca_comch_server_event_msg_recv_register?,
                ),
                doca_comch_server_get_device: get(c"doca_comch_server_get_device")
                    .map(|f| function(f)),
                doca_comch_server_get_device_rep: get(
                        c"doca_comch_server_get_device_rep",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_max_msg_size: get(
                        c"doca_comch_server_get_max_msg_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_recv_queue_size: get(
                        c"doca_comch_server_get_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_server_ctx: get(
                        c"doca_comch_server_get_server_ctx",
                    )
                    .map(|f| function(f)),
                doca_comch_server_set_max_msg_size: function(
                    doca_comch_server_set_max_msg_size?,
                ),
                doca_comch_server_set_recv_queue_size: get(
                        c"doca_comch_server_set_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_task_send_alloc_init: function(
                    doca_comch_server_task_send_alloc_init?,
                ),
                doca_comch_server_task_send_set_conf: function(
                    doca_comch_server_task_send_set_conf?,
                ),
                doca_comch_task_send_as_task: function(doca_comch_task_send_as_task?),
            })
        };
        all().ok_or(missing)
    }
    /// Takes the required calls from what this program was linked with, and the others from `get`.
    ///
    /// # Safety
    ///
    /// As [`load`](Self::load).
    #[cfg(feature = "linked")]
    pub unsafe fn linked(
        mut get: impl FnMut(&'static CStr) -> Option<NonNull<c_void>>,
    ) -> Self {
        unsafe {
            Self {
                doca_comch_cap_client_is_supported: get(
                        c"doca_comch_cap_client_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_get_max_clients: get(c"doca_comch_cap_get_max_clients")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_msg_size: get(c"doca_comch_cap_get_max_msg_size")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_name_len: get(c"doca_comch_cap_get_max_name_len")
                    .map(|f| function(f)),
                doca_comch_cap_get_max_recv_queue_size: get(
                        c"doca_comch_cap_get_max_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_get_max_send_tasks: get(
                        c"doca_comch_cap_get_max_send_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_cap_server_is_supported: get(
                        c"doca_comch_cap_server_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_client_as_ctx,
                doca_comch_client_create,
                doca_comch_client_destroy,
                doca_comch_client_event_consumer_register: get(
                        c"doca_comch_client_event_consumer_register",
                    )
                    .map(|f| function(f)),
                doca_comch_client_event_msg_recv_register,
                doca_comch_client_get_client_ctx: get(
                        c"doca_comch_client_get_client_ctx",
                    )
                    .map(|f| function(f)),
                doca_comch_client_get_connection,
                doca_comch_client_get_device: get(c"doca_comch_client_get_device")
                    .map(|f| function(f)),
                doca_comch_client_get_max_msg_size: get(
                        c"doca_comch_client_get_max_msg_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_get_recv_queue_size: get(
                        c"doca_comch_client_get_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_set_max_msg_size,
                doca_comch_client_set_recv_queue_size: get(
                        c"doca_comch_client_set_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_client_task_send_alloc_init,
                doca_comch_client_task_send_set_conf,
                doca_comch_connection_get_counter: get(
                        c"doca_comch_connection_get_counter",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_get_user_data: get(
                        c"doca_comch_connection_get_user_data",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_set_user_data: get(
                        c"doca_comch_connection_set_user_data",
                    )
                    .map(|f| function(f)),
                doca_comch_connection_update_info: get(
                        c"doca_comch_connection_update_info",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_as_ctx: get(c"doca_comch_consumer_as_ctx")
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_buf_list_len: get(
                        c"doca_comch_consumer_cap_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_buf_size: get(
                        c"doca_comch_consumer_cap_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_consumers: get(
                        c"doca_comch_consumer_cap_get_max_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_imm_data_len: get(
                        c"doca_comch_consumer_cap_get_max_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_get_max_num_tasks: get(
                        c"doca_comch_consumer_cap_get_max_num_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_cap_is_supported: get(
                        c"doca_comch_consumer_cap_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_create: get(
                        c"doca_comch_consumer_completion_create",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_destroy: get(
                        c"doca_comch_consumer_completion_destroy",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_dpa_handle: get(
                        c"doca_comch_consumer_completion_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_imm_data_len: get(
                        c"doca_comch_consumer_completion_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_max_num_consumers: get(
                        c"doca_comch_consumer_completion_get_max_num_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_get_max_num_recv: get(
                        c"doca_comch_consumer_completion_get_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_dpa_thread: get(
                        c"doca_comch_consumer_completion_set_dpa_thread",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_imm_data_len: get(
                        c"doca_comch_consumer_completion_set_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_max_num_consumers: get(
                        c"doca_comch_consumer_completion_set_max_num_consumers",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_set_max_num_recv: get(
                        c"doca_comch_consumer_completion_set_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_start: get(
                        c"doca_comch_consumer_completion_start",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_completion_stop: get(
                        c"doca_comch_consumer_completion_stop",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_create: get(c"doca_comch_consumer_create")
                    .map(|f| function(f)),
                doca_comch_consumer_destroy: get(c"doca_comch_consumer_destroy")
                    .map(|f| function(f)),
                doca_comch_consumer_get_dpa_handle: get(
                        c"doca_comch_consumer_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_get_id: get(c"doca_comch_consumer_get_id")
                    .map(|f| function(f)),
                doca_comch_consumer_get_imm_data_len: get(
                        c"doca_comch_consumer_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_completion: get(
                        c"doca_comch_consumer_set_completion",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_dev_max_num_recv: get(
                        c"doca_comch_consumer_set_dev_max_num_recv",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_set_imm_data_len: get(
                        c"doca_comch_consumer_set_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_alloc_init: get(
                        c"doca_comch_consumer_task_post_recv_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_as_task: get(
                        c"doca_comch_consumer_task_post_recv_as_task",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_buf: get(
                        c"doca_comch_consumer_task_post_recv_get_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_imm_data: get(
                        c"doca_comch_consumer_task_post_recv_get_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_imm_data_len: get(
                        c"doca_comch_consumer_task_post_recv_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_get_producer_id: get(
                        c"doca_comch_consumer_task_post_recv_get_producer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_set_buf: get(
                        c"doca_comch_consumer_task_post_recv_set_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_consumer_task_post_recv_set_conf: get(
                        c"doca_comch_consumer_task_post_recv_set_conf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_as_ctx: get(c"doca_comch_producer_as_ctx")
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_buf_list_len: get(
                        c"doca_comch_producer_cap_get_max_buf_list_len",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_buf_size: get(
                        c"doca_comch_producer_cap_get_max_buf_size",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_num_tasks: get(
                        c"doca_comch_producer_cap_get_max_num_tasks",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_get_max_producers: get(
                        c"doca_comch_producer_cap_get_max_producers",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_cap_is_supported: get(
                        c"doca_comch_producer_cap_is_supported",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_create: get(c"doca_comch_producer_create")
                    .map(|f| function(f)),
                doca_comch_producer_destroy: get(c"doca_comch_producer_destroy")
                    .map(|f| function(f)),
                doca_comch_producer_dpa_completion_attach: get(
                        c"doca_comch_producer_dpa_completion_attach",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_get_dpa_handle: get(
                        c"doca_comch_producer_get_dpa_handle",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_get_id: get(c"doca_comch_producer_get_id")
                    .map(|f| function(f)),
                doca_comch_producer_set_dev_max_num_send: get(
                        c"doca_comch_producer_set_dev_max_num_send",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_alloc_init: get(
                        c"doca_comch_producer_task_send_alloc_init",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_as_task: get(
                        c"doca_comch_producer_task_send_as_task",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_buf: get(
                        c"doca_comch_producer_task_send_get_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_consumer_id: get(
                        c"doca_comch_producer_task_send_get_consumer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_imm_data: get(
                        c"doca_comch_producer_task_send_get_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_get_imm_data_len: get(
                        c"doca_comch_producer_task_send_get_imm_data_len",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_buf: get(
                        c"doca_comch_producer_task_send_set_buf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_conf: get(
                        c"doca_comch_producer_task_send_set_conf",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_consumer_id: get(
                        c"doca_comch_producer_task_send_set_consumer_id",
                    )
                    .map(|f| function(f)),
                doca_comch_producer_task_send_set_imm_data: get(
                        c"doca_comch_producer_task_send_set_imm_data",
                    )
                    .map(|f| function(f)),
                doca_comch_server_as_ctx,
                doca_comch_server_create,
                doca_comch_server_destroy,
                doca_comch_server_disconnect: get(c"doca_comch_server_disconnect")
                    .map(|f| function(f)),
                doca_comch_server_event_connection_status_changed_register,
                doca_comch_server_event_consumer_register: get(
                        c"doca_comch_server_event_consumer_register",
                    )
                    .map(|f| function(f)),
                doca_comch_server_event_msg_recv_register,
                doca_comch_server_get_device: get(c"doca_comch_server_get_device")
                    .map(|f| function(f)),
                doca_comch_server_get_device_rep: get(
                        c"doca_comch_server_get_device_rep",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_max_msg_size: get(
                        c"doca_comch_server_get_max_msg_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_recv_queue_size: get(
                        c"doca_comch_server_get_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_get_server_ctx: get(
                        c"doca_comch_server_get_server_ctx",
                    )
                    .map(|f| function(f)),
                doca_comch_server_set_max_msg_size,
                doca_comch_server_set_recv_queue_size: get(
                        c"doca_comch_server_set_recv_queue_size",
                    )
                    .map(|f| function(f)),
                doca_comch_server_task_send_alloc_init,
                doca_comch_server_task_send_set_conf,
                doca_comch_task_send_as_task,
            }
        }
    }
}
