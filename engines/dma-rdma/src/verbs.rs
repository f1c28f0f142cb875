//! Declarations of the verbs that the backend uses, with C's names: layouts and values of the public header
//! `infiniband/verbs.h` of rdma-core, and its manual pages.
//!
//! A structure that only the library makes ends with the last field that is read here.
#![expect(non_camel_case_types, reason = "declares C's calls by C's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `IBV_SEND_FENCE`: starts when all reads before it have completed.
pub(crate) const SEND_FENCE: c_uint = 1 << 0;
/// `IBV_SEND_SIGNALED`: makes a completion.
pub(crate) const SEND_SIGNALED: c_uint = 1 << 1;
/// `IBV_WR_RDMA_WRITE`.
pub(crate) const WR_RDMA_WRITE: c_int = 0;
/// `IBV_WR_RDMA_READ`.
pub(crate) const WR_RDMA_READ: c_int = 4;
/// `IBV_QPT_RC`.
pub(crate) const QPT_RC: c_int = 2;
/// `IBV_PORT_ACTIVE`.
pub(crate) const PORT_ACTIVE: c_int = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_EVENT_DEVICE_FATAL`.
pub(crate) const EVENT_DEVICE_FATAL: c_int = 8;
/// `IBV_FORK_DISABLED`.
pub(crate) const FORK_DISABLED: c_int = 0;

/// `enum ibv_access_flags`.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: i32 = 1;
    pub(crate) const REMOTE_WRITE: i32 = 1 << 1;
    pub(crate) const REMOTE_READ: i32 = 1 << 2;
}

/// `enum ibv_qp_state`.
pub(crate) mod qp_state {
    pub(crate) const RESET: i32 = 0;
    pub(crate) const INIT: i32 = 1;
    pub(crate) const RTR: i32 = 2;
    pub(crate) const RTS: i32 = 3;
    #[cfg(test)]
    pub(crate) const ERR: i32 = 6;
}

/// `enum ibv_qp_attr_mask`.
pub(crate) mod qp_mask {
    pub(crate) const STATE: i32 = 1 << 0;
    pub(crate) const ACCESS_FLAGS: i32 = 1 << 3;
    pub(crate) const PKEY_INDEX: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const AV: i32 = 1 << 7;
    pub(crate) const PATH_MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
    pub(crate) const RETRY_CNT: i32 = 1 << 10;
    pub(crate) const RNR_RETRY: i32 = 1 << 11;
    pub(crate) const RQ_PSN: i32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: i32 = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: i32 = 1 << 15;
    pub(crate) const SQ_PSN: i32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: i32 = 1 << 17;
    pub(crate) const DEST_QPN: i32 = 1 << 20;
}

/// A structure of the library that is passed by address only.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_opaque {
    _private: [u8; 0],
}
pub(crate) type ibv_device = ibv_opaque;
pub(crate) type ibv_pd = ibv_opaque;

type unused = *const c_void;
pub(crate) type ibv_poll_cq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub(crate) type ibv_req_notify_cq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub(crate) type ibv_post_send =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;

/// The provider's calls of the data path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_context_ops {
    pub(crate) before: [unused; 11],
    pub(crate) poll_cq: Option<ibv_poll_cq>,
    pub(crate) req_notify_cq: Option<ibv_req_notify_cq>,
    pub(crate) between: [unused; 12],
    pub(crate) post_send: Option<ibv_post_send>,
    pub(crate) behind: [unused; 6],
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) rest: [c_int; 15],
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// A GID: 16 bytes in network order, aligned as C's union with two 64-bit numbers.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_gid {
    pub(crate) raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_global_route {
    pub(crate) dgid: ibv_gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_ah_attr {
    pub(crate) grh: ibv_global_route,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_int,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// A work request, with the fields of RDMA reads and writes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut Self,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: c_uint,
    pub(crate) imm_data: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// The longer variants of C's unions.
    pub(crate) others: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ibv_async_event {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_int,
}

/// Types of the calls, by their names.
mod types {
    use super::*;

    macro_rules! types {
        ($($call:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
            $(pub(super) type $call = unsafe extern "C" fn($($arg),*) $(-> $result)?;)*
        };
    }
    types! {
        ibv_get_device_list(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list(*mut *mut ibv_device);
        ibv_get_device_name(*mut ibv_device) -> *const c_char;
        ibv_open_device(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device(*mut ibv_context) -> c_int;
        ibv_query_device(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
        ibv_get_async_event(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event(*mut ibv_async_event);
        ibv_alloc_pd(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd(*mut ibv_pd) -> c_int;
        ibv_reg_mr(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
        ibv_reg_dmabuf_mr(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
        ibv_dereg_mr(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq(*mut ibv_cq) -> c_int;
        ibv_get_cq_event(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events(*mut ibv_cq, c_uint);
        ibv_create_qp(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_destroy_qp(*mut ibv_qp) -> c_int;
        ibv_is_fork_initialized() -> c_int;
    }
}

dma_vendor::calls! {
    /// The calls of `libibverbs.so.1`. Those of the data path are in the context's `ops`.
    pub struct Verbs of types;

    required:
    ibv_get_device_list, ibv_free_device_list, ibv_get_device_name, ibv_open_device, ibv_close_device,
    ibv_query_device, ibv_query_port, ibv_query_gid, ibv_get_async_event, ibv_ack_async_event, ibv_alloc_pd,
    ibv_dealloc_pd, ibv_reg_mr, ibv_dereg_mr, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_create_cq, ibv_destroy_cq, ibv_get_cq_event, ibv_ack_cq_events, ibv_create_qp, ibv_modify_qp,
    ibv_destroy_qp;

    optional:
    ibv_is_fork_initialized, ibv_reg_dmabuf_mr;
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The numbers are those that a C program prints with the header of rdma-core 44.
    #[test]
    fn layouts_are_those_of_c() {
        macro_rules! layouts {
            ($($type:ident $size:literal $(($($field:ident $offset:literal),*))?;)*) => {$(
                assert_eq!(size_of::<$type>(), $size, stringify!($type));
                $($(assert_eq!(offset_of!($type, $field), $offset, stringify!($type.$field));)*)?
            )*};
        }
        layouts! {
            ibv_context_ops 256 (poll_cq 88, req_notify_cq 96, post_send 200);
            ibv_device_attr 232 (max_qp_wr 112, max_cqe 132, max_qp_rd_atom 144, max_qp_init_rd_atom 156, phys_port_cnt 227);
            ibv_port_attr 52 (max_msg_sz 20, lid 34, link_layer 46);
            ibv_gid 16;
            ibv_global_route 24;
            ibv_ah_attr 32;
            ibv_qp_cap 20;
            ibv_qp_attr 144 (ah_attr 56, max_rd_atomic 126, timeout 130);
            ibv_qp_init_attr 64 (qp_type 52);
            ibv_mr 48 (lkey 36, rkey 40);
            ibv_sge 16;
            ibv_send_wr 128 (send_flags 32, remote_addr 40, rkey 48);
            ibv_wc 48 (status 8, qp_num 28);
            ibv_async_event 16 (event_type 8);
        }
        assert_eq!((offset_of!(ibv_context, ops), offset_of!(ibv_context, async_fd)), (8, 268));
        assert_eq!((offset_of!(ibv_qp, qp_num), offset_of!(ibv_cq, cqe)), (52, 28));
        assert_eq!(offset_of!(ibv_comp_channel, fd), 8);
    }
}
