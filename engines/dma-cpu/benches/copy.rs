//! Compares kernels and the tuner with glibc's `memcpy`, by size, with data inside and outside the cache.
//!
//! `cargo bench -p dma-cpu --bench copy` prints Criterion's figures and then tables of its own. In each round
//! of a table, all contenders run one after the other, because on a shared machine only such ratios are
//! meaningful. `-- --table` prints only the tables, `-- --hot` only the table of cached data. `memcpy tuned`
//! is a second process with `GLIBC_TUNABLES=glibc.cpu.x86_non_temporal_threshold=65536`, which runs in every
//! round.

#![expect(unsafe_code, reason = "copies between raw addresses")]

mod support;

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use dma_core::CacheHint;
use dma_cpu::{CopyTuner, Kernel};
use support::{Memory, Pairs, compare, size_name};

/// Number of bytes on each side over which cold copies cycle.
const COLD_SPAN: usize = 1 << 30;
const COLD_SIZES: [usize; 11] = [
    4 << 10,
    8 << 10,
    16 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
    32 << 20,
    64 << 20,
];
const HOT_SIZES: [usize; 15] = [
    64,
    512,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    1 << 20,
    2 << 20,
    4 << 20,
    8 << 20,
    16 << 20,
    64 << 20,
];
const ROUNDS: usize = 15;

fn main() {
    if std::env::args().any(|arg| arg == "--tuned-child") {
        return tuned_child();
    }
    let (src, dst) = (Memory::new(COLD_SPAN, 1), Memory::new(COLD_SPAN, 2));
    if std::env::args().any(|arg| arg == "--hot") {
        return hot_table(src, dst);
    }
    if !std::env::args().any(|arg| arg == "--table") {
        criterion(src, dst);
    }
    if std::env::args().any(|arg| arg == "--test") {
        return; // under `cargo test --benches` the program only has to run
    }
    cold_table(src, dst);
    hot_table(src, dst);
    behind_table(src, dst);
}

