//! Handles: numbers that name objects. A handle stays invalid after its object is closed.
//!
//! A table has slots, which are never freed. A slot has a generation number, which is odd while the slot
//! holds an object. A handle consists of the slot's generation and index, so no two objects have the same
//! handle. A thread that uses an object pins its slot. An object can be closed only while its slot has no
//! pins.
#![expect(unsafe_code, reason = "shares the contents of slots, and guards them by atomics")]

use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::null_mut;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use dma::process::ForkLock;
use dma::{Error, ErrorKind, Result};

/// Number of slots in a chunk, and of chunks in a table. It is small in tests, because a test fills a table.
const CHUNK: u32 = 1024;
const CHUNKS: usize = if cfg!(test) { 16 } else { 1024 };

/// The increment of a slot's state for one generation.
const GENERATION: u64 = 1 << 32;
/// The bit of the state that means exclusive use. The lower bits count pins.
const EXCLUSIVE: u64 = 1 << 31;
/// Number of attempts to use a slot exclusively while another thread pins it. After that, the object counts
/// as in use. More than one attempt is made because a pin by a stale handle lasts only a few instructions.
const TRIES: u32 = 100;

/// Message of a panic that cannot occur: the slot of an object in use is not empty.
const HELD: &str = "a slot in use holds an object";

/// The bits that tell the kinds of handles apart, so that no handle names objects of two kinds. They are
/// above the bits of indices and below [`EXCLUSIVE`].
pub(crate) mod mark {
    pub(crate) const ENGINE: u32 = 1 << 24;
    pub(crate) const REGION: u32 = 1 << 25;
    pub(crate) const EXPORT: u32 = 1 << 26;
    pub(crate) const QUEUE: u32 = 1 << 27;
    pub(crate) const SHARED_QUEUE: u32 = 1 << 28;
    pub(crate) const BATCH: u32 = 1 << 29;
    pub(crate) const REPORT: u32 = 1 << 30;
}

/// A slot: the generation in the upper half of the state, pins in the lower half.
struct Slot<T> {
    state: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

type Chunk<T> = [Slot<T>; CHUNK as usize];

/// The slots of one process. In a forked child, this value begins anew.
#[derive(Default)]
struct Slots {
    /// The free slots that were used before.
    free: Vec<u32>,
    /// The number of slots that the process inherited from its parent by a fork. They are not used again,
    /// because threads of the parent may use their objects for ever.
    inherited: Option<u32>,
}

/// The table of all objects of one kind.
pub(crate) struct Table<T: 'static> {
    /// The name of the kind, for messages.
    what: &'static str,
    /// The bit of this kind in the index of every handle; see [`mark`].
    mark: u32,
    chunks: [AtomicPtr<Chunk<T>>; CHUNKS],
    slots: ForkLock<Slots>,
    /// The first slot that was never used. Only a thread that has locked `slots` changes it.
    next: AtomicU32,
}

// SAFETY: threads that pin a slot share references to its value, so `T` must be `Sync`. A thread in exclusive
// use may move the value out or change it, so `T` must be `Send`. The state of the slot excludes both at
// once.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// Shared use of an object.
pub(crate) struct Pin<'a, T> {
    slot: &'a Slot<T>,
}

/// The exclusive use of an object, without access to it. The use ends when this value is
/// dropped. After [`keep`](Self::keep), it continues until [`Table::resume`].
pub(crate) struct Held<T: 'static>(&'static Slot<T>);

/// The exclusive use of an object.
pub(crate) struct Exclusive<T: 'static> {
    table: &'static Table<T>,
    index: u32,
    slot: &'static Slot<T>,
}

impl<T> Table<T> {
    /// Creates a table whose handles have the bit `mark` in their index.
    pub(crate) const fn new(what: &'static str, mark: u32) -> Self {
        let (slots, next) = (ForkLock::new(Slots::default), AtomicU32::new(0));
        Self { what, mark, chunks: [const { AtomicPtr::new(null_mut()) }; CHUNKS], slots, next }
    }

    /// Locks the slots of this process. Returns them and the number of inherited ones.
    fn slots(&'static self) -> (MutexGuard<'static, Slots>, u32) {
        let mut slots = self.slots.lock();
        let inherited = *slots.inherited.get_or_insert_with(|| self.next.load(Ordering::Relaxed));
        (slots, inherited)
    }

