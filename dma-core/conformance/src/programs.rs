//! A case: random programs that use memory of every origin. An oracle in plain memory computes the expected
//! bytes.

use std::ops::Range;
use std::sync::Arc;

use super::{COMPLETES, expect_all_completed, expect_arrived, expect_kind, patience, queue_of, sample};
use dma_core::{
    Buffer, BufferMut, BufferPool, Capabilities, DmaEngine, DmaEngineExt, ErrorKind, HostMemory,
    MemoryRequest, PageMemory, PoolOptions, Queue, RegistrationCache, RegistrationCacheOptions, Transfer,
};

/// A program has at most this number of buffers, this number of sources, and this number of operations in
/// flight.
const MAX_EACH: usize = 8;
/// Length of the longest buffer, in bytes.
const MAX_LEN: usize = 5000;
/// Up to this alignment, any step may register memory. Larger alignments need longer memory and more time, so
/// fewer steps register memory.
const SHORT_ALIGNMENT: usize = 4096;

/// After any sequence of copies, all bytes are correct, even if transfers and buffers are dropped early. The
/// memory comes from pools, the engine and the program. Read-only memory is registered directly or through a
/// cache. All memory is returned at the end.
pub fn random_programs_keep_all_bytes(engine: &dyn DmaEngine) {
    if !engine.info().capabilities.contains(Capabilities::ALLOCATE) {
        return;
    }
    for seed in 1..=4 {
        let mut program = Program::new(engine, seed);
        for _ in 0..100 {
            program.step();
        }
        program.end();
    }
}

/// A generator of pseudo-random numbers (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % n
    }
}

/// A copy of `expected` from a part of a source to the beginning of a buffer.
struct Flight {
    transfer: Transfer<(Buffer, BufferMut)>,
    expected: Vec<u8>,
    /// The rest of the buffer, and its bytes.
    rest: (BufferMut, Vec<u8>),
}

struct Program<'a> {
    engine: &'a dyn DmaEngine,
    random: Random,
    queue: Queue,
    pool: BufferPool,
    /// The pool for copies of plain bytes.
    copy_pool: BufferPool,
    cache: RegistrationCache<&'a dyn DmaEngine>,
    /// Memory that is passed to the cache repeatedly, and its bytes.
    owners: Vec<(Arc<PageMemory>, Vec<u8>)>,
    /// Buffers that no operation uses, and their bytes.
    buffers: Vec<(BufferMut, Vec<u8>)>,
    /// Memory to copy from, and its bytes.
    sources: Vec<(Buffer, Vec<u8>)>,
    flights: Vec<Flight>,
}

impl<'a> Program<'a> {
    fn new(engine: &'a dyn DmaEngine, seed: u64) -> Self {
        let pool = |classes: &[(usize, usize)]| {
            let options = PoolOptions::new();
            let options =
                classes.iter().fold(options, |options, (len, count)| options.with_class(*len, *count));
            BufferPool::new(engine, &options).expect("an engine that allocates has pools")
        };
        let mut program = Self {
            engine,
            random: Random(seed),
            queue: queue_of(engine, 4),
            pool: pool(&[(200, 2), (MAX_LEN, 3)]),
            copy_pool: pool(&[(1000, 4)]),
            // The cache has fewer entries than the program has owners.
            cache: RegistrationCache::new(engine, &RegistrationCacheOptions::new().with_entries(2)),
            owners: Vec::new(),
            buffers: Vec::new(),
            sources: Vec::new(),
            flights: Vec::new(),
        };
        if engine.info().capabilities.contains(Capabilities::REGISTER) {
            program.owners =
                (0..3).map(|_| program.read_only()).map(|(m, bytes)| (Arc::new(m), bytes)).collect();
        }
        program
    }

    fn len(&mut self) -> usize {
        let longest = [50, 200, MAX_LEN][self.random.below(3)];
        1 + self.random.below(longest)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        sample(self.random.below(1 << 20) as u64, len)
    }

    /// Returns memory that the engine can register, and its bytes.
    fn read_only(&mut self) -> (PageMemory, Vec<u8>) {
        let alignment = self.engine.info().limits.register_alignment.max(1);
        let len = self.len().next_multiple_of(alignment);
        let mut memory = PageMemory::new(&MemoryRequest::new(len).with_align(alignment)).expect("memory");
        let bytes = self.bytes(len);
        memory.as_mut().copy_from_slice(&bytes);
        (memory, bytes)
    }

