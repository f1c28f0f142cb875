//! Declarations of the verbs that `dma-rdma` uses and its stand-in exports, with C's names. Layouts and
//! values are those of rdma-core's public header `infiniband/verbs.h` and its manual pages.
//!
//! Structures that only the library makes are declared up to the last field that is read.
#![expect(non_camel_case_types, reason = "declares C's calls under their C names")]
#![expect(missing_docs, reason = "the manual pages of rdma-core describe the calls, structures and fields")]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `IBV_SEND_FENCE`: the request starts when all earlier reads have completed.
pub const SEND_FENCE: c_uint = 1 << 0;
/// `IBV_SEND_SIGNALED`: the request makes a completion.
pub const SEND_SIGNALED: c_uint = 1 << 1;
/// `IBV_SEND_SOLICITED`: the request makes an event at the peer that waits for solicited completions.
pub const SEND_SOLICITED: c_uint = 1 << 2;
/// `IBV_SEND_INLINE`: the bytes are taken while the request is posted, without a local key.
pub const SEND_INLINE: c_uint = 1 << 3;
/// `IBV_WR_RDMA_WRITE`.
pub const WR_RDMA_WRITE: c_int = 0;
/// `IBV_WR_RDMA_WRITE_WITH_IMM`.
pub const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
/// `IBV_WR_SEND`.
pub const WR_SEND: c_int = 2;
/// `IBV_WR_SEND_WITH_IMM`.
pub const WR_SEND_WITH_IMM: c_int = 3;
/// `IBV_WR_RDMA_READ`.
pub const WR_RDMA_READ: c_int = 4;
/// `IBV_WR_ATOMIC_CMP_AND_SWP`.
pub const WR_ATOMIC_CMP_AND_SWP: c_int = 5;
/// `IBV_WR_ATOMIC_FETCH_AND_ADD`.
pub const WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
/// `IBV_QPT_RC`.
pub const QPT_RC: c_int = 2;
/// `IBV_QPT_UC`.
pub const QPT_UC: c_int = 3;
/// `IBV_QPT_UD`.
pub const QPT_UD: c_int = 4;
/// `IBV_PORT_ACTIVE`.
pub const PORT_ACTIVE: c_int = 4;
/// `IBV_LINK_LAYER_ETHERNET`.
pub const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_EVENT_DEVICE_FATAL`.
pub const EVENT_DEVICE_FATAL: c_int = 8;
/// `IBV_FORK_DISABLED`.
pub const FORK_DISABLED: c_int = 0;
/// `IBV_FORK_UNNEEDED`.
pub const FORK_UNNEEDED: c_int = 2;

/// `enum ibv_access_flags`.
pub mod access {
    pub const LOCAL_WRITE: i32 = 1;
    pub const REMOTE_WRITE: i32 = 1 << 1;
    pub const REMOTE_READ: i32 = 1 << 2;
    pub const REMOTE_ATOMIC: i32 = 1 << 3;
}

/// `enum ibv_qp_state`.
pub mod qp_state {
    pub const RESET: i32 = 0;
    pub const INIT: i32 = 1;
    pub const RTR: i32 = 2;
    pub const RTS: i32 = 3;
    pub const ERR: i32 = 6;
}

/// `enum ibv_qp_attr_mask`.
pub mod qp_mask {
    pub const STATE: i32 = 1 << 0;
    pub const CUR_STATE: i32 = 1 << 1;
    pub const ACCESS_FLAGS: i32 = 1 << 3;
    pub const PKEY_INDEX: i32 = 1 << 4;
    pub const PORT: i32 = 1 << 5;
    pub const QKEY: i32 = 1 << 6;
    pub const AV: i32 = 1 << 7;
    pub const PATH_MTU: i32 = 1 << 8;
    pub const TIMEOUT: i32 = 1 << 9;
    pub const RETRY_CNT: i32 = 1 << 10;
    pub const RNR_RETRY: i32 = 1 << 11;
    pub const RQ_PSN: i32 = 1 << 12;
    pub const MAX_QP_RD_ATOMIC: i32 = 1 << 13;
    pub const MIN_RNR_TIMER: i32 = 1 << 15;
    pub const SQ_PSN: i32 = 1 << 16;
    pub const MAX_DEST_RD_ATOMIC: i32 = 1 << 17;
    pub const DEST_QPN: i32 = 1 << 20;
}

/// A structure of the library that is only passed by address.
#[repr(C)]
#[derive(Debug)]
pub struct ibv_opaque {
    _private: [u8; 0],
}
pub type ibv_device = ibv_opaque;
pub type ibv_pd = ibv_opaque;

type unused = *const c_void;
pub type ibv_poll_cq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
pub type ibv_req_notify_cq = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;
pub type ibv_post_send = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub type ibv_post_recv = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub type ibv_post_srq_recv =
    unsafe extern "C" fn(*mut c_void, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// The provider's calls of the data path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_context_ops {
    pub before: [unused; 11],
    pub poll_cq: Option<ibv_poll_cq>,
    pub req_notify_cq: Option<ibv_req_notify_cq>,
    pub unused_13: [unused; 7],
    pub post_srq_recv: Option<ibv_post_srq_recv>,
    pub unused_21: [unused; 4],
    pub post_send: Option<ibv_post_send>,
    pub post_recv: Option<ibv_post_recv>,
    pub behind: [unused; 5],
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub rest: [c_int; 8],
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_port_attr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

/// A GID: 16 bytes in network order, aligned as C's union with two 64-bit numbers.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid {
    pub raw: [u8; 16],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_global_route {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    pub grh: ibv_global_route,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_int,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
}

#[repr(C)]
#[derive(Debug)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut c_void,
    pub handle: u32,
    pub qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// A request of a send queue, with the fields of RDMA reads and writes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    pub imm_data: u32,
    pub remote_addr: u64,
    pub rkey: u32,
    /// Room for the longer variants of C's unions.
    pub others: [u64; 9],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut Self,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ibv_async_event {
    pub element: *mut c_void,
    pub event_type: c_int,
}

/// Types of the calls, by their names.
pub mod types {
    use super::*;

    macro_rules! types {
        ($($call:ident($($arg:ty),*) $(-> $result:ty)?;)*) => {
            $(pub type $call = unsafe extern "C" fn($($arg),*) $(-> $result)?;)*
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
        rdma_emu_model() -> *const c_char;
    }
}

dma_vendor::calls! {
    /// The calls of `libibverbs.so.1`. The calls of the data path are in the context's `ops`.
    pub struct Verbs of types;

    required:
    ibv_get_device_list, ibv_free_device_list, ibv_get_device_name, ibv_open_device, ibv_close_device,
    ibv_query_device, ibv_query_port, ibv_query_gid, ibv_get_async_event, ibv_ack_async_event, ibv_alloc_pd,
    ibv_dealloc_pd, ibv_reg_mr, ibv_dereg_mr, ibv_create_comp_channel, ibv_destroy_comp_channel,
    ibv_create_cq, ibv_destroy_cq, ibv_get_cq_event, ibv_ack_cq_events, ibv_create_qp, ibv_modify_qp,
    ibv_destroy_qp;

    optional:
    ibv_is_fork_initialized, ibv_reg_dmabuf_mr, rdma_emu_model;
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
            ibv_context_ops 256 (poll_cq 88, req_notify_cq 96, post_srq_recv 160, post_send 200, post_recv 208);
            ibv_device_attr 232 (max_qp_wr 112, max_cqe 132, max_qp_rd_atom 144, max_qp_init_rd_atom 156, atomic_cap 164, max_srq 212, phys_port_cnt 227);
            ibv_port_attr 52 (max_msg_sz 20, lid 34, link_layer 46);
            ibv_gid 16;
            ibv_global_route 24;
            ibv_ah_attr 32;
            ibv_qp_cap 20;
            ibv_qp_attr 144 (ah_attr 56, max_rd_atomic 126, timeout 130);
            ibv_qp_init_attr 64 (qp_type 52);
            ibv_mr 48 (lkey 36, rkey 40);
            ibv_sge 16;
            ibv_recv_wr 32 (num_sge 24);
            ibv_send_wr 128 (send_flags 32, remote_addr 40, rkey 48);
            ibv_wc 48 (status 8, qp_num 28);
            ibv_async_event 16 (event_type 8);
        }
        assert_eq!((offset_of!(ibv_context, ops), offset_of!(ibv_context, async_fd)), (8, 268));
        assert_eq!((offset_of!(ibv_qp, qp_num), offset_of!(ibv_cq, cqe)), (52, 28));
        assert_eq!(offset_of!(ibv_comp_channel, fd), 8);
    }
}
