//! Sync events, used directly and as contexts, exported and imported, with their tasks.

use std::ptr;

use super::{ContextProgram, OK, c, call, within};

/// An event.
#[derive(Clone, Copy)]
pub(super) struct Event(*mut c::doca_sync_event);

/// Defines the callbacks of one kind of task. The kinds differ only in the task's type.
macro_rules! on_end {
    ($($done:ident $failed:ident $task:ident $as_task:ident)+) => {
        $(unsafe extern "C" fn $done(task: *mut c::$task, _: c::doca_data, _: c::doca_data) {
            within(|program| program.ended(call!($as_task(task)), true));
        }

        unsafe extern "C" fn $failed(task: *mut c::$task, _: c::doca_data, _: c::doca_data) {
            within(|program| program.ended(call!($as_task(task)), false));
        })+
    };
}

on_end! {
    on_got on_not_got doca_sync_event_task_get doca_sync_event_task_get_as_doca_task
    on_set on_not_set doca_sync_event_task_notify_set doca_sync_event_task_notify_set_as_doca_task
    on_added on_not_added doca_sync_event_task_notify_add doca_sync_event_task_notify_add_as_doca_task
    on_equal on_not_equal doca_sync_event_task_wait_eq doca_sync_event_task_wait_eq_as_doca_task
    on_other on_not_other doca_sync_event_task_wait_neq doca_sync_event_task_wait_neq_as_doca_task
}

impl ContextProgram {
    fn event(&self) -> *mut c::doca_sync_event {
        self.input.pick(&self.events).map_or(ptr::null_mut(), |event| event.0)
    }

    pub(super) fn event_ctx(&self) -> *mut c::doca_ctx {
        call!(doca_sync_event_as_ctx(self.event()))
    }

    pub(super) fn event_step(&self) {
        let event = self.event();
        match self.input.byte() % 16 {
            0..2 => self.create_event(),
            2 => {
                if call!(doca_sync_event_destroy(event)) == OK {
                    self.events.borrow_mut().retain(|other| other.0 != event);
                }
            }
            3 => {
                call!(doca_sync_event_start(event));
            }
            4 => {
                call!(doca_sync_event_stop(event));
            }
            5 => self.use_ctx(call!(doca_sync_event_as_ctx(event))),
            6 => self.locate(event),
            7 => self.export(event),
            8 => self.import(),
            9 | 10 => self.use_number(event),
            _ => self.allocate(event),
        }
    }

    /// Creates an event, usually ready to start, either for direct use or as a context.
    fn create_event(&self) {
        let mut event = ptr::null_mut();
        assert_eq!(call!(doca_sync_event_create(&mut event)), OK);
        self.events.borrow_mut().push(Event(event));
        if self.input.byte().is_multiple_of(8) {
            return;
        }
        let located = [
            call!(doca_sync_event_add_publisher_location_cpu(event, self.dpu)),
            call!(doca_sync_event_add_subscriber_location_remote_pci(event)),
        ];
        assert_eq!(located, [OK; 2]);
        self.configure(event);
        if self.input.byte().is_multiple_of(2) {
            call!(doca_sync_event_start(event));
        } else {
            self.adopt(call!(doca_sync_event_as_ctx(event)));
        }
    }

    fn configure(&self, event: *mut c::doca_sync_event) {
        let count = || u32::from(self.input.byte() % 4);
        call!(doca_sync_event_task_get_set_conf(event, Some(on_got), Some(on_not_got), count()));
        call!(doca_sync_event_task_notify_set_set_conf(event, Some(on_set), Some(on_not_set), count()));
        call!(doca_sync_event_task_notify_add_set_conf(event, Some(on_added), Some(on_not_added), count()));
        call!(doca_sync_event_task_wait_eq_set_conf(event, Some(on_equal), Some(on_not_equal), count()));
        call!(doca_sync_event_task_wait_neq_set_conf(event, Some(on_other), Some(on_not_other), count()));
    }

    fn locate(&self, event: *mut c::doca_sync_event) {
        let dev = [self.dpu, self.host, ptr::null_mut()][usize::from(self.input.byte() % 3)];
        match self.input.byte() % 8 {
            0 => call!(doca_sync_event_add_publisher_location_cpu(event, dev)),
            1 => call!(doca_sync_event_add_subscriber_location_cpu(event, dev)),
            2 => call!(doca_sync_event_add_publisher_location_remote_pci(event)),
            3 => call!(doca_sync_event_add_publisher_location_remote_net(event)),
            4 => call!(doca_sync_event_add_publisher_location_gpu(event, ptr::null_mut())),
            5 => call!(doca_sync_event_set_addr(event, self.number_at())),
            6 => call!(doca_sync_event_set_doca_buf(event, ptr::null_mut())),
            _ => {
                self.configure(event);
                OK
            }
        };
    }

    fn number_at(&self) -> *mut u64 {
        self.numbers.get(usize::from(self.input.byte() % 9)).map_or(ptr::null_mut(), std::cell::Cell::as_ptr)
    }