    /// Returns whether this step registers memory.
    fn registers(&mut self) -> bool {
        let alignment = self.engine.info().limits.register_alignment;
        !self.owners.is_empty() && (alignment <= SHORT_ALIGNMENT || self.random.below(8) == 0)
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..3 => self.add_buffer(),
            3 => self.add_source(),
            4 if !self.buffers.is_empty() => self.freeze(),
            5 | 6 if !self.buffers.is_empty() => self.write(),
            7..12 if !self.buffers.is_empty() && !self.sources.is_empty() => self.copy(),
            12 | 13 if !self.flights.is_empty() => self.wait(),
            14 => self.let_go(),
            _ => _ = self.queue.poll(),
        }
        for (at, bytes) in self.buffers.iter().map(|(buffer, bytes)| (&buffer[..], bytes)) {
            expect_arrived(bytes, at, "a buffer that no copy writes");
        }
    }

    fn add_buffer(&mut self) {
        if self.buffers.len() >= MAX_EACH {
            return;
        }
        let len = self.len();
        let buffer = match self.random.below(3) {
            0 => match self.pool.try_get(len) {
                Ok(buffer) => buffer,
                Err(e) => return expect_kind(&e, ErrorKind::OutOfResources, "an exhausted pool"),
            },
            1 if self.registers() => {
                let memory = HostMemory::aligned(len, &self.engine.info().limits).expect("memory");
                self.engine.register(memory).expect("the program's memory is registered")
            }
            _ => self.engine.allocate(len).expect("an engine allocates memory"),
        };
        // A buffer of the pool still holds the bytes of its last user.
        let bytes = buffer.to_vec();
        self.buffers.push((buffer, bytes));
    }

    fn add_source(&mut self) {
        if self.sources.len() >= MAX_EACH || !self.registers() {
            return;
        }
        let source = if self.random.below(3) == 0 {
            let (memory, bytes) = self.read_only();
            (self.engine.register_read_only(memory).expect("read-only memory is registered"), bytes)
        } else {
            let (owner, bytes) = &self.owners[self.random.below(self.owners.len())];
            match self.cache.get(owner) {
                Ok(source) => (source, bytes.clone()),
                // All cache entries are in use, and the device refuses to register the same memory twice.
                Err(e) => {
                    return expect_kind(&e, ErrorKind::InUse, "memory that is already registered is refused");
                }
            }
        };
        self.sources.push(source);
    }

    fn freeze(&mut self) {
        let (buffer, bytes) = self.buffers.swap_remove(self.random.below(self.buffers.len()));
        if self.sources.len() < MAX_EACH {
            self.sources.push((buffer.freeze(), bytes));
        }
    }

    fn write(&mut self) {
        let at = self.random.below(self.buffers.len());
        let bytes = self.bytes(self.buffers[at].1.len());
        let buffer = &mut self.buffers[at].0;
        if self.queue.available() > 0 {
            self.queue.copy_bytes(&self.copy_pool, &bytes, buffer).expect(COMPLETES);
        } else {
            buffer.copy_from_slice(&bytes);
        }
        self.buffers[at].1 = bytes;
    }

    fn copy(&mut self) {
        let (src, bytes) = &self.sources[self.random.below(self.sources.len())];
        let (mut dst, mut after) = self.buffers.swap_remove(self.random.below(self.buffers.len()));
        let len = 1 + self.random.below(bytes.len().min(after.len()));
        let at = self.random.below(bytes.len() - len + 1);
        let part: Range<usize> = at..at + len;
        let (src, expected) = (src.slice(part.clone()), bytes[part].to_vec());
        let rest = (dst.split_off(len), after.split_off(len));
        match self.queue.copy(src, dst) {
            Ok(transfer) => self.flights.push(Flight { transfer, expected, rest }),
            Err(e) => {
                expect_kind(e.error(), ErrorKind::QueueFull, "a queue without room");
                let (_, operands) = e.into_parts();
                let (_, dst) = operands.expect("a full queue returns the operands");
                self.land(dst, after, rest);
                self.wait();
            }
        }
    }

    /// Joins the two parts of a buffer again after a copy, and checks the bytes.
    fn land(&mut self, mut dst: BufferMut, mut bytes: Vec<u8>, rest: (BufferMut, Vec<u8>)) {
        dst.unsplit(rest.0).expect("the rest was split off at this position");
        bytes.extend(rest.1);
        self.buffers.push((dst, bytes));
    }

    fn wait(&mut self) {
        if self.flights.is_empty() {
            // Dropped transfers may fill the queue.
            self.queue.poll();
            return;
        }
        let Flight { transfer, expected, rest } =
            self.flights.swap_remove(self.random.below(self.flights.len()));
        let (_, dst) = transfer.wait().expect(COMPLETES);
        expect_arrived(&expected, &dst, "a copy of a random program");
        self.land(dst, expected, rest);
    }

    /// Drops a buffer or a source. Its memory returns to the pool, the engine or the program.
    fn let_go(&mut self) {
        match self.random.below(3) {
            0 if !self.buffers.is_empty() => {
                drop(self.buffers.swap_remove(self.random.below(self.buffers.len())));
            }
            1 if !self.flights.is_empty() => {
                drop(self.flights.swap_remove(self.random.below(self.flights.len())));
            }
            _ if !self.sources.is_empty() => {
                let (source, bytes) = self.sources.swap_remove(self.random.below(self.sources.len()));
                expect_arrived(&bytes, &source, "the bytes of memory that is only a source");
            }
            _ => {}
        }
    }

    fn end(mut self) {
        while !self.flights.is_empty() {
            self.wait();
        }
        for (source, bytes) in self.sources.drain(..) {
            expect_arrived(&bytes, &source, "the bytes of memory that is only a source");
        }
        self.buffers.clear();
        let counters = self.queue.close(patience());
        expect_all_completed(counters, counters.submitted, "after a random program");
        let in_use = self.pool.classes().map(|class| class.in_use).sum::<usize>();
        assert_eq!(in_use, 0, "all buffers have returned to the pool");
        self.cache.clear();
        let users: Vec<usize> = self.owners.iter().map(|(owner, _)| Arc::strong_count(owner)).collect();
        assert!(users.iter().all(|users| *users == 1), "a cleared cache holds no memory: {users:?}");
    }
}