    /// Stores an object and returns its handle.
    pub(crate) fn insert(&'static self, value: T) -> Result<u64> {
        let index = {
            let (mut slots, _) = self.slots();
            let next = self.next.load(Ordering::Relaxed);
            match slots.free.pop() {
                Some(index) => index,
                None if next < CHUNK * CHUNKS as u32 => {
                    if next.is_multiple_of(CHUNK) {
                        let chunk = Box::leak(Self::new_chunk());
                        self.chunks[(next / CHUNK) as usize].store(chunk, Ordering::Release);
                    }
                    // Last, so that a child that is forked before this uses the slot.
                    self.next.store(next + 1, Ordering::Release);
                    next
                }
                None => {
                    let most = u64::from(CHUNK) * CHUNKS as u64;
                    let message = format!("{most} objects of the kind {} are open", self.what);
                    return Err(
                        Error::new(ErrorKind::OutOfResources, message).with_hint("close some of them")
                    );
                }
            }
        };
        let slot = self.at(index).expect("the chunk exists");
        // SAFETY: the slot has an even generation, so no handle leads to it, and `get` and `exclusive` return
        // no access to it. Only this call has its index.
        unsafe { *slot.value.get() = Some(value) };
        // At the same time, only pins by stale handles change the state.
        let before = slot.state.fetch_add(GENERATION, Ordering::Release);
        Ok((before & !(GENERATION - 1)).wrapping_add(GENERATION) | u64::from(index | self.mark))
    }

    /// Allocates a chunk without moving it through the stack, which may be small in a C program's thread.
    fn new_chunk() -> Box<Chunk<T>> {
        let slot = || Slot { state: AtomicU64::new(0), value: UnsafeCell::new(None) };
        let slots: Box<[_]> = std::iter::repeat_with(slot).take(CHUNK as usize).collect();
        slots.try_into().unwrap_or_else(|_| unreachable!("a chunk has this length"))
    }

