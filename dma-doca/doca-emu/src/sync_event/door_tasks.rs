//! The calls of `doca_sync_event.h` for tasks.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;

use super::event::Event;
use super::tasks::{Job, Kind, TaskCallback, TaskConf};
use crate::dev::Info;
use crate::door::{Code, Handle, INVALID, Out, answer, c, require};
use crate::task::Task;

/// The most tasks of one kind.
const MAX_TASKS: u32 = 1 << 16;

fn is_supported(devinfo: &Handle<Info>) -> Code {
    answer(|| require(devinfo.get()?.function().sync_event, c::DOCA_ERROR_NOT_SUPPORTED))
}

fn configure(
    event: &Handle<Event>,
    kind: Kind,
    completed: Option<TaskCallback>,
    failed: Option<TaskCallback>,
    tasks: u32,
) -> Code {
    answer(|| {
        let event = event.get()?;
        let (completed, failed) = (completed.ok_or(INVALID)?, failed.ok_or(INVALID)?);
        require(tasks <= MAX_TASKS, INVALID)?;
        // Not BAD_STATE, as for other contexts.
        event.ctx.require_idle().map_err(|_| c::DOCA_ERROR_NOT_PERMITTED)?;
        event.conf.of(kind).set(Some(TaskConf { completed, failed, tasks }));
        Ok(())
    })
}

fn alloc(
    event: &Handle<Event>,
    kind: Kind,
    user_data: c::doca_data,
    task: &Out<Handle<Task<Job>>>,
    set_up: impl FnOnce(&Job),
) -> Code {
    answer(|| {
        task.check()?;
        task.put(event.get()?.alloc(kind, user_data, set_up)?)
    })
}

fn as_task(task: &Handle<Task<Job>>) -> *mut c::doca_task {
    task.get().map_or(ptr::null_mut(), |task| Handle::of(&task.head).cast())
}

fn set(task: &Handle<Task<Job>>, set: impl FnOnce(&Job)) {
    if let Ok(task) = task.get() {
        set(&task.body);
    }
}

fn get(task: &Handle<Task<Job>>, get: impl FnOnce(&Job) -> u64) -> u64 {
    task.get().map_or(0, |task| get(&task.body))
}

fn out(task: &Handle<Task<Job>>) -> *mut u64 {
    task.get().map_or(ptr::null_mut(), |task| task.body.out())
}

/// Whether the device has tasks that read the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_task_get_is_supported(devinfo: Handle<Info>) -> Code {
    is_supported(&devinfo)
}

/// How many tasks there are that read the number, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_get_set_conf(
    event: Handle<Event>,
    completion_cb: Option<TaskCallback>,
    error_cb: Option<TaskCallback>,
    num_tasks: u32,
) -> Code {
    configure(&event, Kind::Get, completion_cb, error_cb, num_tasks)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_get_as_doca_task(task: Handle<Task<Job>>) -> *mut c::doca_task {
    as_task(&task)
}

/// Whether the device has tasks that set the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_task_notify_set_is_supported(devinfo: Handle<Info>) -> Code {
    is_supported(&devinfo)
}

/// How many tasks there are that set the number, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_set_set_conf(
    event: Handle<Event>,
    completion_cb: Option<TaskCallback>,
    error_cb: Option<TaskCallback>,
    num_tasks: u32,
) -> Code {
    configure(&event, Kind::NotifySet, completion_cb, error_cb, num_tasks)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_set_as_doca_task(task: Handle<Task<Job>>) -> *mut c::doca_task {
    as_task(&task)
}

/// Whether the device has tasks that add to the number.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_task_notify_add_is_supported(devinfo: Handle<Info>) -> Code {
    is_supported(&devinfo)
}

/// How many tasks there are that add to the number, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_set_conf(
    event: Handle<Event>,
    completion_cb: Option<TaskCallback>,
    error_cb: Option<TaskCallback>,
    num_tasks: u32,
) -> Code {
    configure(&event, Kind::NotifyAdd, completion_cb, error_cb, num_tasks)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_as_doca_task(task: Handle<Task<Job>>) -> *mut c::doca_task {
    as_task(&task)
}

/// Whether the device has tasks that wait until the masked number is a value.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_task_wait_eq_is_supported(devinfo: Handle<Info>) -> Code {
    is_supported(&devinfo)
}

/// How many tasks there are that wait until the masked number is a value, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_set_conf(
    event: Handle<Event>,
    completion_cb: Option<TaskCallback>,
    error_cb: Option<TaskCallback>,
    num_tasks: u32,
) -> Code {
    configure(&event, Kind::WaitEq, completion_cb, error_cb, num_tasks)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_as_doca_task(task: Handle<Task<Job>>) -> *mut c::doca_task {
    as_task(&task)
}

/// Whether the device has tasks that wait until the masked number is no longer a value.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_cap_task_wait_neq_is_supported(devinfo: Handle<Info>) -> Code {
    is_supported(&devinfo)
}

