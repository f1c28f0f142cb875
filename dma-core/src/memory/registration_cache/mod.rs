//! [`RegistrationCache`]: registers memory once and reuses the registration.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use dma_process::ProcessLock;

use super::{Buffer, Region, register_read_only};
use crate::{DmaEngine, Error, ErrorKind, HostMemory, Result, guarded, with_deferred_log};

/// The limits of a [`RegistrationCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationCacheOptions {
    /// The maximum number of registrations that are kept. 0, the default, keeps none.
    pub entries: usize,
    /// The maximum amount of memory that is kept registered, in bytes. Default: 256 MiB.
    pub bytes: usize,
}

impl Default for RegistrationCacheOptions {
    fn default() -> Self {
        Self { entries: 0, bytes: 256 << 20 }
    }
}

impl RegistrationCacheOptions {
    /// Returns the defaults, which keep no registration.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the maximum number of registrations that are kept.
        with_entries(entries: usize);
        /// Sets the maximum amount of memory that is kept registered, in bytes.
        with_bytes(bytes: usize);
    }
}

/// The counters of a [`RegistrationCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RegistrationCacheCounters {
    /// Calls of [`get`](RegistrationCache::get) that found a kept registration.
    pub hits: u64,
    /// Calls that registered the memory.
    pub misses: u64,
    /// Registrations that were evicted to make room for others.
    pub evicted: u64,
    /// Registrations that are currently kept.
    pub entries: usize,
    /// Memory that is currently kept registered, in bytes.
    pub bytes: usize,
}

/// Registers read-only memory, and keeps the registrations, so that registering the same memory again is
/// fast. A registration takes microseconds to milliseconds, because the system pins the memory.
///
/// - The key of an entry is the owner, with the address and length of its bytes. To use an entry again, pass
///   a clone of the same [`Arc`]: an equal value in another `Arc` is another owner. An entry keeps the owner
///   alive, so that no other memory gets its address.
/// - At its [limits](RegistrationCacheOptions), the cache evicts the least recently used entry that no view
///   or transfer uses. If all entries are in use, it registers new memory without keeping the registration.
/// - [`remove`](Self::remove) and [`clear`](Self::clear) release owners. An owner must not unmap its memory
///   while the cache keeps it.
///
/// ```
/// # use std::sync::Arc;
/// # use dma_core::{DmaEngineExt, QueueOptions, RegistrationCache, RegistrationCacheOptions};
/// # fn demo(engine: Arc<dyn dma_core::DmaEngine>) -> dma_core::Result<()> {
/// let options = RegistrationCacheOptions::new().with_entries(64);
/// let cache = RegistrationCache::new(Arc::clone(&engine), &options);
/// let queue = engine.open_queue(&QueueOptions::new())?;
/// let message: Arc<[u8]> = vec![7; 5000].into();
/// for _ in 0..10 {
///     queue.copy(cache.get(&message)?, engine.allocate(5000)?)?.wait()?;
/// }
/// assert_eq!((cache.counters().misses, cache.counters().hits), (1, 9));
/// # Ok(()) }
/// # demo(Arc::new(dma_conformance::doc_engine())).unwrap();
/// ```
pub struct RegistrationCache<E> {
    engine: E,
    options: RegistrationCacheOptions,
    /// This lock is held during a registration.
    registering: ProcessLock<()>,
    kept: ProcessLock<CacheState>,
}

/// The kept registrations.
#[derive(Default)]
struct CacheState {
    entries: HashMap<Key, CachedRegistration>,
    /// A counter that each use of an entry increments.
    clock: u64,
    counters: RegistrationCacheCounters,
}

/// The key of an entry. An entry keeps its owner alive, so no other memory has these addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: usize,
    addr: usize,
    len: usize,
}

struct CachedRegistration {
    buffer: Buffer,
    /// The value of `clock` at the last use.
    used: u64,
}

/// The wrapper of the owner that the region keeps.
struct SharedOwner<M: ?Sized>(Arc<M>);

impl<M: AsRef<[u8]> + ?Sized> AsRef<[u8]> for SharedOwner<M> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

impl Key {
    fn new<M: ?Sized>(owner: &Arc<M>, addr: usize, len: usize) -> Self {
        Self { owner: Arc::as_ptr(owner).addr(), addr, len }
    }
}

impl CacheState {
    /// Returns the kept registration with this key, if any, and marks it as used.
    fn hit(&mut self, key: &Key) -> Option<Buffer> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        self.counters.hits += 1;
        Some(entry.buffer.clone())
    }

    /// Keeps a registration if there is room. Returns the evicted registrations.
    fn keep(&mut self, key: Key, buffer: &Buffer, options: &RegistrationCacheOptions) -> Vec<Buffer> {
        self.counters.misses += 1;
        let mut given_up = Vec::new();
        if options.entries == 0 || key.len > options.bytes || self.entries.contains_key(&key) {
            return given_up;
        }
        while self.entries.len() >= options.entries || self.counters.bytes > options.bytes - key.len {
            let idle = self.entries.iter().filter(|(_, entry)| entry.buffer.is_last());
            let Some((&oldest, _)) = idle.min_by_key(|(_, entry)| entry.used) else { return given_up };
            self.counters.evicted += 1;
            given_up.extend(self.take(&oldest));
        }
        self.counters.bytes += key.len;
        self.entries.insert(key, CachedRegistration { buffer: buffer.clone(), used: self.clock });
        given_up
    }

    /// Removes an entry and returns its registration.
    fn take(&mut self, key: &Key) -> Option<Buffer> {
        let entry = self.entries.remove(key)?;
        self.counters.bytes -= key.len;
        Some(entry.buffer)
    }
}

