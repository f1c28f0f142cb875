//! Layouts that only a library and its inline functions in C need: devices, extended contexts and queue
//! pairs. They are those of rdma-core's public header `infiniband/verbs.h`.
#![expect(non_camel_case_types, reason = "declares C's structures under their C names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use verbs_sys::*;

/// `IBV_NODE_CA`.
pub(crate) const NODE_CA: c_int = 1;

#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) ops: [usize; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
    /// The following fields are private to rdma-core. Its providers `mlx5` and `efa` read the first one, the
    /// table of the device's provider, to recognize their own devices. It is NULL here.
    pub(crate) private: [usize; 8],
}

/// The lock and the condition that C's structures of queue pairs and completion queues contain, and that only
/// the library uses.
#[repr(C)]
pub(crate) struct Waiters {
    mutex: std::mem::MaybeUninit<libc::pthread_mutex_t>,
    cond: std::mem::MaybeUninit<libc::pthread_cond_t>,
}

impl Waiters {
    pub(crate) const UNUSED: Self =
        Self { mutex: std::mem::MaybeUninit::zeroed(), cond: std::mem::MaybeUninit::zeroed() };
}

pub(crate) type query_port = unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int;
pub(crate) type create_qp_ex =
    unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;

/// The context with the calls that the header's inline functions look for in front of it. An inline function
/// returns `EOPNOTSUPP` if its call is NULL.
#[repr(C)]
pub(crate) struct verbs_context {
    pub(crate) query_port: query_port,
    pub(crate) unused_1: [usize; 32],
    pub(crate) create_qp_ex: create_qp_ex,
    pub(crate) unused_34: [usize; 5],
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: std::mem::MaybeUninit<libc::pthread_mutex_t>,
    pub(crate) abi_compat: usize,
}

/// The value of `abi_compat` in a context with further calls.
pub(crate) const EXTENDED: usize = usize::MAX;

#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_ah {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut verbs_sys::ibv_pd,
    pub(crate) handle: u32,
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut verbs_sys::ibv_pd,
    pub(crate) handle: u32,
    pub(crate) waiters: Waiters,
    pub(crate) events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}

/// The extended attributes of a queue pair, up to the last field that is read.
#[repr(C)]
pub(crate) struct ibv_qp_init_attr_ex {
    /// The attributes end with `sq_sig_all` at 56, and `comp_mask` follows in what is padding there.
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut verbs_sys::ibv_pd,
    pub(crate) xrcd: *mut c_void,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut c_void,
    pub(crate) rx_hash_conf: [u64; 3],
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

/// Bits of `comp_mask` in [`ibv_qp_init_attr_ex`].
pub(crate) mod init_mask {
    pub(crate) const PD: u32 = 1 << 0;
    pub(crate) const SEND_OPS_FLAGS: u32 = 1 << 6;
}

#[repr(C)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

type This = *mut ibv_qp_ex;

/// A queue pair, with the calls that build requests in place.
#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub(crate) base: ibv_qp,
    pub(crate) state: c_int,
    pub(crate) qp_type: c_int,
    pub(crate) waiters: Waiters,
    pub(crate) events_completed: u32,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: c_uint,
    pub(crate) wr_atomic_cmp_swp: unsafe extern "C" fn(This, u32, u64, u64, u64),
    pub(crate) wr_atomic_fetch_add: unsafe extern "C" fn(This, u32, u64, u64),
    pub(crate) wr_bind_mw: usize,
    pub(crate) wr_local_inv: usize,
    pub(crate) wr_rdma_read: unsafe extern "C" fn(This, u32, u64),
    pub(crate) wr_rdma_write: unsafe extern "C" fn(This, u32, u64),
    pub(crate) wr_rdma_write_imm: unsafe extern "C" fn(This, u32, u64, u32),
    pub(crate) wr_send: unsafe extern "C" fn(This),
    pub(crate) wr_send_imm: unsafe extern "C" fn(This, u32),
    pub(crate) wr_send_inv: usize,
    pub(crate) wr_send_tso: usize,
    pub(crate) wr_set_ud_addr: unsafe extern "C" fn(This, *mut ibv_ah, u32, u32),
    pub(crate) wr_set_xrc_srqn: usize,
    pub(crate) wr_set_inline_data: unsafe extern "C" fn(This, *mut c_void, usize),
    pub(crate) wr_set_inline_data_list: unsafe extern "C" fn(This, usize, *const ibv_data_buf),
    pub(crate) wr_set_sge: unsafe extern "C" fn(This, u32, u64, u32),
    pub(crate) wr_set_sge_list: unsafe extern "C" fn(This, usize, *const ibv_sge),
    pub(crate) wr_start: unsafe extern "C" fn(This),
    pub(crate) wr_complete: unsafe extern "C" fn(This) -> c_int,
    pub(crate) wr_abort: unsafe extern "C" fn(This),
    pub(crate) wr_atomic_write: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// The numbers are those that a C program prints with the header of rdma-core 44.
    #[test]
    fn layouts_are_those_of_c() {
        macro_rules! layouts {
            ($($type:ident ($($field:ident $offset:literal),*);)*) => {$(
                $(assert_eq!(offset_of!($type, $field), $offset, stringify!($type.$field));)*
            )*};
        }
        layouts! {
            ibv_device (node_type 16, name 24, ibdev_path 408, private 664);
            verbs_context (query_port 0, create_qp_ex 264, sz 312, context 320);
            ibv_qp_ex (state 56, waiters 64, events_completed 152, wr_id 168, wr_flags 176, wr_atomic_cmp_swp 184,
                wr_complete 328, wr_atomic_write 344);
            ibv_qp_init_attr_ex (comp_mask 60, pd 64, send_ops_flags 128);
        }
        let context = offset_of!(verbs_context, context);
        assert_eq!(offset_of!(verbs_context, num_comp_vectors) - context, 272);
        assert_eq!(offset_of!(verbs_context, abi_compat) - context, 320);
        let sizes = (size_of::<verbs_context>(), size_of::<ibv_qp_ex>(), size_of::<ibv_srq>());
        assert_eq!((sizes, size_of::<ibv_gid_entry>()), ((648, 352, 128), 32));
        assert_eq!(size_of::<ibv_srq_init_attr>(), 24);
    }
}