    /// Returns the slot of an index, if its chunk exists.
    #[inline]
    fn at(&self, index: u32) -> Option<&Slot<T>> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?.load(Ordering::Acquire);
        // SAFETY: the pointer is NULL, or leads to a chunk that is never freed.
        unsafe { chunk.as_ref() }.map(|chunk| &chunk[(index % CHUNK) as usize])
    }

    #[cold]
    fn no_object(&self, id: u64) -> Error {
        let what = self.what;
        let message =
            if id == 0 { format!("no {what}: the handle is 0") } else { format!("{id:#x} is not a {what}") };
        Error::new(ErrorKind::InvalidArgument, message)
            .with_hint("use a handle that the library has written, and check that the call succeeded")
    }

    #[cold]
    fn closed(&self, id: u64, state: u64) -> Error {
        if id & GENERATION == 0 || id >> 32 > state >> 32 {
            // The library has never returned this number.
            return self.no_object(id);
        }
        Error::new(ErrorKind::Closed, format!("the {} {id:#x} was closed before", self.what))
            .with_hint("forget the handle when you close it")
    }

    #[cold]
    fn in_use(&self) -> Error {
        let message = format!("another thread is in a call with this {}", self.what);
        Error::new(ErrorKind::InUse, message).with_hint("let one thread at a time call it")
    }

    /// Returns whether a handle belongs to this table.
    #[inline]
    pub(crate) const fn has_mark(&self, id: u64) -> bool {
        id as u32 & self.mark != 0
    }

    /// Returns shared use of a handle's object.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the number is not a handle; `Closed`; `InUse` while another thread uses the
    /// object exclusively.
    #[inline]
    pub(crate) fn get(&self, id: u64) -> Result<Pin<'_, T>> {
        if let Some(slot) = self.at(id as u32 ^ self.mark) {
            let state = slot.state.fetch_add(1, Ordering::Acquire);
            // The slot's generation equals the handle's and is odd, and the slot is not in exclusive use.
            if (state ^ id) >> 31 == 0 && state & GENERATION != 0 {
                return Ok(Pin { slot });
            }
            slot.state.fetch_sub(1, Ordering::Release);
            return Err(self.not_shared(id, state));
        }
        Err(self.no_object(id))
    }

    #[cold]
    fn not_shared(&self, id: u64, state: u64) -> Error {
        let is_current = (state ^ id) >> 32 == 0 && state & GENERATION != 0;
        if is_current { self.in_use() } else { self.closed(id, state) }
    }

    /// Returns exclusive use of a handle's object.
    ///
    /// # Errors
    ///
    /// The errors of [`get`](Self::get); `InUse` while another thread uses the object.
    #[inline]
    pub(crate) fn exclusive(&'static self, id: u64) -> Result<Exclusive<T>> {
        let index = id as u32 ^ self.mark;
        let slot = self.at(index).ok_or_else(|| self.no_object(id))?;
        let idle = id & !(GENERATION - 1);
        if idle & GENERATION == 0 {
            return Err(self.no_object(id));
        }
        let mut tries = 0;
        loop {
            match slot.state.compare_exchange(idle, idle | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(Exclusive { table: self, index, slot }),
                Err(state) if (state ^ id) >> 32 != 0 => return Err(self.closed(id, state)),
                Err(state) if state & EXCLUSIVE != 0 || tries == TRIES => return Err(self.in_use()),
                Err(_) => tries += 1,
            }
            std::hint::spin_loop();
        }
    }

    /// Returns exclusive use of a handle's object, to close it. In a forked child, returns `None` if the
    /// object is the parent's and in use, because a use by a thread of the parent does not end in the child.
    /// Then the handle is closed, and the object is leaked.
    ///
    /// # Errors
    ///
    /// The errors of [`exclusive`](Self::exclusive), but `InUse` only for objects of this process.
    pub(crate) fn to_close(&'static self, id: u64) -> Result<Option<Exclusive<T>>> {
        let in_use = match self.exclusive(id) {
            Err(e) if e.kind() == ErrorKind::InUse => e,
            other => return other.map(Some),
        };
        let index = id as u32 ^ self.mark;
        if index >= self.slots().1 {
            return Err(in_use);
        }
        let slot = self.at(index).expect("the slot of an object in use");
        // The uses remain in the state.
        let close = |state: u64| ((state ^ id) >> 32 == 0).then(|| state.wrapping_add(GENERATION));
        match slot.state.fetch_update(Ordering::AcqRel, Ordering::Relaxed, close) {
            Ok(_) => Ok(None),
            Err(state) => Err(self.closed(id, state)),
        }
    }
}

impl<T> Held<T> {
    /// Keeps the object in exclusive use until [`Table::resume`].
    #[inline]
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl<T> Drop for Held<T> {
    #[inline]
    fn drop(&mut self) {
        self.0.state.fetch_sub(EXCLUSIVE, Ordering::Release);
    }
}

impl<T> Table<T> {
    /// Resumes the exclusive use of an object that was [kept](Held::keep).
    ///
    /// # Safety
    ///
    /// The object of this handle was kept, and only this call resumes it.
    #[inline]
    pub(crate) unsafe fn resume(&'static self, id: u64) -> Exclusive<T> {
        let index = id as u32 ^ self.mark;
        Exclusive { table: self, index, slot: self.at(index).expect("the slot of a held object") }
    }
}

impl<T> Deref for Pin<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the value of a slot does not change while the slot is pinned, because only exclusive use
        // changes it, and exclusive use needs a slot without pins.
        unsafe { &*self.slot.value.get() }.as_ref().expect(HELD)
    }
}

impl<T> Drop for Pin<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.fetch_sub(1, Ordering::Release);
    }
}

impl<T> Exclusive<T> {
    #[inline]
    fn value(&mut self) -> &mut Option<T> {
        // SAFETY: `self` has the slot in exclusive use, and is borrowed uniquely.
        unsafe { &mut *self.slot.value.get() }
    }

    /// Closes the handle and returns the object.
    pub(crate) fn remove(mut self) -> T {
        // Dropping `self` closes the handle, because the slot is empty.
        self.value().take().expect(HELD)
    }