/// A registration that the cache has given up: the memory if it was deregistered, or the region if a view or
/// transfer still uses it.
type GivenUp = Result<Option<HostMemory>, Region>;

/// Deregisters memory that nothing else uses. The caller holds the lock of registrations, because some
/// devices accept memory only once, and another thread may register the same memory again.
fn deregister(buffers: Vec<Buffer>) -> Vec<GivenUp> {
    buffers.into_iter().map(|buffer| buffer.0.region.deregister().map_err(|(region, _)| region)).collect()
}

/// Drops the owners of memory. The caller holds no lock, because destructors of owners may use the cache. A
/// destructor may panic, and belongs to another user than the caller.
fn release(given_up: Vec<GivenUp>) {
    for memory in given_up {
        guarded("the destructor of an owner of memory", || drop(memory));
    }
}

impl<E: DmaEngine> RegistrationCache<E> {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(engine: E, options: &RegistrationCacheOptions) -> Self {
        Self { engine, options: *options, registering: ProcessLock::default(), kept: ProcessLock::default() }
    }

    /// Returns the memory of `owner` as a buffer that can be a source. If no entry exists, registers the
    /// memory as [`register_read_only`](crate::DmaEngineExt::register_read_only) does. A registration may
    /// block, and only one runs at a time.
    ///
    /// # Errors
    ///
    /// See [`register_read_only_memory`](crate::DmaEngineExt::register_read_only_memory). `Unsupported` in a
    /// process that was forked after the cache was made. `InUse` on a device that accepts memory only once,
    /// if a view or transfer still uses an earlier registration that the cache does not keep.
    pub fn get<M>(&self, owner: &Arc<M>) -> Result<Buffer>
    where
        M: AsRef<[u8]> + Send + Sync + ?Sized + 'static,
    {
        let bytes = (**owner).as_ref();
        let key = Key::new(owner, bytes.as_ptr().addr(), bytes.len());
        if let Some(hit) = self.kept.lock().ok_or_else(forked)?.hit(&key) {
            return Ok(hit);
        }
        let memory = HostMemory::from_read_only(SharedOwner(Arc::clone(owner)));
        // Make the key again, because `from_read_only` calls `as_ref` a second time, which may have returned
        // other bytes.
        let key = Key::new(owner, memory.as_ptr().addr().get(), memory.len());
        // A log subscriber may use the cache, so it runs after the lock is released.
        let (buffer, given_up) = with_deferred_log(|| -> Result<_> {
            let _one_at_a_time = self.registering.lock().ok_or_else(forked)?;
            // Another thread may have registered the memory in the meantime, and some devices accept memory
            // only once.
            if let Some(hit) = self.kept.lock().ok_or_else(forked)?.hit(&key) {
                return Ok((hit, Vec::new()));
            }
            let buffer = register_read_only(&self.engine, memory)?;
            let given_up = self.kept.lock().ok_or_else(forked)?.keep(key, &buffer, &self.options);
            Ok((buffer, deregister(given_up)))
        })?;
        release(given_up);
        Ok(buffer)
    }

    /// Removes the entries of `owner` and returns their number. Blocks while another thread registers memory.
    /// The owner is released as soon as no view or transfer uses its memory. In a process that was forked
    /// after the cache was made, removes nothing.
    pub fn remove<M: ?Sized>(&self, owner: &Arc<M>) -> usize {
        let owner = Arc::as_ptr(owner).addr();
        self.remove_if(|key| key.owner == owner)
    }

    /// Removes all entries. Blocks while another thread registers memory. In a process that was forked after
    /// the cache was made, removes nothing.
    pub fn clear(&self) {
        self.remove_if(|_| true);
    }

    /// Removes the entries whose key meets the condition, and returns their number.
    fn remove_if(&self, is_removed: impl Fn(&Key) -> bool) -> usize {
        let removed = with_deferred_log(|| {
            let _no_registration = self.registering.lock()?;
            let mut kept = self.kept.lock()?;
            let keys: Vec<_> = kept.entries.keys().copied().filter(is_removed).collect();
            let removed = keys.iter().filter_map(|key| kept.take(key)).collect();
            drop(kept);
            Some(deregister(removed))
        });
        let Some(removed) = removed else { return 0 };
        let number = removed.len();
        release(removed);
        number
    }

    /// Returns the counters. They are 0 in a process that was forked after the cache was made.
    #[must_use]
    pub fn counters(&self) -> RegistrationCacheCounters {
        let count =
            |kept: &CacheState| RegistrationCacheCounters { entries: kept.entries.len(), ..kept.counters };
        self.kept.lock().map_or_else(RegistrationCacheCounters::default, |kept| count(&kept))
    }
}

#[cold]
fn forked() -> Error {
    let message = "the registration cache was made before this process was forked";
    Error::new(ErrorKind::Unsupported, message)
        .with_hint("open the engine and make the cache in the forked process")
}

impl<E: DmaEngine> fmt::Debug for RegistrationCache<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrationCache")
            .field("engine", &self.engine)
            .field("options", &self.options)
            .field("counters", &self.counters())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
