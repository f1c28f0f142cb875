//! Tear-down, which must succeed after any sequence of calls.

use std::ptr;

use super::{MemoryProgram, c, call};

const OK: c::doca_error_t = c::DOCA_SUCCESS;

impl MemoryProgram {
    /// Stops, frees and destroys every object.
    pub(super) fn tear_down(&self) {
        self.over.set(true);
        for _ in 0..100 {
            for dma in self.dmas.borrow().clone() {
                call!(doca_ctx_stop(dma.ctx));
            }
            for pe in self.pes.borrow().clone() {
                for _ in 0..100 {
                    call!(doca_pe_progress(pe));
                }
            }
            let mut held = self.tasks.borrow().clone();
            held.retain(|task| task.flight.is_none());
            held.iter().for_each(|task| self.free(task.task));
            if self.all_idle() {
                break;
            }
        }
        assert!(self.all_idle(), "a context does not stop");
        assert!(self.tasks.borrow().is_empty(), "idle contexts have tasks in flight");
        for dma in self.dmas.take() {
            assert_eq!(call!(doca_dma_destroy(dma.dma)), OK);
        }
        for pe in self.pes.take() {
            assert_eq!(call!(doca_pe_destroy(pe)), OK);
        }
        self.release_bufs();
        for inventory in self.inventories.take() {
            assert_eq!(call!(doca_buf_inventory_destroy(inventory)), OK);
        }
        for mmap in self.mmaps.take() {
            assert_eq!(call!(doca_mmap_destroy(mmap)), OK);
        }
        for dev in self.devs.take() {
            assert_eq!(call!(doca_dev_close(dev)), OK);
        }
    }

    fn all_idle(&self) -> bool {
        self.dmas.borrow().iter().all(|dma| {
            let mut state = u32::MAX;
            assert_eq!(call!(doca_ctx_get_state(dma.ctx, ptr::from_mut(&mut state))), OK);
            state == c::DOCA_CTX_STATE_IDLE
        })
    }

    fn release_bufs(&self) {
        loop {
            let bufs = self.bufs.borrow().clone();
            let head = bufs.iter().find(|buf| {
                let mut first = 0;
                assert_eq!(call!(doca_buf_is_first_in_list(buf.buf, &mut first)), OK);
                first == 1
            });
            match head {
                Some(head) => {
                    let mut refs = 0;
                    assert_eq!(call!(doca_buf_get_refcount(head.buf, &mut refs)), OK);
                    assert!(refs > 0);
                    self.release(head.buf);
                }
                None => break assert!(bufs.is_empty(), "a list without a head"),
            }
        }
    }
}