    /// Closes the handle and passes the object to `end`. If `end` returns the object with an error, the
    /// handle stays open.
    pub(crate) fn remove_if<R, E>(mut self, end: impl FnOnce(T) -> Result<R, (T, E)>) -> Result<R, E> {
        let value = self.value().take().expect(HELD);
        end(value).map_err(|(value, e)| {
            *self.value() = Some(value);
            e
        })
    }
}

impl<T> Exclusive<T> {
    /// Keeps the object in exclusive use. The slot must not be empty.
    #[inline]
    pub(crate) fn hold(self) -> Held<T> {
        Held(ManuallyDrop::new(self).slot)
    }
}

impl<T> Deref for Exclusive<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `self` has the slot in exclusive use, and no `&mut` to the value exists while `self` is
        // borrowed.
        unsafe { &*self.slot.value.get() }.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for Exclusive<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: `self` has the slot in exclusive use, and is borrowed uniquely.
        unsafe { &mut *self.slot.value.get() }.as_mut().expect(HELD)
    }
}

impl<T> Drop for Exclusive<T> {
    #[inline]
    fn drop(&mut self) {
        if self.value().is_some() {
            self.slot.state.fetch_sub(EXCLUSIVE, Ordering::Release);
        } else {
            self.close();
        }
    }
}

