//! The memory that operations use: its contents, and their verification.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dma::contract::Segment;
use dma::{
    Access, DmaEngine, DmaEngineExt, Error, ErrorKind, Export, MemoryRequest, Place, Result, SharedQueue,
    SharedQueueOptions, Window,
};

use super::layout::Offsets;
use crate::interrupt;
use crate::peer::Process;
use crate::plan::{Address, Direction};

/// The source and the destination memory of one engine. The CPU only copies to and from this memory, because
/// a device may access it at any time, or because only the device can access it.
#[derive(Clone, Debug)]
pub struct Memory {
    src: MemorySide,
    dst: MemorySide,
}

#[derive(Clone, Debug)]
struct MemorySide {
    device: Window,
    /// The CPU's view: the same memory, or the peer's view of it.
    cpu: CpuView,
    /// Keeps the memory exported, if it is a peer's.
    _export: Option<Arc<Export>>,
}

#[derive(Clone, Debug)]
enum CpuView {
    Local(Window),
    /// A device's own memory: the engine copies its bytes to and from host memory.
    Device(Arc<DeviceView>),
    /// Memory of another process, which reads and writes the bytes on request.
    Remote(Arc<Process>),
}

/// Memory that the CPU cannot access, and host memory of the same engine through which its bytes are copied.
#[derive(Debug)]
struct DeviceView {
    queue: SharedQueue,
    memory: Window,
    /// The host memory, of [`MAX_COMPARED_CHUNK`] bytes.
    staging: Mutex<Window>,
}

impl DeviceView {
    fn new(engine: &Arc<dyn DmaEngine>, memory: Window) -> Result<Self> {
        let staging = Mutex::new(engine.allocate_window(&MemoryRequest::new(MAX_COMPARED_CHUNK))?);
        Ok(Self { queue: engine.open_shared_queue(&SharedQueueOptions::new())?, memory, staging })
    }

    fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        let staging = self.staging();
        for (at, part) in (at..).step_by(MAX_COMPARED_CHUNK).zip(bytes.chunks_mut(MAX_COMPARED_CHUNK)) {
            self.copy(self.memory.slice(at..at + part.len()), staging.slice(..part.len()))?;
            staging.read_at(0, part)?;
        }
        Ok(())
    }

    fn write_at(&self, at: usize, bytes: &[u8]) -> Result<()> {
        let staging = self.staging();
        for (at, part) in (at..).step_by(MAX_COMPARED_CHUNK).zip(bytes.chunks(MAX_COMPARED_CHUNK)) {
            staging.write_at(0, part)?;
            self.copy(staging.slice(..part.len()), self.memory.slice(at..at + part.len()))?;
        }
        Ok(())
    }

    /// Locks the host memory. A poisoned lock can be used: even a thread that panics waits for its copy
    /// first, so no copy is in flight.
    fn staging(&self) -> MutexGuard<'_, Window> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self, src: Window, dst: Window) -> Result<()> {
        self.queue.copy(src, dst)?.wait()?;
        Ok(())
    }
}

impl CpuView {
    fn read_at(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        match self {
            Self::Local(window) => window.read_at(at, bytes),
            Self::Device(view) => view.read_at(at, bytes),
            Self::Remote(process) => process.read_at(at, bytes),
        }
    }

    fn write_at(&self, at: usize, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Local(window) => window.write_at(at, bytes),
            Self::Device(view) => view.write_at(at, bytes),
            Self::Remote(process) => process.write_at(at, bytes),
        }
    }
}

/// The owner of remote memory.
#[derive(Clone, Debug)]
pub enum Owner {
    /// Another engine in this process.
    Engine(Arc<dyn DmaEngine>),
    /// Another process, which opens an engine by this name.
    Process(String),
    /// A `dma-bench serve`.
    Host(Address),
}

