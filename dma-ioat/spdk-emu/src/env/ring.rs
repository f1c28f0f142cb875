//! Rings of pointers between threads.
#![expect(unsafe_code, reason = "the names are C's")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::door::{Ptr, c};

/// `struct spdk_ring`.
pub(crate) struct Ring {
    room: usize,
    objects: Mutex<VecDeque<Ptr<c_void>>>,
}

impl Ring {
    fn objects(&self) -> MutexGuard<'_, VecDeque<Ptr<c_void>>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ring_create(kind: c::spdk_ring_type, count: usize, _numa_id: c_int) -> Ptr<Ring> {
    if kind > c::SPDK_RING_TYPE_MP_MC || count == 0 || count > u32::MAX as usize / 2 {
        return Ptr::NULL;
    }
    Ptr::give(Box::new(Ring { room: count, objects: Mutex::default() }))
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ring_free(ring: Ptr<Ring>) {
    drop(ring.take());
}

#[unsafe(no_mangle)]
extern "C" fn spdk_ring_count(ring: Ptr<Ring>) -> usize {
    ring.get().map_or(0, |ring| ring.objects().len())
}

/// All of them or none.
#[unsafe(no_mangle)]
extern "C" fn spdk_ring_enqueue(
    ring: Ptr<Ring>,
    objs: Ptr<Ptr<c_void>>,
    count: usize,
    free_space: Ptr<usize>,
) -> usize {
    let Some(ring) = ring.get() else { return 0 };
    let mut objects = ring.objects();
    let new = objs.slice(count);
    let fits = count <= ring.room - objects.len() && new.len() == count;
    if fits {
        objects.extend(new);
    }
    free_space.put(ring.room - objects.len());
    if fits { count } else { 0 }
}

/// As many as there are.
#[unsafe(no_mangle)]
extern "C" fn spdk_ring_dequeue(ring: Ptr<Ring>, objs: Ptr<Ptr<c_void>>, count: usize) -> usize {
    let Some(ring) = ring.get().filter(|_| !objs.is_null()) else { return 0 };
    let mut objects = ring.objects();
    let taken = count.min(objects.len());
    for (i, object) in objects.drain(..taken).enumerate() {
        objs.write(i, object);
    }
    taken
}
