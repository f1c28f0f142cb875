//! Calls that the library has so that programs and other libraries of rdma-core start, and that it refuses.
//! The `install` script reads their names.
#![expect(unsafe_code, reason = "defines calls of C")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;

use crate::device::set_errno;

/// Defines calls that do nothing but return a value. On the supported processors, a function can be called
/// with arguments that it does not declare.
macro_rules! calls {
    ($result:ty, $value:expr; $($call:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $call() -> $result {
            set_errno(libc::EOPNOTSUPP);
            $value
        }
    )*};
}

// Calls of the public interface that return an error number, or -1.
calls! { c_int, libc::EOPNOTSUPP;
    ibv_attach_mcast
    ibv_detach_mcast
    ibv_query_ece
    ibv_set_ece
}
calls! { c_int, -1;
    ibv_init_ah_from_wc
    ibv_rereg_mr
    ibv_resolve_eth_l2_from_gid
}
// "The device does not promise that it writes data in order."
calls! { c_int, 0;
    ibv_query_qp_data_in_order
}
// Calls that return an object.
calls! { *mut c_void, ptr::null_mut();
    ibv_create_ah_from_wc
    ibv_import_device
    ibv_import_dm
    ibv_import_mr
    ibv_import_pd
}
// Calls that would be made with an object that the stand-in never returns, or by librdmacm with what it has
// read from a device of the kernel.
calls! { (), ();
    ibv_copy_ah_attr_from_kern
    ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_unimport_dm
    ibv_unimport_mr
    ibv_unimport_pd
    ibv_dofork_range
    ibv_dontfork_range
}

// private: calls that rdma-core's providers libmlx5 and libefa import, which programs are linked with. The
// providers register their drivers when they are loaded. They make the other calls only for devices of their
// own, which the stand-in does not have.
calls! { (), ();
    __verbs_log
    verbs_init_cq
    verbs_register_driver_34
    verbs_set_ops
    verbs_uninit_context
}
calls! { *mut c_void, ptr::null_mut();
    _verbs_init_and_alloc_context
    verbs_open_device
}
calls! { c_int, libc::EOPNOTSUPP;
    execute_ioctl
    ibv_cmd_advise_mr
    ibv_cmd_alloc_dm
    ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd
    ibv_cmd_attach_mcast
    ibv_cmd_close_xrcd
    ibv_cmd_create_ah
    ibv_cmd_create_counters
    ibv_cmd_create_cq_ex
    ibv_cmd_create_flow
    ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp_ex
    ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq
    ibv_cmd_create_srq_ex
    ibv_cmd_create_wq
    ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah
    ibv_cmd_destroy_counters
    ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action
    ibv_cmd_destroy_qp
    ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq
    ibv_cmd_detach_mcast
    ibv_cmd_free_dm
    ibv_cmd_get_context
    ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp
    ibv_cmd_modify_qp
    ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq
    ibv_cmd_modify_wq
    ibv_cmd_open_qp
    ibv_cmd_open_xrcd
    ibv_cmd_query_context
    ibv_cmd_query_device_any
    ibv_cmd_query_mr
    ibv_cmd_query_port
    ibv_cmd_query_qp
    ibv_cmd_query_srq
    ibv_cmd_read_counters
    ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr
    ibv_cmd_rereg_mr
    ibv_cmd_resize_cq
}

/// A setting of the providers.
#[unsafe(no_mangle)]
static verbs_allow_disassociate_destroy: AtomicBool = AtomicBool::new(false);