/// Returns the eight expected bytes at offset `at` of every source. They differ at each offset.
#[inline]
fn word(at: usize) -> u64 {
    // This is the final mixing step of splitmix64.
    let mut z = (at as u64 / 8).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// Fills `bytes` with the expected bytes at offset `at` of every source.
fn expected(at: usize, bytes: &mut [u8]) {
    let skip = at % 8;
    let (head, rest) = bytes.split_at_mut(if skip == 0 { 0 } else { (8 - skip).min(bytes.len()) });
    head.copy_from_slice(&word(at).to_le_bytes()[skip..skip + head.len()]);
    let mut at = at + head.len();
    let (words, tail) = rest.as_chunks_mut();
    for bytes in words {
        *bytes = word(at).to_le_bytes();
        at += 8;
    }
    tail.copy_from_slice(&word(at).to_le_bytes()[..tail.len()]);
}

/// Inverts all bytes, so that each of them is wrong. By words, which matters without optimisation.
fn invert(bytes: &mut [u8]) {
    let (words, tail) = bytes.as_chunks_mut();
    for bytes in words {
        *bytes = (!u64::from_ne_bytes(*bytes)).to_ne_bytes();
    }
    for byte in tail {
        *byte = !*byte;
    }
}

/// The pattern of fills.
pub const PATTERN: [u8; 8] = [0x1B, 0xAD, 0xF0, 0x0D, 0x5A, 0xC3, 0x3C, 0x96];

/// Memory for comparisons repeats with this period, so that buffers in different pages are equal.
const PAGE: usize = 4096;

/// Maximum number of bytes that are compared at once.
const MAX_COMPARED_CHUNK: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Bytes from the start of the range.
    pub offset: usize,
    pub expected: u8,
    pub found: u8,
}

impl Memory {
    /// Allocates and fills a source and a destination of `len` bytes each, in the places that the direction
    /// names. For `push` and `pull`, one side belongs to `peer`. If `alike` is true, as for comparisons, the
    /// destination has the same bytes as the source, even if it is shifted by whole pages.
    pub fn new(
        engine: &Arc<dyn DmaEngine>,
        peer: Option<&Owner>,
        len: usize,
        direction: Direction,
        alike: bool,
    ) -> Result<Self> {
        Self::on_nodes(None, engine, peer, len, direction, alike)
    }

    /// Does the same as [`new`](Self::new), with host memory on the NUMA nodes of sources and of
    /// destinations.
    pub(crate) fn on_nodes(
        nodes: Option<(u32, u32)>,
        engine: &Arc<dyn DmaEngine>,
        peer: Option<&Owner>,
        len: usize,
        direction: Direction,
        alike: bool,
    ) -> Result<Self> {
        let side = |remote: bool, place, node| match place {
            Place::Device => MemorySide::on_device(engine, len),
            _ if remote => MemorySide::remote(engine, peer, len, node),
            _ => MemorySide::local(engine, len, node),
        };
        let (src_node, dst_node) = match direction {
            Direction::LocalAndBack => nodes.map(|(src, dst)| (dst, src)),
            _ => nodes,
        }
        .unzip();
        let (from, to) = direction.places();
        interrupt::check()?;
        let src = side(direction == Direction::Pull, from, src_node)?;
        interrupt::check()?;
        let memory = Self { src, dst: side(direction == Direction::Push, to, dst_node)? };
        let mut bytes = vec![0; MAX_COMPARED_CHUNK];
        for at in (0..len).step_by(MAX_COMPARED_CHUNK) {
            interrupt::check()?;
            let n = MAX_COMPARED_CHUNK.min(len - at);
            if alike {
                bytes.chunks_mut(PAGE).for_each(|page| expected(0, page));
            } else {
                expected(at, &mut bytes[..n]);
            }
            memory.src.cpu.write_at(at, &bytes[..n])?;
            // Writing makes the pages present, so that copies cause no page faults. Unless the sides are
            // alike, all bytes are wrong, so that a missing copy is detected.
            if !alike {
                invert(&mut bytes[..n]);
            }
            memory.dst.cpu.write_at(at, &bytes[..n])?;
        }
        Ok(memory)
    }

