use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::reference::{ReferenceEngine, doc_engine};
use crate::{
    Access, DmaEngineExt, EngineId, EngineInfo, Error, ErrorKind, ExportDescriptor, MemoryRequest,
    PageMemory, QueueOptions, RawExport, RawQueue, RawRegion, RegionInfo,
};

type Bytes = Arc<[u8]>;

fn cache(entries: usize, bytes: usize) -> RegistrationCache<ReferenceEngine> {
    let options = RegistrationCacheOptions::new().with_entries(entries).with_bytes(bytes);
    RegistrationCache::new(doc_engine(), &options)
}

#[test]
fn by_default_nothing_is_kept() {
    let cache = RegistrationCache::new(doc_engine(), &RegistrationCacheOptions::new());
    let owner: Bytes = [1, 2, 3].into();
    for _ in 0..3 {
        assert_eq!(cache.get(&owner).expect("registered")[..], [1, 2, 3]);
    }
    assert_eq!(Arc::strong_count(&owner), 1);
    let expected = RegistrationCacheCounters { misses: 3, ..Default::default() };
    assert_eq!(cache.counters(), expected);
}

#[test]
fn memory_is_found_by_its_owner_and_not_by_an_address_that_was_free_meanwhile() {
    let cache = cache(4, 1 << 20);
    for i in 0..100_u8 {
        let owner: Bytes = vec![i; 1000].into();
        // Most owners get the address of an owner that was released before, because allocators soon reuse
        // addresses.
        assert_eq!(cache.get(&owner).expect("registered")[..], [i; 1000]);
        assert_eq!(cache.get(&owner).expect("found")[..], [i; 1000]);
        assert_eq!(Arc::strong_count(&owner), 2, "the entry holds the second reference");
    }
    let expected = RegistrationCacheCounters { hits: 100, misses: 100, evicted: 96, entries: 4, bytes: 4000 };
    assert_eq!(cache.counters(), expected);
    // Two owners of the same bytes have two entries.
    let bytes = bytes::Bytes::from(vec![1; 10]);
    for owner in [Arc::new(bytes.clone()), Arc::new(bytes)] {
        assert_eq!(cache.get(&owner).expect("registered").as_ptr(), owner.as_ptr());
        assert_eq!((cache.remove(&owner), cache.remove(&owner)), (1, 0));
        assert_eq!(Arc::strong_count(&owner), 1);
    }
    assert_eq!((cache.counters().misses, cache.counters().entries), (102, 3));
    cache.clear();
    assert_eq!((cache.counters().entries, cache.counters().bytes), (0, 0));
    let none: Bytes = [].into();
    assert!(cache.get(&none).expect("0 bytes are registered").is_empty());
}

/// The panics of several owners' destructors reach no user of the cache.
#[test]
fn destructors_of_evicted_owners_may_panic() {
    struct Owner([u8; 100]);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            panic!("the destructor of an owner panics");
        }
    }
    let cache = cache(2, 200);
    let keep = || drop(cache.get(&Arc::new(Owner([7; 100]))).expect("registered"));
    keep();
    keep();
    // Evicts both owners.
    let owner: Bytes = vec![1; 200].into();
    assert_eq!(cache.get(&owner).expect("registered")[..], [1; 200]);
    assert_eq!((cache.counters().evicted, cache.counters().entries), (2, 1));
    cache.clear();
    keep();
    keep();
    cache.clear();
    assert_eq!(cache.counters().entries, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    Hold(usize),
    Release,
    Remove(usize),
    /// The caller drops its owner and makes another owner.
    Replace(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_usize).prop_map(Step::Get),
        2 => (0..8_usize).prop_map(Step::Hold),
        2 => Just(Step::Release),
        1 => (0..8_usize).prop_map(Step::Remove),
        2 => (0..8_usize).prop_map(Step::Replace),
    ]
}