/// How many tasks there are that wait until the masked number is no longer a value, and who is told how they ended.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_set_conf(
    event: Handle<Event>,
    completion_cb: Option<TaskCallback>,
    error_cb: Option<TaskCallback>,
    num_tasks: u32,
) -> Code {
    configure(&event, Kind::WaitNeq, completion_cb, error_cb, num_tasks)
}

/// The task as a task of any kind.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_as_doca_task(task: Handle<Task<Job>>) -> *mut c::doca_task {
    as_task(&task)
}

/// A task that reads the number. `NO_MEMORY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_get_alloc_init(
    event: Handle<Event>,
    ret_val_ptr: *mut u64,
    user_data: c::doca_data,
    task: Out<Handle<Task<Job>>>,
) -> Code {
    if ret_val_ptr.is_null() {
        return INVALID;
    }
    alloc(&event, Kind::Get, user_data, &task, |job| job.set_out(ret_val_ptr))
}

/// A task that sets the number. `NO_MEMORY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_set_alloc_init(
    event: Handle<Event>,
    set_val: u64,
    user_data: c::doca_data,
    task: Out<Handle<Task<Job>>>,
) -> Code {
    alloc(&event, Kind::NotifySet, user_data, &task, |job| job.set_operand(set_val))
}

/// A task that adds to the number, and tells what it was if there is an address. `NO_MEMORY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_alloc_init(
    event: Handle<Event>,
    inc_val: u64,
    fetched_val_ptr: *mut u64,
    user_data: c::doca_data,
    task: Out<Handle<Task<Job>>>,
) -> Code {
    alloc(&event, Kind::NotifyAdd, user_data, &task, |job| {
        job.set_operand(inc_val);
        job.set_out(fetched_val_ptr);
    })
}

/// A task to wait until the masked number is a value. `NO_MEMORY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_alloc_init(
    event: Handle<Event>,
    wait_val: u64,
    mask: u64,
    user_data: c::doca_data,
    task: Out<Handle<Task<Job>>>,
) -> Code {
    alloc(&event, Kind::WaitEq, user_data, &task, |job| {
        job.set_operand(wait_val);
        job.set_mask(mask);
    })
}

/// The value.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_set_wait_val(task: Handle<Task<Job>>, wait_val: u64) {
    set(&task, |job| job.set_operand(wait_val));
}

/// The value; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_get_wait_val(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::operand)
}

/// What is looked at: 0, 1, 2, 4 or 8 bytes of ones in a row; anything else is refused when the task is submitted.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_set_mask(task: Handle<Task<Job>>, mask: u64) {
    set(&task, |job| job.set_mask(mask));
}

/// What is looked at; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_eq_get_mask(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::mask)
}

/// A task to wait until the masked number is no longer a value. `NO_MEMORY` if all are taken.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_alloc_init(
    event: Handle<Event>,
    wait_val: u64,
    mask: u64,
    user_data: c::doca_data,
    task: Out<Handle<Task<Job>>>,
) -> Code {
    alloc(&event, Kind::WaitNeq, user_data, &task, |job| {
        job.set_operand(wait_val);
        job.set_mask(mask);
    })
}

/// The value.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_set_wait_val(task: Handle<Task<Job>>, wait_val: u64) {
    set(&task, |job| job.set_operand(wait_val));
}

/// The value; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_get_wait_val(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::operand)
}

/// What is looked at: 0, 1, 2, 4 or 8 bytes of ones in a row; anything else is refused when the task is submitted.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_set_mask(task: Handle<Task<Job>>, mask: u64) {
    set(&task, |job| job.set_mask(mask));
}

/// What is looked at; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_wait_neq_get_mask(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::mask)
}

/// What the number is set to.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_set_set_set_val(task: Handle<Task<Job>>, set_val: u64) {
    set(&task, |job| job.set_operand(set_val));
}

/// What the number is set to; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_set_get_set_val(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::operand)
}

/// What is added.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_set_inc_val(task: Handle<Task<Job>>, inc_val: u64) {
    set(&task, |job| job.set_operand(inc_val));
}

/// What is added; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_get_inc_val(task: Handle<Task<Job>>) -> u64 {
    get(&task, Job::operand)
}

/// Where the number goes.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_get_set_ret_val_ptr(task: Handle<Task<Job>>, ret_val_ptr: *mut u64) {
    set(&task, |job| job.set_out(ret_val_ptr));
}

/// Where the number goes, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_get_get_ret_val_ptr(task: Handle<Task<Job>>) -> *mut u64 {
    out(&task)
}

/// Where the number goes.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_set_fetched_val_ptr(
    task: Handle<Task<Job>>,
    fetched_val_ptr: *mut u64,
) {
    set(&task, |job| job.set_out(fetched_val_ptr));
}

/// Where the number goes, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_sync_event_task_notify_add_get_fetched_val_ptr(task: Handle<Task<Job>>) -> *mut u64 {
    out(&task)
}
