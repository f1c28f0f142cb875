//! The functions of `doca_dma.h`.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::{Dma, Memcpy};
use crate::buf::Buf;
use crate::c_abi::{Handle, Out, Outcome, c, c_calls, getters, require};
use crate::card::Limits;
use crate::ctx::{Context, as_ctx, destroy};
use crate::dev::{Dev, Info};
use crate::task::{Task, TaskCallback, fields};

/// Limits of a function that copies; otherwise `NOT_SUPPORTED`.
fn limits(info: &Info) -> Outcome<&Limits> {
    require(info.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
    Ok(&info.card.limits)
}

getters! {
    doca_dma_cap_get_max_num_tasks(dma: Dma) -> u32 { dma.dev.card().limits.max_tasks }
    /// The longest list of buffers on either side of a copy; 1 for no lists.
    doca_dma_cap_task_memcpy_get_max_buf_list_len
        | doca_dma_get_max_list_buf_num_elem(info: Info) -> u32 { limits(info)?.max_list_len }
    /// The longest copy of one task in bytes.
    doca_dma_cap_task_memcpy_get_max_buf_size
        | doca_dma_get_max_buf_size(info: Info) -> u64 { limits(info)?.max_buf_size }
}

#[cfg(not(workq))]
c_calls! {
    fn doca_dma_create(dev: Handle<Dev>, dma: Out<Handle<Dma>>) {
        dma.make(|| Ok(Handle::give_rc(Dma::create(dev.arc()?)?)))
    }
    /// `IN_USE` unless idle.
    fn doca_dma_destroy(dma: Handle<Dma>) { destroy(dma) }
    fn doca_dma_as_ctx(dma: Handle<Dma>) -> *mut c::doca_ctx { as_ctx(&dma) }
}

c_calls! {
    /// Success, or `NOT_SUPPORTED`.
    fn doca_dma_cap_task_memcpy_is_supported(devinfo: Handle<Info>) { limits(devinfo.get()?).map(drop) }
    /// Sets the number of tasks and their callbacks.
    fn doca_dma_task_memcpy_set_conf(
        dma: Handle<Dma>,
        completed: Option<TaskCallback>,
        failed: Option<TaskCallback>,
        tasks: u32,
    ) {
        let dma = dma.get()?;
        dma.ctx().require_idle()?;
        dma.tasks.configure(completed, failed, tasks, 1..=dma.dev.card().limits.max_tasks)
    }
    /// Takes a task. Its buffers can be NULL until it is submitted.
    fn doca_dma_task_memcpy_alloc_init(
        dma: Handle<Dma>,
        src: Handle<Buf>,
        dst: Handle<Buf>,
        user_data: c::doca_data,
        task: Out<Handle<Task<Memcpy>>>,
    ) {
        task.make(|| dma.get()?.alloc(src, dst, user_data))
    }
    fn doca_dma_task_memcpy_as_task(task: Handle<Task<Memcpy>>) -> *mut c::doca_task { task.cast() }
    /// `BAD_STATE`: there is no GPU, so no context's data path is on one.
    fn doca_dma_get_gpu_handle(dma: Handle<Dma>, gpu_dma: Out<*mut c::doca_gpu_dma>) {
        dma.get().and(gpu_dma.check()).and(Err(c::DOCA_ERROR_BAD_STATE))
    }
}

fields! {
    Memcpy:
    doca_dma_task_memcpy_set_src, doca_dma_task_memcpy_get_src(src: Handle<Buf>);
    doca_dma_task_memcpy_set_dst, doca_dma_task_memcpy_get_dst(dst: Handle<Buf>);
}