/// # Safety
///
/// See [`Kernel::copy`].
unsafe fn memcpy(dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller ensures access to both ranges, and that they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Makes all pairs that the memory has room for, in an order that prefetchers cannot follow.
fn scattered_pairs(src: Memory, dst: Memory, len: usize) -> Pairs {
    let mut pairs = Pairs::new(src, dst, len, usize::MAX);
    pairs.step = (0x9e37_79b9 % pairs.slots()).max(1);
    while gcd(pairs.step, pairs.slots()) != 1 {
        pairs.step += 1;
    }
    pairs
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Runs `copy` on the next `count` pairs. Returns nanoseconds of CPU time.
#[inline]
fn time(pairs: &mut Pairs, count: usize, mut copy: impl FnMut(*mut u8, *const u8, usize)) -> f64 {
    pairs.cpu_time(|pairs| {
        let len = black_box(pairs.len);
        for _ in 0..count {
            let (dst, src) = pairs.next();
            copy(dst, src, len);
        }
    })
}

fn criterion(src: Memory, dst: Memory) {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(10)
        .configure_from_args();
    for (group, sizes, slots) in [("hot", &HOT_SIZES[..10], 1), ("cold", &COLD_SIZES[3..], usize::MAX)] {
        let mut group = criterion.benchmark_group(group);
        for &len in sizes {
            group.throughput(Throughput::Bytes(len as u64));
            for kernel in Kernel::all() {
                let mut pairs = Pairs::new(src, dst, len, slots);
                group.bench_function(BenchmarkId::new(kernel.name(), size_name(len)), |bencher| {
                    bencher.iter(|| {
                        let (dst, src) = pairs.next();
                        // SAFETY: the ranges of `len` bytes lie in two mappings that are never freed, and no
                        // other thread accesses them.
                        unsafe { kernel.copy(dst, src, black_box(len)) }
                    });
                });
            }
            let (mut pairs, mut tuner) = (Pairs::new(src, dst, len, slots), CopyTuner::new());
            group.bench_function(BenchmarkId::new("tuner", size_name(len)), |bencher| {
                bencher.iter(|| {
                    let (dst, src) = pairs.next();
                    // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                    // accesses them.
                    unsafe { tuner.copy(dst, src, black_box(len), CacheHint::Auto) }
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

fn cold_table(src: Memory, dst: Memory) {
    let kernels: Vec<_> = Kernel::all().collect();
    let mut tuned = Tuned::start();
    let names: Vec<_> = kernels.iter().map(Kernel::name).chain(["tuner", "memcpy tuned"]).collect();
    header("cold, one core: GB/s, and speed relative to memcpy", &names);
    for (order, sizes) in [("", &COLD_SIZES[..]), (" scattered", &COLD_SIZES[..7])] {
        for &len in sizes {
            let scattered = !order.is_empty();
            let new = || {
                if scattered { scattered_pairs(src, dst, len) } else { Pairs::new(src, dst, len, usize::MAX) }
            };
            let mut pairs = new();
            let mut tuner = CopyTuner::new();
            let count = ((96 << 20) / len).max(2);
            let mut choose = |pairs: &mut Pairs| {
                // SAFETY: the ranges of `len` bytes lie in two mappings that are never freed, and no other
                // thread accesses them.
                time(pairs, count, |dst, src, len| unsafe { tuner.copy(dst, src, len, CacheHint::Auto) })
            };
            for _ in 0..1.max(16 / count) {
                choose(&mut pairs);
            }
            let results = compare(ROUNDS, names.len(), count * len, |contender| match contender {
                // SAFETY: the ranges lie in two mappings that are never freed, and no other thread accesses
                // them.
                0 => time(&mut pairs, count, |dst, src, len| unsafe { memcpy(dst, src, len) }),
                _ if contender < kernels.len() => {
                    let kernel = kernels[contender];
                    // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                    // accesses them.
                    time(&mut pairs, count, |dst, src, len| unsafe { kernel.copy(dst, src, len) })
                }
                _ if contender == kernels.len() => choose(&mut pairs),
                _ => tuned.time(len, count, scattered),
            });
            row(&format!("{}{order}", size_name(len)), &results);
        }
    }
}

fn hot_table(src: Memory, dst: Memory) {
    let kernels: Vec<_> = Kernel::all().take(3).collect();
    let names: Vec<_> = kernels.iter().map(Kernel::name).chain(["tuner"]).collect();
    header("hot, one core: GB/s, and speed relative to memcpy", &names);
    for (slots, sizes) in [(1, &HOT_SIZES[..]), (32, &HOT_SIZES[..9])] {
        for &len in sizes {
            let mut pairs = Pairs::new(src, dst, len, slots);
            let mut tuner = CopyTuner::new();
            let count = ((48 << 20) / len).clamp(4, 1 << 18).next_multiple_of(pairs.slots());
            let warm = pairs.slots().max(if len < 1 << 20 { 64 } else { 4 });
            let mut choose = |pairs: &mut Pairs, count| {
                // SAFETY: the ranges of `len` bytes lie in two mappings that are never freed, and no other
                // thread accesses them.
                time(pairs, count, |dst, src, len| unsafe { tuner.copy(dst, src, len, CacheHint::Auto) })
            };
            for _ in 0..4 {
                choose(&mut pairs, count);
            }
            let results = compare(ROUNDS, names.len(), count * len, |contender| match contender {
                0 => {
                    // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                    // accesses them.
                    let mut run =
                        |count| time(&mut pairs, count, |dst, src, len| unsafe { memcpy(dst, src, len) });
                    run(warm);
                    run(count)
                }
                _ if contender < kernels.len() => {
                    let kernel = kernels[contender];
                    let mut run = |count| {
                        // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                        // accesses them.
                        time(&mut pairs, count, |dst, src, len| unsafe { kernel.copy(dst, src, len) })
                    };
                    run(warm);
                    run(count)
                }
                _ => {
                    choose(&mut pairs, warm);
                    choose(&mut pairs, count)
                }
            });
            let pairs = if slots == 1 { String::new() } else { format!(" x{slots}") };
            row(&format!("{}{pairs}", size_name(len)), &results);
        }
    }
}

/// Prints the speeds for destinations that begin 16 or 48 bytes later in a page than their sources.
/// Consecutive allocations differ by 16 bytes, because the C library keeps 16 bytes of its own between them.
fn behind_table(src: Memory, dst: Memory) {
    const SIZES: [usize; 9] =
        [1 << 10, 2 << 10, 3 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
    header(
        "hot, one core, by the distance from source to destination within a page: GB/s, and speed relative to memcpy",
        &["memcpy", "kernel memcpy", "tuner"],
    );
    for (len, shift) in SIZES.map(|len| (len, 16)).into_iter().chain([(16 << 10, 48), (64 << 10, 48)]) {
        let mut pairs = Pairs::new(src, dst, len, 1);
        pairs.shift = shift;
        let mut tuner = CopyTuner::new();
        let count = ((16 << 20) / len).clamp(4, 1 << 12);
        let results = compare(ROUNDS, 3, count * len, |contender| {
            let mut run = |count| match contender {
                // SAFETY: the ranges of `len` bytes lie in two mappings that are never freed, and no other
                // thread accesses them.
                0 => time(&mut pairs, count, |dst, src, len| unsafe { memcpy(dst, src, len) }),
                1 => {
                    let kernel = Kernel::memcpy();
                    // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                    // accesses them.
                    time(&mut pairs, count, |dst, src, len| unsafe { kernel.copy(dst, src, len) })
                }
                _ => time(&mut pairs, count, |dst, src, len| {
                    // SAFETY: the ranges lie in two mappings that are never freed, and no other thread
                    // accesses them.
                    unsafe { tuner.copy(dst, src, len, CacheHint::Auto) }
                }),
            };
            run(count.div_ceil(4));
            run(count)
        });
        row(&format!("{} + {shift} B", size_name(len)), &results);
    }
}

fn header(title: &str, names: &[&str]) {
    println!("\n{title}");
    print!("{:>18}", "");
    for name in names {
        print!("{name:>16}");
    }
    println!();
}

fn row(name: &str, results: &[(f64, f64)]) {
    print!("{name:>18}");
    for (speed, ratio) in results {
        print!("{speed:>9.2} {ratio:>5.2}x");
    }
    println!();
}

/// A second process, whose glibc bypasses the cache from 64 KiB on.
struct Tuned {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Tuned {
    fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program's path"))
            .arg("--tuned-child")
            .env("GLIBC_TUNABLES", "glibc.cpu.x86_non_temporal_threshold=65536")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the tuned process starts");
        let to = child.stdin.take().expect("piped");
        let from = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, to, from }
    }

    fn time(&mut self, len: usize, count: usize, scattered: bool) -> f64 {
        writeln!(self.to, "{len} {count} {}", u8::from(scattered))
            .expect("the tuned process accepts requests");
        let mut line = String::new();
        self.from.read_line(&mut line).expect("the tuned process answers");
        line.trim().parse().expect("nanoseconds")
    }
}

impl Drop for Tuned {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tuned_child() {
    let (src, dst) = (Memory::new(COLD_SPAN, 1), Memory::new(COLD_SPAN, 2));
    let mut current: Option<(Pairs, bool)> = None;
    for line in std::io::stdin().lines() {
        let line = line.expect("a request");
        let numbers: Vec<usize> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
        let (len, count, scattered) = (numbers[0], numbers[1], numbers[2] == 1);
        let fits = current.as_ref().is_some_and(|(pairs, was)| pairs.len == len && *was == scattered);
        if !fits {
            let pairs = if scattered {
                scattered_pairs(src, dst, len)
            } else {
                Pairs::new(src, dst, len, usize::MAX)
            };
            current = Some((pairs, scattered));
        }
        let (pairs, _) = current.as_mut().expect("just set");
        // SAFETY: the ranges of `len` bytes lie in two mappings that are never freed, and no other thread
        // accesses them.
        println!("{}", time(pairs, count, |dst, src, len| unsafe { memcpy(dst, src, len) }));
    }
}
