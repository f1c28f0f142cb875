//! Compares row copies with a plain loop over the same rows, on one core and in the same run.
//!
//! `cargo bench -p dma-cpu --bench rows`. An operation has 256 rows of 64 to 512 B each. The table has 512
//! MiB, which is cold, or 256 KiB. Rows are gathered to one buffer, or scattered from one buffer in ascending
//! or random order. The loop copies slices. The bench measures CPU time, runs the contenders in turns, and
//! checks the results.

#[expect(dead_code, reason = "is shared with other benches")]
#[expect(unsafe_code, reason = "is used with raw memory by other benches")]
mod support;

use dma_core::{BufferMut, DmaEngineExt, Queue, QueueOptions, Result, Rows};
use dma_cpu::{CpuEngine, CpuOptions};
use support::{compare, cpu_time, size_name};

type List = Vec<(usize, usize)>;

/// Number of rows in one operation.
const ROWS: usize = 256;
const ROUNDS: usize = 15;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Gather,
    ScatterAscending,
    ScatterInAnyOrder,
}

/// Makes lists of rows that do not overlap within a list.
fn lists(len: usize, operations: usize, way: Way) -> Vec<List> {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut list = || {
        let mut list: List = Vec::with_capacity(ROWS);
        // Each row has its own part of the table.
        for (row, stretch) in (0..ROWS).map(|row| (row, len / ROWS)) {
            let row_len = 64 + random(449);
            list.push((row * stretch + random(stretch - row_len), row_len));
        }
        if way != Way::ScatterAscending {
            (1..ROWS).for_each(|at| list.swap(at, random(at + 1)));
        }
        list
    };
    (0..operations).map(|_| list()).collect()
}

/// The operands: a table, and memory for the rows of one list.
struct Operands {
    table: Option<BufferMut>,
    rows: Option<BufferMut>,
}

fn by_loop(operands: &mut Operands, lists: &[List], way: Way) {
    let (table, flat) =
        (operands.table.as_mut().expect("the table"), operands.rows.as_mut().expect("memory"));
    for list in lists {
        let mut to = 0;
        for &(at, len) in list {
            let (row, place) = (&mut table[at..at + len], &mut flat[to..to + len]);
            match way {
                Way::Gather => place.copy_from_slice(row),
                Way::ScatterAscending | Way::ScatterInAnyOrder => row.copy_from_slice(place),
            }
            to += len;
        }
    }
}

fn by_rows(queue: &Queue, operands: &mut Operands, lists: &mut [List], way: Way) -> Result<()> {
    let (mut table, mut flat) =
        (operands.table.take().expect("the table"), operands.rows.take().expect("memory"));
    for list in lists {
        let rows = Rows::new(table, std::mem::take(list))?;
        let mut part = flat.split_to(rows.bytes());
        let rows = if way == Way::Gather {
            let (rows, dst) = queue.copy(rows, part)?.wait()?;
            part = dst;
            rows
        } else {
            let (src, rows) = queue.copy(part, rows)?.wait()?;
            part = src;
            rows
        };
        part.unsplit(flat).expect("it follows");
        flat = part;
        (table, *list) = rows.into_parts();
    }
    (operands.table, operands.rows) = (Some(table), Some(flat));
    Ok(())
}

fn main() -> Result<()> {
    let is_test = std::env::args().any(|arg| arg == "--test");
    let engine = CpuEngine::open(&CpuOptions::new().with_threads(0))?;
    let queue = engine.open_queue(&QueueOptions::new())?;
    println!("{ROWS} rows an operation: ns a row by a loop, by rows, and the ratio of the times");
    for len in [256 << 10, 512 << 20] {
        // The cold table is larger than caches, and takes too long for a test.
        if is_test && len > 1 << 20 {
            continue;
        }
        let (operations, rounds) = if is_test { (3, 1) } else { (1000, ROUNDS) };
        let mut operands =
            Operands { table: Some(engine.allocate(len)?), rows: Some(engine.allocate(ROWS * 512)?) };
        for (way, name) in [
            (Way::Gather, "gathered"),
            (Way::ScatterAscending, "scattered, ascending"),
            (Way::ScatterInAnyOrder, "scattered, in any order"),
        ] {
            let mut lists = lists(len, operations, way);
            check(&queue, &mut operands, &mut lists, way)?;
            let mut failed = Ok(());
            let results = compare(rounds, 2, operations * ROWS, |contender| {
                let start = cpu_time();
                if contender == 0 {
                    by_loop(&mut operands, &lists, way);
                } else if let Err(e) = by_rows(&queue, &mut operands, &mut lists, way) {
                    failed = Err(e);
                }
                cpu_time() - start
            });
            failed?;
            let [(by_loop, _), (by_rows, ratio)] = results[..] else { unreachable!("two contenders") };
            println!(
                "{:>8} {name:<24}{:>8.1}{:>8.1}{:>8.2}",
                size_name(len),
                1.0 / by_loop,
                1.0 / by_rows,
                1.0 / ratio
            );
        }
    }
    Ok(())
}

/// Checks the bytes of one operation of each contender.
fn check(queue: &Queue, operands: &mut Operands, lists: &mut [List], way: Way) -> Result<()> {
    let mut copied = Vec::new();
    for by_queue in [false, true] {
        let (table, flat) =
            (operands.table.as_mut().expect("the table"), operands.rows.as_mut().expect("memory"));
        let (src, dst) = if way == Way::Gather { (table, flat) } else { (flat, table) };
        src.iter_mut().zip((0..=250).cycle()).for_each(|(byte, value)| *byte = value);
        dst.fill(255);
        if by_queue {
            by_rows(queue, operands, &mut lists[..1], way)?;
        } else {
            by_loop(operands, &lists[..1], way);
        }
        let dst = if way == Way::Gather { &operands.rows } else { &operands.table };
        copied.push(dst.as_ref().expect("memory").to_vec());
    }
    assert!(copied[0] == copied[1], "both contenders copy the same bytes");
    Ok(())
}