    fn export(&self, event: *mut c::doca_sync_event) {
        let (mut bytes, mut len) = (ptr::null(), 0);
        let dev = if self.input.byte().is_multiple_of(8) { ptr::null_mut() } else { self.dpu };
        if call!(doca_sync_event_export_to_remote_pci(event, dev, &mut bytes, &mut len)) == OK {
            // SAFETY: the call has succeeded, so `bytes` is the event's descriptor of `len` bytes. The event
            // keeps its descriptor until it is destroyed.
            let bytes = unsafe { std::slice::from_raw_parts(bytes, len) };
            self.exports.borrow_mut().push(bytes.to_vec());
        }
        assert_ne!(call!(doca_sync_event_export_to_remote_net(event, &mut bytes, &mut len)), OK);
        assert_ne!(call!(doca_sync_event_get_gpu_handle(event, ptr::null_mut(), ptr::null_mut())), OK);
    }

    fn import(&self) {
        let place = usize::from(self.input.byte());
        let descriptor = {
            let exports = self.exports.borrow();
            if exports.is_empty() { Vec::new() } else { exports[place % exports.len()].clone() }
        };
        let (mut altered, change) = (descriptor.clone(), self.input.byte());
        if change >= 128 && !altered.is_empty() {
            let at = self.input.below(altered.len());
            altered[at] ^= change;
            altered.truncate(if change >= 192 { at } else { usize::MAX });
        }
        let mut event = ptr::null_mut();
        let bytes = altered.as_ptr();
        if call!(doca_sync_event_create_from_export(self.dpu, bytes, altered.len(), &mut event)) == OK {
            assert_eq!(altered, descriptor, "an altered descriptor was accepted");
            self.events.borrow_mut().push(Event(event));
            self.configure(event);
        }
    }

    /// Makes the calls by which a thread reads, changes and waits for an event.
    fn use_number(&self, event: *mut c::doca_sync_event) {
        let (mut number, mut fetched, by) = (0, 0, self.input.number());
        if call!(doca_sync_event_get(event, &mut number)) != OK {
            assert_ne!(call!(doca_sync_event_update_add(event, by, &mut fetched)), OK);
            return;
        }
        match self.input.byte() % 4 {
            0 => {
                assert_eq!(call!(doca_sync_event_update_add(event, by, &mut fetched)), OK);
                assert_eq!(fetched, number);
            }
            1 => assert_eq!(call!(doca_sync_event_update_set(event, by)), OK),
            2 => {
                // Waits only for a condition that already holds, because no other thread changes the event.
                assert_eq!(call!(doca_sync_event_wait_eq(event, number, u64::MAX)), OK);
                assert_eq!(call!(doca_sync_event_wait_neq_yield(event, !number, u64::MAX)), OK);
                assert_eq!(call!(doca_sync_event_wait_eq_yield(event, number & 0xff, 0xff)), OK);
                if number > 0 {
                    assert_eq!(call!(doca_sync_event_wait_gt(event, number - 1, u64::MAX)), OK);
                }
            }
            _ => {
                assert_ne!(call!(doca_sync_event_get(event, ptr::null_mut())), OK);
                assert_ne!(call!(doca_sync_event_update_add(event, 1, ptr::null_mut())), OK);
            }
        }
    }

    fn allocate(&self, event: *mut c::doca_sync_event) {
        let (value, mask) = (self.input.number(), self.input.number());
        let mask = if mask % 2 == 0 { u64::MAX } else { mask };
        let data = c::doca_data { u64_: 1 };
        // Allocates, converts and configures a task of each kind.
        macro_rules! allocate {
            ($alloc:ident($($argument:expr),*) $as_task:ident, $task:ident: $again:expr) => {{
                let mut $task = ptr::null_mut();
                if call!($alloc(event, $($argument,)* data, &mut $task)) == OK {
                    $again;
                    self.keep(call!($as_task($task)));
                }
            }};
        }
        match self.input.byte() % 5 {
            0 => allocate!(
                doca_sync_event_task_get_alloc_init(self.number_at())
                doca_sync_event_task_get_as_doca_task,
                task: call!(doca_sync_event_task_get_set_ret_val_ptr(task, self.number_at()))
            ),
            1 => allocate!(
                doca_sync_event_task_notify_set_alloc_init(value)
                doca_sync_event_task_notify_set_as_doca_task,
                task: call!(doca_sync_event_task_notify_set_set_set_val(task, value ^ 1))
            ),
            2 => allocate!(
                doca_sync_event_task_notify_add_alloc_init(value, self.number_at())
                doca_sync_event_task_notify_add_as_doca_task,
                task: call!(doca_sync_event_task_notify_add_set_fetched_val_ptr(task, self.number_at()))
            ),
            3 => allocate!(
                doca_sync_event_task_wait_eq_alloc_init(value, mask)
                doca_sync_event_task_wait_eq_as_doca_task,
                task: call!(doca_sync_event_task_wait_eq_set_mask(task, mask))
            ),
            _ => allocate!(
                doca_sync_event_task_wait_neq_alloc_init(value, mask)
                doca_sync_event_task_wait_neq_as_doca_task,
                task: call!(doca_sync_event_task_wait_neq_set_wait_val(task, value))
            ),
        }
    }

    pub(super) fn stop_events(&self, ctxs: &mut Vec<*mut c::doca_ctx>) {
        for Event(event) in &*self.events.borrow() {
            call!(doca_sync_event_stop(*event));
            let ctx = call!(doca_sync_event_as_ctx(*event));
            if !ctx.is_null() {
                ctxs.push(ctx);
            }
        }
    }

    pub(super) fn destroy_events(&self) {
        for Event(event) in self.events.take() {
            assert_eq!(call!(doca_sync_event_destroy(event)), OK);
        }
    }
}