proptest! {
    /// The oracle is a list of entries in the order of use, and a list of the views.
    #[test]
    fn the_least_recently_used_entries_go(
        steps in prop::collection::vec(step(), 1..80),
        most in 0..5_usize,
        most_bytes in 0..120_usize,
    ) {
        let cache = cache(most, most_bytes);
        let mut next = 0_u8;
        let mut owner = || {
            next += 1;
            (next, Bytes::from(vec![next; 1 + 13 * usize::from(next % 5)]))
        };
        let mut owners: Vec<_> = (0..8).map(|_| owner()).collect();
        // Number and length of each owner that has an entry.
        let mut kept: Vec<(u8, usize)> = Vec::new();
        let mut held: Vec<(u8, bool, Buffer)> = Vec::new();
        for step in steps {
            match step {
                Step::Get(at) | Step::Hold(at) => {
                    let (number, bytes) = &owners[at];
                    let buffer = cache.get(bytes).expect("registered");
                    prop_assert_eq!((buffer.as_ptr(), &buffer[..]), (bytes.as_ptr(), &bytes[..]));
                    let entry = (*number, bytes.len());
                    if let Some(at) = kept.iter().position(|known| *known == entry) {
                        kept.remove(at);
                        kept.push(entry);
                    } else if most > 0 && bytes.len() <= most_bytes {
                        let is_full = |kept: &[(u8, usize)]| {
                            kept.len() >= most
                                || kept.iter().map(|(_, len)| len).sum::<usize>() + bytes.len() > most_bytes
                        };
                        while is_full(&kept) {
                            let is_idle = |number: u8| !held.iter().any(|h| h.0 == number && h.1);
                            let Some(at) = kept.iter().position(|known| is_idle(known.0)) else { break };
                            kept.remove(at);
                        }
                        if !is_full(&kept) {
                            kept.push(entry);
                        }
                    }
                    if matches!(step, Step::Hold(_)) {
                        held.push((*number, kept.contains(&entry), buffer));
                    }
                }
                Step::Release => drop(held.pop()),
                Step::Remove(at) => {
                    let number = owners[at].0;
                    let known = kept.iter().filter(|known| known.0 == number).count();
                    prop_assert_eq!(cache.remove(&owners[at].1), known);
                    kept.retain(|known| known.0 != number);
                    // Views of a removed entry do not count as views of a later entry.
                    held.iter_mut().filter(|h| h.0 == number).for_each(|h| h.1 = false);
                }
                Step::Replace(at) => owners[at] = owner(),
            }
            let counters = cache.counters();
            let bytes = kept.iter().map(|(_, len)| len).sum::<usize>();
            prop_assert_eq!((counters.entries, counters.bytes), (kept.len(), bytes));
            for (number, owner) in &owners {
                let views = usize::from(kept.iter().any(|known| known.0 == *number))
                    + held.iter().filter(|h| h.0 == *number && !h.1).count();
                // All views of a registration share one reference to the owner.
                prop_assert!(Arc::strong_count(owner) <= 1 + views, "an owner is still referenced");
            }
        }
    }
}

/// An engine that refuses memory that is already registered, as some devices do.
#[derive(Debug)]
struct Once {
    inner: ReferenceEngine,
    registered: Arc<Mutex<HashSet<usize>>>,
}

/// A region that [`Once`] has registered.
#[derive(Debug)]
struct OnceRegion {
    inner: Box<dyn RawRegion>,
    addr: usize,
    registered: Arc<Mutex<HashSet<usize>>>,
}

impl Drop for OnceRegion {
    fn drop(&mut self) {
        // Lets other threads run, which find the memory still registered.
        std::thread::yield_now();
        self.registered.lock().expect("no panic").remove(&self.addr);
    }
}

#[expect(unsafe_code, reason = "implements the raw trait")]
// SAFETY: every call goes to the reference engine's region.
unsafe impl RawRegion for OnceRegion {
    fn info(&self) -> &RegionInfo {
        self.inner.info()
    }
    unsafe fn export(&self, offset: usize, len: usize, rights: Access) -> Result<Box<dyn RawExport>> {
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        unsafe { self.inner.export(offset, len, rights) }
    }
}

#[expect(unsafe_code, reason = "implements the raw trait")]
// SAFETY: every call goes to the reference engine, or is refused.
unsafe impl DmaEngine for Once {
    fn info(&self) -> &EngineInfo {
        self.inner.info()
    }
    fn id(&self) -> EngineId {
        self.inner.id()
    }
    fn allocate_raw(&self, request: &MemoryRequest) -> Result<Box<dyn RawRegion>> {
        self.inner.allocate_raw(request)
    }
    unsafe fn register_raw(
        &self,
        memory: &HostMemory,
        request: &MemoryRequest,
    ) -> Result<Box<dyn RawRegion>> {
        let addr = memory.as_ptr().addr().get();
        if !self.registered.lock().expect("no panic").insert(addr) {
            return Err(Error::bare(ErrorKind::InUse));
        }
        // SAFETY: this method and the inner one have the same requirements, and the caller meets them.
        let inner = unsafe { self.inner.register_raw(memory, request) }?;
        Ok(Box::new(OnceRegion { inner, addr, registered: Arc::clone(&self.registered) }))
    }
    fn import_raw(&self, descriptor: &ExportDescriptor) -> Result<Box<dyn RawRegion>> {
        self.inner.import_raw(descriptor)
    }
    fn open_queue_raw(&self, options: &QueueOptions) -> Result<Box<dyn RawQueue>> {
        self.inner.open_queue_raw(options)
    }
}

/// An owner whose registration starts only after two threads have not found its entry.
struct Meeting {
    bytes: Vec<u8>,
    missed: AtomicUsize,
}

impl AsRef<[u8]> for Meeting {
    fn as_ref(&self) -> &[u8] {
        thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });
        ASKED.set(ASKED.get() + 1);
        // The cache calls `as_ref` a second time if this thread has not found the entry.
        if ASKED.get() == 2 {
            self.missed.fetch_add(1, Ordering::Relaxed);
            while self.missed.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
        }
        &self.bytes
    }
}

