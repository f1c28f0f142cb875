//! The kinds of tasks of an event.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use super::calls::supported;
use super::event::Event;
use super::job::{Job, Kind};
use crate::c_abi::{Handle, Out, Outcome, c, c_calls};
use crate::dev::Info;
use crate::task::{Task, TaskCallback, as_task, fields};

const MAX_TASKS: u32 = 1 << 16;

fn configure(
    event: &Handle<Event>,
    kind: Kind,
    completed: Option<TaskCallback>,
    failed: Option<TaskCallback>,
    tasks: u32,
) -> Outcome {
    let event = event.get()?;
    // Other kinds of contexts return BAD_STATE here.
    event.ctx.require_idle().map_err(|_| c::DOCA_ERROR_NOT_PERMITTED)?;
    event.tasks.of(kind).configure(completed, failed, tasks, 0..=MAX_TASKS)
}

/// Declares the calls of all kinds of tasks: capability, options, and conversion to `doca_task`.
macro_rules! kinds {
    ($($kind:ident: $supported:ident, $set_conf:ident, $as_task:ident;)*) => {
        c_calls! {
            $(
                fn $supported(devinfo: Handle<Info>) { supported(&devinfo) }
                fn $set_conf(
                    event: Handle<Event>,
                    completed: Option<TaskCallback>,
                    failed: Option<TaskCallback>,
                    tasks: u32,
                ) {
                    configure(&event, Kind::$kind, completed, failed, tasks)
                }
                fn $as_task(task: Handle<Task<Job>>) -> *mut c::doca_task { as_task(&task) }
            )*
        }
    };
}

kinds! {
    Get:
        doca_sync_event_cap_task_get_is_supported,
        doca_sync_event_task_get_set_conf,
        doca_sync_event_task_get_as_doca_task;
    NotifySet:
        doca_sync_event_cap_task_notify_set_is_supported,
        doca_sync_event_task_notify_set_set_conf,
        doca_sync_event_task_notify_set_as_doca_task;
    NotifyAdd:
        doca_sync_event_cap_task_notify_add_is_supported,
        doca_sync_event_task_notify_add_set_conf,
        doca_sync_event_task_notify_add_as_doca_task;
    WaitEq:
        doca_sync_event_cap_task_wait_eq_is_supported,
        doca_sync_event_task_wait_eq_set_conf,
        doca_sync_event_task_wait_eq_as_doca_task;
    WaitNeq:
        doca_sync_event_cap_task_wait_neq_is_supported,
        doca_sync_event_task_wait_neq_set_conf,
        doca_sync_event_task_wait_neq_as_doca_task;
    WaitGt:
        doca_sync_event_cap_task_wait_gt_is_supported,
        doca_sync_event_task_wait_gt_set_conf,
        doca_sync_event_task_wait_gt_as_doca_task;
}

/// Declares the calls of tasks that wait. Masks are 0, 1, 2, 4 or 8 consecutive bytes of ones; the
/// submission refuses other masks.
macro_rules! waits {
    ($($kind:ident: $alloc:ident, $set_val:ident, $get_val:ident, $set_mask:ident, $get_mask:ident;)*) => {
        c_calls! {
            $(
                fn $alloc(
                    event: Handle<Event>,
                    wait_val: u64,
                    mask: u64,
                    user_data: c::doca_data,
                    task: Out<Handle<Task<Job>>>,
                ) {
                    task.make(|| event.get()?.alloc(Kind::$kind, user_data, |job| {
                        job.operand.set(wait_val);
                        job.mask.set(mask);
                    }))
                }
            )*
        }
        fields! { Job: $($set_val, $get_val(operand: u64); $set_mask, $get_mask(mask: u64);)* }
    };
}

waits! {
    WaitEq:
        doca_sync_event_task_wait_eq_alloc_init,
        doca_sync_event_task_wait_eq_set_wait_val,
        doca_sync_event_task_wait_eq_get_wait_val,
        doca_sync_event_task_wait_eq_set_mask,
        doca_sync_event_task_wait_eq_get_mask;
    WaitNeq:
        doca_sync_event_task_wait_neq_alloc_init,
        doca_sync_event_task_wait_neq_set_wait_val,
        doca_sync_event_task_wait_neq_get_wait_val,
        doca_sync_event_task_wait_neq_set_mask,
        doca_sync_event_task_wait_neq_get_mask;
    WaitGt:
        doca_sync_event_task_wait_gt_alloc_init,
        doca_sync_event_task_wait_gt_set_wait_val,
        doca_sync_event_task_wait_gt_get_wait_val,
        doca_sync_event_task_wait_gt_set_mask,
        doca_sync_event_task_wait_gt_get_mask;
}

c_calls! {
    /// Takes a task that reads the number. Returns `NO_MEMORY` if all tasks are in use.
    fn doca_sync_event_task_get_alloc_init(
        event: Handle<Event>,
        ret_val_ptr: Out<u64>,
        user_data: c::doca_data,
        task: Out<Handle<Task<Job>>>,
    ) {
        ret_val_ptr.check()?;
        task.make(|| event.get()?.alloc(Kind::Get, user_data, |job| job.out.set(ret_val_ptr)))
    }
    /// Takes a task that sets the number. Returns `NO_MEMORY` if all tasks are in use.
    fn doca_sync_event_task_notify_set_alloc_init(
        event: Handle<Event>,
        set_val: u64,
        user_data: c::doca_data,
        task: Out<Handle<Task<Job>>>,
    ) {
        task.make(|| event.get()?.alloc(Kind::NotifySet, user_data, |job| job.operand.set(set_val)))
    }
    /// Takes a task that adds to the number, and writes the previous number unless the address is NULL.
    /// Returns `NO_MEMORY` if all tasks are in use.
    fn doca_sync_event_task_notify_add_alloc_init(
        event: Handle<Event>,
        inc_val: u64,
        fetched_val_ptr: Out<u64>,
        user_data: c::doca_data,
        task: Out<Handle<Task<Job>>>,
    ) {
        task.make(|| event.get()?.alloc(Kind::NotifyAdd, user_data, |job| {
            job.operand.set(inc_val);
            job.out.set(fetched_val_ptr);
        }))
    }
}

fields! {
    Job:
    doca_sync_event_task_get_set_ret_val_ptr, doca_sync_event_task_get_get_ret_val_ptr(out: Out<u64>);
    doca_sync_event_task_notify_set_set_set_val, doca_sync_event_task_notify_set_get_set_val(operand: u64);
    doca_sync_event_task_notify_add_set_inc_val, doca_sync_event_task_notify_add_get_inc_val(operand: u64);
    doca_sync_event_task_notify_add_set_fetched_val_ptr, doca_sync_event_task_notify_add_get_fetched_val_ptr
        (out: Out<u64>);
}
