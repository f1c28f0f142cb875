//! [`RegistrationCache`]: memory that is passed again is registered once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Buffer, register_read_only};
use crate::{DmaEngine, HostMemory, Result};

/// The bounds of a [`RegistrationCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistrationCacheOptions {
    /// The most registrations that are kept. 0, the default, keeps none.
    pub entries: usize,
    /// The most memory that is kept registered, in bytes. Default 256 MiB.
    pub bytes: usize,
}

impl Default for RegistrationCacheOptions {
    fn default() -> Self {
        Self { entries: 0, bytes: 256 << 20 }
    }
}

impl RegistrationCacheOptions {
    /// The defaults, which keep nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    crate::contract::setters::setters! {
        /// Sets the most registrations that are kept.
        with_entries(entries: usize);
        /// Sets the most memory that is kept registered, in bytes.
        with_bytes(bytes: usize);
    }
}

/// The counters of a [`RegistrationCache`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RegistrationCacheCounters {
    /// Calls of [`get`](RegistrationCache::get) that were answered by a kept registration.
    pub hits: u64,
    /// Calls that registered the memory.
    pub misses: u64,
    /// Registrations given up for others.
    pub evicted: u64,
    /// Registrations kept now.
    pub entries: usize,
    /// Memory kept registered now, in bytes.
    pub bytes: usize,
}

/// Registers memory that is to be read only, and keeps the registrations for callers who pass the same memory
/// again. Registering takes microseconds to milliseconds, because the system pins the memory.
///
/// - An entry keeps the memory's owner alive, so that no other memory gets its address. It is found by the
///   owner and by the address and length of its bytes. Pass the same [`Arc`]; an equal one is another owner.
/// - Beyond the [bounds](RegistrationCacheOptions), the least recently used entry that no view or transfer
///   uses is given up. If all are in use, new memory is registered for its caller alone.
/// - [`remove`](Self::remove) and [`clear`](Self::clear) let owners go. An owner that unmaps its memory while
///   it lives breaks the promise of `AsRef`, here as anywhere.
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
/// # #[cfg(feature = "conformance")]
/// # demo(Arc::new(dma_core::conformance::doc_engine())).unwrap();
/// ```
pub struct RegistrationCache<E> {
    engine: E,
    options: RegistrationCacheOptions,
    /// Held while one is registered.
    registering: Mutex<()>,
    kept: Mutex<Kept>,
}

/// The registrations.
#[derive(Default)]
struct Kept {
    entries: HashMap<Key, Entry>,
    /// Counts uses.
    clock: u64,
    counters: RegistrationCacheCounters,
}

/// The key of an entry. While the entry is there, its owner lives, and nothing else has these addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    owner: usize,
    addr: usize,
    len: usize,
}

struct Entry {
    buffer: Buffer,
    /// The time of its last use.
    used: u64,
}

/// An owner as the region keeps it.
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

impl Kept {
    fn hit(&mut self, key: &Key) -> Option<Buffer> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        self.counters.hits += 1;
        Some(entry.buffer.clone())
    }

    /// Keeps a registration, if there is room. Returns those that make room.
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
        self.entries.insert(key, Entry { buffer: buffer.clone(), used: self.clock });
        given_up
    }

    fn take(&mut self, key: &Key) -> Option<Buffer> {
        let entry = self.entries.remove(key)?;
        self.counters.bytes -= key.len;
        Some(entry.buffer)
    }
}

impl<E: DmaEngine> RegistrationCache<E> {
    /// Makes an empty one.
    #[must_use]
    pub fn new(engine: E, options: &RegistrationCacheOptions) -> Self {
        Self { engine, options: *options, registering: Mutex::default(), kept: Mutex::default() }
    }

    /// Returns the memory of `owner` as a buffer that can be a source: from an entry, or registered by
    /// [`register_read_only`](crate::DmaEngineExt::register_read_only), which may block, and which one
    /// thread does at a time.
    ///
    /// # Errors
    ///
    /// As [`register_read_only_memory`](crate::DmaEngineExt::register_read_only_memory).
    pub fn get<M>(&self, owner: &Arc<M>) -> Result<Buffer>
    where
        M: AsRef<[u8]> + Send + Sync + ?Sized + 'static,
    {
        let bytes = (**owner).as_ref();
        let key = Key::new(owner, bytes.as_ptr().addr(), bytes.len());
        if let Some(hit) = self.kept().hit(&key) {
            return Ok(hit);
        }
        let memory = HostMemory::from_read_only(SharedOwner(Arc::clone(owner)));
        // Asked again, an owner may have other bytes.
        let key = Key::new(owner, memory.as_ptr().addr().get(), memory.len());
        let (buffer, given_up) = {
            let _one_at_a_time = self.registering.lock().unwrap_or_else(PoisonError::into_inner);
            // Another thread may have registered it meanwhile, and some devices take memory only once.
            if let Some(hit) = self.kept().hit(&key) {
                return Ok(hit);
            }
            let buffer = register_read_only(&self.engine, memory)?;
            let given_up = self.kept().keep(key, &buffer, &self.options);
            (buffer, given_up)
        };
        // Without a lock, because destructors of owners may use the cache.
        drop(given_up);
        Ok(buffer)
    }

    /// Removes the entries of `owner`, which is let go as soon as no view or transfer uses its memory.
    /// Returns their number.
    pub fn remove<M: ?Sized>(&self, owner: &Arc<M>) -> usize {
        let owner = Arc::as_ptr(owner).addr();
        self.remove_if(|key| key.owner == owner)
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.remove_if(|_| true);
    }

    fn remove_if(&self, is_removed: impl Fn(&Key) -> bool) -> usize {
        let mut kept = self.kept();
        let keys: Vec<_> = kept.entries.keys().copied().filter(is_removed).collect();
        let removed: Vec<_> = keys.iter().filter_map(|key| kept.take(key)).collect();
        drop(kept);
        removed.len()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> RegistrationCacheCounters {
        let kept = self.kept();
        RegistrationCacheCounters { entries: kept.entries.len(), ..kept.counters }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