impl<T> Exclusive<T> {
    /// Begins the next generation of an empty slot.
    #[cold]
    fn close(&self) {
        let state = self.slot.state.fetch_add(GENERATION - EXCLUSIVE, Ordering::Release);
        let (mut slots, inherited) = self.table.slots();
        // A slot whose generations are used up is never used again.
        if self.index >= inherited && state >> 32 < u64::from(u32::MAX) - 2 {
            slots.free.push(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind<T>(result: Result<T>) -> ErrorKind {
        result.err().expect("an error").kind()
    }

    #[test]
    fn closed_handles_never_lead_to_another_object() {
        static TABLE: Table<String> = Table::new("text", mark::ENGINE);
        let first = TABLE.insert("a".to_owned()).unwrap();
        assert_eq!(&**TABLE.get(first).unwrap(), "a");
        assert_eq!(TABLE.exclusive(first).unwrap().remove(), "a");
        let second = TABLE.insert("b".to_owned()).unwrap();
        assert_eq!((first as u32, first == second), (second as u32, false), "the slot is used again");
        assert_eq!(kind(TABLE.get(first)), ErrorKind::Closed);
        assert_eq!(kind(TABLE.exclusive(first)), ErrorKind::Closed);
        let without_mark = second ^ u64::from(mark::ENGINE);
        let of_another_kind = without_mark | u64::from(mark::REGION);
        for wrong in [
            0,
            1,
            u64::MAX,
            second + 1,
            second + GENERATION,
            second + 2 * GENERATION,
            without_mark,
            of_another_kind,
        ] {
            assert_eq!(kind(TABLE.get(wrong)), ErrorKind::InvalidArgument, "{wrong:#x}");
            assert_eq!(kind(TABLE.exclusive(wrong)), ErrorKind::InvalidArgument, "{wrong:#x}");
        }
        assert_eq!(&**TABLE.get(second).unwrap(), "b");
    }

    #[test]
    fn objects_in_use_are_not_closed() {
        static TABLE: Table<u32> = Table::new("number", mark::REPORT);
        let id = TABLE.insert(7).unwrap();
        assert_ne!(id as u32 & 1 << 30, 0);
        let (one, other) = (TABLE.get(id).unwrap(), TABLE.get(id).unwrap());
        drop(one);
        assert_eq!(kind(TABLE.exclusive(id)), ErrorKind::InUse);
        drop(other);
        let alone = TABLE.exclusive(id).unwrap();
        assert_eq!(kind(TABLE.get(id)), ErrorKind::InUse);
        assert_eq!(kind(TABLE.exclusive(id)), ErrorKind::InUse);
        drop(alone);
        assert_eq!(*TABLE.get(id).unwrap(), 7);
    }

    #[test]
    fn threads_that_use_and_close_objects_never_meet_a_foreign_one() {
        static TABLE: Table<Vec<u64>> = Table::new("list", mark::REGION);
        let shared = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let shared = &shared;
                scope.spawn(move || {
                    for i in 0..5_000_u64 {
                        let mark = thread << 32 | i;
                        let id = TABLE.insert(vec![mark; 3]).unwrap();
                        shared.lock().unwrap().push((id, mark));
                        let (other, expected) = shared.lock().unwrap()[i as usize / 2];
                        if let Ok(list) = TABLE.get(other) {
                            assert_eq!(**list, [expected; 3]);
                        }
                        if i % 3 > 0 {
                            while TABLE.exclusive(id).map(Exclusive::remove).is_err() {}
                            assert_eq!(kind(TABLE.get(id)), ErrorKind::Closed);
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_child_does_not_wait_for_a_thread_that_opens_or_closes_an_object() {
        static TABLE: Table<u32> = Table::new("number", mark::EXPORT);
        let [closed, open] = [1, 2].map(|value| TABLE.insert(value).unwrap());
        TABLE.exclusive(closed).unwrap().remove();
        // The lock stays held, as by a thread that the child does not have.
        std::mem::forget(TABLE.slots.lock());
        assert!(test_support::in_child::in_child(|| {
            let own = TABLE.insert(3).unwrap();
            let different = *TABLE.get(own).unwrap() == 3 && *TABLE.get(open).unwrap() == 2;
            different && TABLE.exclusive(open).unwrap().remove() == 2 && TABLE.get(closed).is_err()
        }));
    }

    #[test]
    fn a_child_closes_objects_that_threads_of_the_parent_use() {
        static TABLE: Table<Vec<u32>> = Table::new("list", mark::QUEUE);
        let [pinned, exclusive, idle] = [1, 2, 3].map(|value| TABLE.insert(vec![value]).unwrap());
        // The uses of two calls of the parent.
        let (pin, mut exclusive_use) = (TABLE.get(pinned).unwrap(), TABLE.exclusive(exclusive).unwrap());
        for id in [pinned, exclusive] {
            assert_eq!(kind(TABLE.to_close(id)), ErrorKind::InUse, "the parent closes no object in use");
        }
        assert!(test_support::in_child::in_child(|| {
            for id in [pinned, exclusive] {
                assert!(TABLE.to_close(id).unwrap().is_none());
                assert_eq!(kind(TABLE.get(id)), ErrorKind::Closed);
                assert_eq!(kind(TABLE.to_close(id)), ErrorKind::Closed);
            }
            assert_eq!(TABLE.to_close(idle).unwrap().expect("it is idle").remove(), [3]);
            // An object of the child, in a slot that the child has used before.
            let first = TABLE.insert(vec![4]).unwrap();
            TABLE.to_close(first).unwrap().expect("it is idle").remove();
            let own = TABLE.insert(vec![5]).unwrap();
            assert!(own as u32 == first as u32 && own as u32 != idle as u32);
            let _pin = TABLE.get(own).unwrap();
            kind(TABLE.to_close(own)) == ErrorKind::InUse
        }));
        assert_eq!((&**pin, &**exclusive_use), (&[1][..], &[2][..]), "the parent's objects are left alone");
        exclusive_use.push(6);
        drop((pin, exclusive_use));
        assert_eq!(TABLE.to_close(pinned).unwrap().expect("it is idle").remove(), [1]);
        assert_eq!(TABLE.to_close(exclusive).unwrap().expect("it is idle").remove(), [2, 6]);
    }

    #[test]
    fn a_use_that_ends_after_its_object_was_leaked_leaves_the_handle_closed() {
        static TABLE: Table<u32> = Table::new("number", mark::BATCH);
        let [exclusive, pinned] = [1, 2].map(|value| TABLE.insert(value).unwrap());
        assert!(test_support::in_child::in_child(|| {
            let uses = (TABLE.exclusive(exclusive).unwrap(), TABLE.get(pinned).unwrap());
            [exclusive, pinned].iter().for_each(|&id| assert!(TABLE.to_close(id).unwrap().is_none()));
            assert_eq!((*uses.0, *uses.1), (1, 2));
            drop(uses);
            [exclusive, pinned].iter().for_each(|&id| assert_eq!(kind(TABLE.get(id)), ErrorKind::Closed));
            let new = TABLE.insert(3).unwrap();
            [exclusive, pinned].iter().all(|&id| id as u32 != new as u32)
        }));
    }
}