#[test]
fn threads_that_miss_the_same_memory_register_it_once() {
    let engine = Once { inner: doc_engine(), registered: Arc::default() };
    let cache = RegistrationCache::new(engine, &RegistrationCacheOptions::new().with_entries(1));
    let owner = Arc::new(Meeting { bytes: vec![5; 100], missed: AtomicUsize::new(0) });
    std::thread::scope(|scope| {
        let threads =
            [(); 2].map(|()| scope.spawn(|| cache.get(&owner).map(|buffer| buffer[..] == [5; 100])));
        for thread in threads {
            assert!(thread.join().expect("no panic").expect("registered, or found"));
        }
    });
    assert_eq!((cache.counters().misses, cache.counters().hits), (1, 1));
}

/// Memory that one thread evicts is deregistered before another thread can register it again.
#[test]
#[cfg_attr(miri, ignore = "takes long")]
fn evicted_memory_can_be_registered_again_at_once() {
    let engine = Once { inner: doc_engine(), registered: Arc::default() };
    let cache = RegistrationCache::new(engine, &RegistrationCacheOptions::new().with_entries(1));
    std::thread::scope(|scope| {
        for thread in 0..2_u8 {
            let cache = &cache;
            scope.spawn(move || {
                // No other thread has views of these owners.
                let owners: [Bytes; 2] = [thread, thread + 2].map(|number| vec![number; 100].into());
                for owner in owners.iter().cycle().take(4_000) {
                    drop(cache.get(owner).expect("registered, or found"));
                }
            });
        }
    });
    assert!(cache.counters().evicted > 0);
}

/// An owner whose destructor uses the cache, as an owner of a program may do.
struct Nosy(Vec<u8>, Arc<Mutex<Option<Arc<RegistrationCache<ReferenceEngine>>>>>);

impl AsRef<[u8]> for Nosy {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Nosy {
    fn drop(&mut self) {
        if let Some(cache) = &*self.1.lock().expect("no panic") {
            let owner: Bytes = vec![9; 10].into();
            assert_eq!(cache.get(&owner).expect("registered")[..], [9; 10]);
        }
    }
}

#[test]
fn owners_may_use_the_cache_when_they_are_let_go() {
    let known = Arc::new(Mutex::new(None));
    let cache = Arc::new(cache(1, 1000));
    let put = || drop(cache.get(&Arc::new(Nosy(vec![1; 10], Arc::clone(&known)))).expect("registered"));
    *known.lock().expect("no panic") = Some(Arc::clone(&cache));
    put();
    // This entry is evicted. The next entry is removed.
    let other: Bytes = vec![2; 10].into();
    cache.get(&other).expect("registered");
    put();
    cache.clear();
    *known.lock().expect("no panic") = None;
    assert_eq!(cache.counters().misses, 5);
}

#[test]
fn memory_that_its_owner_unmaps_is_unmapped_when_the_cache_lets_it_go() {
    let cache = cache(4, 1 << 20);
    let queue = doc_queue(&cache);
    let request = MemoryRequest::new(5000);
    let mut memory = PageMemory::new(&request).expect("memory");
    memory.as_mut().fill(7);
    let owner = Arc::new(memory);
    let weak = Arc::downgrade(&owner);
    let source = cache.get(&owner).expect("registered");
    // The caller drops its mapping. The entry and its views keep the mapping alive.
    drop(owner);
    let copied = |source: Buffer| {
        let dst = cache.engine.allocate(5000).expect("memory");
        let (_, dst) = queue.copy(source, dst).expect("accepted").wait().expect("done");
        dst[..] == [7; 5000]
    };
    assert!(copied(source.clone()));
    cache.clear();
    assert!(copied(source), "a view outlives the entry");
    assert_eq!(weak.strong_count(), 0, "dropping the last view unmaps the memory");
    // Other memory gets its own registration, even if it has the same address.
    let owner = Arc::new(PageMemory::new(&request).expect("memory"));
    assert_eq!(cache.get(&owner).expect("registered")[..], [0; 5000]);
    assert_eq!((cache.counters().misses, cache.counters().hits), (2, 0));
}

fn doc_queue(cache: &RegistrationCache<ReferenceEngine>) -> crate::Queue {
    cache.engine.open_queue(&QueueOptions::new()).expect("a queue")
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_does_not_wait_for_a_thread_that_registers_memory_or_changes_the_entries() {
    let cache = cache(4, 1 << 20);
    let known: Bytes = [1, 2, 3].into();
    drop(cache.get(&known).expect("registered"));
    // The locks stay held, as by threads that the child does not have.
    std::mem::forget((cache.registering.lock(), cache.kept.lock()));
    assert!(test_support::in_child::in_child(|| {
        let new: Bytes = [4].into();
        for owner in [&known, &new] {
            let error = cache.get(owner).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        }
        assert_eq!((cache.remove(&known), cache.counters()), (0, RegistrationCacheCounters::default()));
        cache.clear();
        drop(cache);
        Arc::strong_count(&known) == 2
    }));
}