    /// Returns the segment of `len` bytes at offset `at` of the source.
    pub fn src(&self, at: usize, len: usize) -> Segment {
        self.src.segment(at, len)
    }

    /// Returns the segment of `len` bytes at offset `at` of the destination.
    pub fn dst(&self, at: usize, len: usize) -> Segment {
        self.dst.segment(at, len)
    }

    /// Makes each of `len` bytes of the destination wrong before a copy or fill.
    pub fn corrupt(&self, at: Offsets, len: usize, fill: bool) -> Result<()> {
        self.each_chunk(at, len, fill, |offset, right| {
            invert(right);
            self.dst.cpu.write_at(offset, right)?;
            Ok(None)
        })
        .map(|_: Option<Difference>| ())
    }

    /// Compares `len` bytes of the destination with those expected after a copy or a fill. Returns the first
    /// difference.
    pub fn verify(&self, at: Offsets, len: usize, fill: bool) -> Result<Option<Difference>> {
        let mut found = vec![0; MAX_COMPARED_CHUNK.min(len)];
        self.each_chunk(at, len, fill, |offset, right| {
            let found = &mut found[..right.len()];
            self.dst.cpu.read_at(offset, found)?;
            if found == right {
                return Ok(None);
            }
            let first = found.iter().zip(right.iter()).position(|(a, b)| a != b);
            Ok(first.map(|first| Difference {
                offset: offset - at.dst + first,
                expected: right[first],
                found: found[first],
            }))
        })
    }

    /// Inverts the byte at offset `at` of the destination.
    pub fn invert(&self, at: usize) -> Result<()> {
        let mut byte = [0];
        self.dst.cpu.read_at(at, &mut byte)?;
        self.dst.cpu.write_at(at, &[!byte[0]])
    }

    /// Returns the CRC-32C of `len` bytes at offset `at` of every source.
    pub fn crc32c(at: usize, len: usize) -> u32 {
        let mut bytes = vec![0; MAX_COMPARED_CHUNK.min(len)];
        (0..len).step_by(MAX_COMPARED_CHUNK).fold(0, |crc, from| {
            let bytes = &mut bytes[..MAX_COMPARED_CHUNK.min(len - from)];
            expected(at + from, bytes);
            crc32c::crc32c_append(crc, bytes)
        })
    }

