//! The functions of `doca_dma.h`.

use super::{Conf, Dma, Memcpy};
use crate::buf::Buf;
use crate::dev::{Dev, Info};
use crate::door::{Code, Handle, INVALID, Out, answer, c, require};
use crate::task::{Holder, Task};

/// Makes a context on a device.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_create(dev: Handle<Dev>, dma: Out<Handle<Dma>>) -> Code {
    answer(|| {
        dma.check()?;
        dma.put(Handle::give_rc(Dma::create(dev.arc()?)?))
    })
}

/// Destroys an idle context; otherwise `IN_USE`.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_destroy(dma: Handle<Dma>) -> Code {
    answer(|| {
        dma.rc()?.ctx.disconnect()?;
        dma.take_rc().map(drop)
    })
}

/// Whether a device copies: success, or `NOT_SUPPORTED`.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_cap_task_memcpy_is_supported(devinfo: Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().dma, c::DOCA_ERROR_NOT_SUPPORTED))
}

/// What `doca_ctx.h` and `doca_pe.h` know the context by, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_as_ctx(dma: Handle<Dma>) -> *mut c::doca_ctx {
    dma.get().map_or(std::ptr::null_mut(), |dma| Handle::of(&dma.ctx).cast())
}

/// How many tasks a context can have.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_cap_get_max_num_tasks(dma: Handle<Dma>, max_num_tasks: Out<u32>) -> Code {
    answer(|| max_num_tasks.put(dma.get()?.dev.card().limits.max_tasks))
}

/// How many buffers either side of a copy can be a list of; 1 for no lists.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_cap_task_memcpy_get_max_buf_list_len(
    devinfo: Handle<Info>,
    max_buf_list_len: Out<u32>,
) -> Code {
    answer(|| {
        max_buf_list_len.check()?;
        let info = devinfo.get()?;
        require(info.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        max_buf_list_len.put(info.card.limits.max_list_len)
    })
}

/// How many bytes one task copies at most.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_cap_task_memcpy_get_max_buf_size(devinfo: Handle<Info>, buf_size: Out<u64>) -> Code {
    answer(|| {
        buf_size.check()?;
        let info = devinfo.get()?;
        require(info.function().dma, c::DOCA_ERROR_NOT_SUPPORTED)?;
        buf_size.put(info.card.limits.max_buf_size)
    })
}

/// Sets how many tasks there are, and what is called when one ends.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_set_conf(
    dma: Handle<Dma>,
    task_completion_cb: c::doca_dma_task_memcpy_completion_cb_t,
    task_error_cb: c::doca_dma_task_memcpy_completion_cb_t,
    num_memcpy_tasks: u32,
) -> Code {
    answer(|| {
        let dma = dma.get()?;
        dma.ctx.require_idle()?;
        let max = dma.dev.card().limits.max_tasks;
        require((1..=max).contains(&num_memcpy_tasks), INVALID)?;
        let on_done = task_completion_cb.ok_or(INVALID)?;
        let on_error = task_error_cb.ok_or(INVALID)?;
        dma.conf.set(Some(Conf { on_done, on_error, tasks: num_memcpy_tasks }));
        Ok(())
    })
}

/// Takes a task. Its buffers can be NULL until it is submitted.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_alloc_init(
    dma: Handle<Dma>,
    src: Handle<Buf>,
    dst: Handle<Buf>,
    user_data: c::doca_data,
    task: Out<Handle<Task<Memcpy>>>,
) -> Code {
    answer(|| {
        task.check()?;
        task.put(dma.get()?.alloc(src, dst, user_data)?)
    })
}

/// The task, as `doca_pe.h` knows it.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_as_task(task: Handle<Task<Memcpy>>) -> *mut c::doca_task {
    task.cast()
}

/// Sets what is read. Not while the device has the task.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_set_src(task: Handle<Task<Memcpy>>, src: Handle<Buf>) {
    if let Ok(task) = task.get()
        && task.head.holder.get() == Holder::Program
    {
        task.body.src.set(src);
    }
}

/// What is read.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_get_src(task: Handle<Task<Memcpy>>) -> Handle<Buf> {
    task.get().map_or(Handle::null(), |task| task.body.src.get())
}

/// Sets what is written. Not while the device has the task.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_set_dst(task: Handle<Task<Memcpy>>, dst: Handle<Buf>) {
    if let Ok(task) = task.get()
        && task.head.holder.get() == Holder::Program
    {
        task.body.dst.set(dst);
    }
}

/// What is written.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_task_memcpy_get_dst(task: Handle<Task<Memcpy>>) -> Handle<Buf> {
    task.get().map_or(Handle::null(), |task| task.body.dst.get())
}

/// There is no GPU here.
#[unsafe(no_mangle)]
extern "C" fn doca_dma_get_gpu_handle(dma: Handle<Dma>, gpu_dma: Out<*mut c::doca_gpu_dma>) -> Code {
    answer(|| {
        dma.get()?;
        gpu_dma.check()?;
        Err(c::DOCA_ERROR_NOT_SUPPORTED)
    })
}
