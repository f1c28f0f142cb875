//! Tear-down, which must succeed after any sequence of calls.

use std::ptr;

use super::{OK, WorkQueueProgram, c, call};

impl WorkQueueProgram {
    /// Retrieves, stops and destroys every object.
    pub(super) fn tear_down(&self) {
        for _ in 0..1000 {
            for queue in self.queues.borrow().clone() {
                while self.retrieve(queue) {}
            }
            if self.jobs.borrow().is_empty() {
                break;
            }
        }
        assert!(self.jobs.borrow().is_empty(), "jobs did not complete");
        for dma in self.contexts.take() {
            let ctx = call!(doca_dma_as_ctx(dma));
            for queue in self.queues.borrow().iter() {
                call!(doca_ctx_workq_rm(ctx, *queue));
            }
            call!(doca_ctx_stop(ctx));
            assert_eq!(call!(doca_dma_destroy(dma)), OK);
        }
        for queue in self.queues.take() {
            assert_eq!(call!(doca_workq_destroy(queue)), OK);
        }
        for buf in self.sources.take().iter().chain(&self.targets.take()) {
            assert_eq!(call!(doca_buf_refcount_rm(buf.buf, ptr::null_mut())), OK);
        }
        assert_eq!(call!(doca_buf_inventory_destroy(self.inventory)), OK);
        for map in self.maps.take() {
            assert_eq!(call!(doca_mmap_destroy(map)), OK);
        }
        for ep in self.endpoints.take() {
            assert_eq!(call!(doca_comm_channel_ep_destroy(ep)), OK);
        }
        assert_eq!(call!(doca_dev_rep_close(self.rep)), OK);
        for dev in self.devs {
            assert_eq!(call!(doca_dev_close(dev)), OK);
        }
    }
}
