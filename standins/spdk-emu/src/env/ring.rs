//! Rings of pointers between threads.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Mutex;

use crate::c_abi::{Addr, Ptr, c, c_calls};
use crate::lock;

/// `struct spdk_ring`.
pub(crate) struct Ring {
    room: usize,
    objects: Mutex<VecDeque<Addr>>,
}

c_calls! {
    fn spdk_ring_create(kind: u32, count: usize, _numa_id: c_int) -> Ptr<Ring> {
        if kind > c::SPDK_RING_TYPE_MP_MC || count == 0 || count > u32::MAX as usize / 2 {
            return Ptr::NULL;
        }
        // SAFETY: no code of this crate writes a whole object of this type.
        unsafe { Ptr::give(Box::new(Ring { room: count, objects: Mutex::default() })) }
    }

    fn spdk_ring_free(ring: Ptr<Ring>) {
        // SAFETY: C promises that the ring is from `spdk_ring_create`, and is freed once.
        drop(unsafe { ring.take() });
    }

    fn spdk_ring_count(ring: Ptr<Ring>) -> usize { ring.get().map_or(0, |ring| lock(&ring.objects).len()) }

    /// Enqueues either all objects or none.
    fn spdk_ring_enqueue(ring: Ptr<Ring>, objs: Ptr<Addr>, count: usize, free_space: Ptr<usize>) -> usize {
        let Some(ring) = ring.get() else { return 0 };
        let mut objects = lock(&ring.objects);
        // SAFETY: C passes an array of `count` elements, and does not change it during the call.
        let new = unsafe { objs.slice(count) };
        let fits = count <= ring.room - objects.len() && new.len() == count;
        if fits {
            objects.extend(new);
        }
        free_space.put(ring.room - objects.len());
        if fits { count } else { 0 }
    }

    /// Dequeues up to `count` objects.
    fn spdk_ring_dequeue(ring: Ptr<Ring>, objs: Ptr<Addr>, count: usize) -> usize {
        let Some(ring) = ring.get().filter(|_| !objs.is_null()) else { return 0 };
        let mut objects = lock(&ring.objects);
        let taken = count.min(objects.len());
        for (i, object) in objects.drain(..taken).enumerate() {
            // SAFETY: C promises room for `count` objects, and `i` is less than `count`.
            unsafe { objs.write(i, object) };
        }
        taken
    }
}