    fn each_chunk(
        &self,
        at: Offsets,
        len: usize,
        fill: bool,
        mut f: impl FnMut(usize, &mut [u8]) -> Result<Option<Difference>>,
    ) -> Result<Option<Difference>> {
        let mut right = vec![0; MAX_COMPARED_CHUNK.min(len)];
        for from in (0..len).step_by(MAX_COMPARED_CHUNK) {
            let right = &mut right[..MAX_COMPARED_CHUNK.min(len - from)];
            if fill {
                let (words, tail) = right.as_chunks_mut();
                words.fill(PATTERN);
                tail.copy_from_slice(&PATTERN[..tail.len()]);
            } else {
                expected(at.src + from, right);
            }
            if let Some(difference) = f(at.dst + from, right)? {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }
}

impl MemorySide {
    fn local(engine: &Arc<dyn DmaEngine>, len: usize, node: Option<u32>) -> Result<Self> {
        let mut request = MemoryRequest::new(len).with_node(node);
        request.huge_pages = true;
        let window = engine.allocate_window(&request)?;
        if !window.region().is_cpu_visible() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the CPU cannot reach this engine's memory to verify it",
            ));
        }
        Ok(Self { device: window.clone(), cpu: CpuView::Local(window), _export: None })
    }

    fn on_device(engine: &Arc<dyn DmaEngine>, len: usize) -> Result<Self> {
        let device = engine.allocate_device(len)?;
        let view = DeviceView::new(engine, device.clone())?;
        Ok(Self { device, cpu: CpuView::Device(Arc::new(view)), _export: None })
    }

    fn remote(
        engine: &Arc<dyn DmaEngine>,
        peer: Option<&Owner>,
        len: usize,
        node: Option<u32>,
    ) -> Result<Self> {
        match peer {
            None => Err(Error::new(ErrorKind::Unsupported, "the campaign has no peer to copy from or to")),
            Some(Owner::Engine(peer)) => {
                let request = MemoryRequest::new(len).exportable(Access::all()).with_node(node);
                let cpu = peer.allocate_window(&request)?;
                let export = cpu.export(Access::all())?;
                let device = engine.import(export.descriptor())?;
                Ok(Self { device, cpu: CpuView::Local(cpu), _export: Some(Arc::new(export)) })
            }
            Some(Owner::Process(name)) => Self::of(engine, Process::start(name, node)?, len),
            Some(Owner::Host(address)) => Self::of(engine, Process::connect(address)?, len),
        }
    }

    fn of(engine: &Arc<dyn DmaEngine>, process: Process, len: usize) -> Result<Self> {
        let device = engine.import(&process.open(len)?)?;
        Ok(Self { device, cpu: CpuView::Remote(Arc::new(process)), _export: None })
    }

    fn segment(&self, at: usize, len: usize) -> Segment {
        self.device.region().as_raw().info().segment(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(at: usize) -> Offsets {
        Offsets { src: at, dst: at }
    }

    fn memory(len: usize) -> Memory {
        Memory::new(&dma::open("cpu").unwrap(), None, len, Direction::Local, false).unwrap()
    }

    #[test]
    fn expected_bytes_do_not_depend_on_the_offset_of_the_check() {
        let mut whole = vec![0; 100];
        expected(0, &mut whole);
        for at in 0..40 {
            for len in 0..40 {
                let mut part = vec![0; len];
                expected(at, &mut part);
                assert_eq!(part, whole[at..at + len], "{at} {len}");
            }
        }
    }

    #[test]
    fn memory_for_comparisons_is_alike_at_the_distance_of_pages() {
        let memory = Memory::new(&dma::open("cpu").unwrap(), None, 200_000, Direction::Local, true).unwrap();
        let bytes = |side: &MemorySide, at: usize| {
            let mut bytes = vec![0; 100_000];
            side.cpu.read_at(at, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes(&memory.src, 77), bytes(&memory.dst, 77 + 12 * PAGE));
        assert_ne!(bytes(&memory.src, 77), bytes(&memory.dst, 78));
        memory.invert(50_000).unwrap();
        assert_ne!(bytes(&memory.src, 77), bytes(&memory.dst, 77));
        memory.invert(50_000).unwrap();
        assert_eq!(bytes(&memory.src, 77), bytes(&memory.dst, 77));
    }

    #[test]
    fn the_crc_is_that_of_the_source() {
        let memory = memory(300_000);
        let mut bytes = vec![0; 200_001];
        memory.src.cpu.read_at(1003, &mut bytes).unwrap();
        assert_eq!(Memory::crc32c(1003, bytes.len()), crc32c::crc32c(&bytes));
    }

    fn make_right(memory: &Memory) {
        let mut bytes = vec![0; memory.dst.device.len()];
        expected(0, &mut bytes);
        memory.dst.cpu.write_at(0, &bytes).unwrap();
    }

    #[test]
    fn a_single_wrong_byte_is_found_and_named() {
        let memory = memory(200_000);
        assert_eq!(
            memory.verify(same(3), 1, false).unwrap().map(|d| d.offset),
            Some(0),
            "the destination is wrong at first"
        );
        make_right(&memory);
        assert_eq!(memory.verify(same(3), 150_000, false).unwrap(), None);
        let mut byte = [0];
        memory.dst.cpu.read_at(100_003, &mut byte).unwrap();
        memory.dst.cpu.write_at(100_003, &[byte[0] ^ 4]).unwrap();
        let difference = memory.verify(same(3), 150_000, false).unwrap().unwrap();
        assert_eq!(difference, Difference { offset: 100_000, expected: byte[0], found: byte[0] ^ 4 });
    }

    #[test]
    fn corrupted_memory_is_wrong_in_every_byte() {
        let memory = memory(1000);
        make_right(&memory);
        memory.corrupt(same(10), 900, false).unwrap();
        for at in 10..910 {
            assert_eq!(memory.verify(same(at), 1, false).unwrap().map(|d| d.offset), Some(0));
        }
        assert_eq!(memory.verify(same(0), 10, false).unwrap(), None);
        memory.corrupt(same(0), 100, true).unwrap();
        assert!(memory.verify(same(0), 100, true).unwrap().is_some());
    }

    #[test]
    fn a_destination_expects_the_bytes_of_its_source() {
        let memory = memory(1000);
        let mut bytes = vec![0; 300];
        memory.src.cpu.read_at(100, &mut bytes).unwrap();
        memory.dst.cpu.write_at(513, &bytes).unwrap();
        let at = Offsets { src: 100, dst: 513 };
        assert_eq!(memory.verify(at, 300, false).unwrap(), None);
        assert!(memory.verify(same(100), 300, false).unwrap().is_some());
        assert!(memory.verify(same(513), 300, false).unwrap().is_some());
        memory.dst.cpu.write_at(600, &[!bytes[87]]).unwrap();
        let difference = Difference { offset: 87, expected: bytes[87], found: !bytes[87] };
        assert_eq!(memory.verify(at, 300, false).unwrap(), Some(difference));
        memory.corrupt(at, 300, false).unwrap();
        for i in 0..300 {
            let at = at.after(i);
            assert_eq!(memory.verify(at, 1, false).unwrap().map(|d| d.offset), Some(0), "{i}");
        }
    }

    #[test]
    fn memory_of_a_device_is_reached_through_the_engine() {
        let engine = dma::open("sim:device_memory=1M").unwrap();
        for direction in [Direction::ToDevice, Direction::FromDevice, Direction::OnDevice] {
            let memory = Memory::new(&engine, None, 200_000, direction, false).unwrap();
            let visible = [&memory.src, &memory.dst].map(|side| side.device.region().is_cpu_visible());
            assert_eq!(visible, [direction == Direction::ToDevice, direction == Direction::FromDevice]);
            let queue = engine.open_queue(&dma::QueueOptions::new()).unwrap();
            let all = [&memory.src, &memory.dst].map(|side| side.device.slice(..150_000));
            assert_eq!(memory.verify(same(0), 1, false).unwrap().map(|d| d.offset), Some(0), "{direction}");
            let [src, dst] = all;
            queue.copy(src, dst).unwrap().wait().unwrap();
            assert_eq!(memory.verify(same(0), 150_000, false).unwrap(), None, "{direction}");
            memory.invert(100_003).unwrap();
            let difference = memory.verify(same(3), 140_000, false).unwrap().unwrap();
            assert_eq!(difference.offset, 100_000, "{direction}");
            memory.corrupt(same(0), 150_000, false).unwrap();
            assert_eq!(memory.verify(same(0), 150_000, false).unwrap().map(|d| d.offset), Some(0));
        }
        assert!(Memory::new(&dma::open("cpu").unwrap(), None, 64, Direction::OnDevice, false).is_err());
    }

    #[test]
    fn memory_of_a_peer_is_reached_through_the_peer() {
        let (engine, peer) = (dma::open("sim").unwrap(), Owner::Engine(dma::open("sim").unwrap()));
        for direction in [Direction::Push, Direction::Pull] {
            let memory = Memory::new(&engine, Some(&peer), 4096, direction, false).unwrap();
            make_right(&memory);
            assert_eq!(memory.verify(same(0), 4096, false).unwrap(), None);
        }
        assert!(Memory::new(&engine, None, 64, Direction::Push, false).is_err());
    }
}
