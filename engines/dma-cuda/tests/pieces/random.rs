//! Random pieces in all directions and by every way, on a GPU that works and on one that refuses some loads,
//! against an oracle.

use proptest::strategy::ValueTree;

use super::*;

fn shapes(most: usize) -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let gap = || prop_oneof![Just(0_usize), 0_usize..40];
    let len = prop_oneof![
        0_usize..40,
        (0_usize..20).prop_map(|units| units * 16),
        1_usize..700,
        (0_usize..5).prop_map(|units| units * 2048 + 1000),
        Just(4096_usize),
    ];
    // The last piece may need several entries of the table.
    let last = prop_oneof![4 => Just(0_usize), 1 => (60_usize << 10)..(150 << 10)];
    (prop::collection::vec((gap(), gap(), len), 1..most), gap(), gap(), last).prop_map(
        |(mut shapes, a, b, last)| {
            shapes.push((a, b, last));
            shapes
        },
    )
}

/// Repeats what a driver refuses.
fn retried<T>(mut once: impl FnMut() -> Result<T, Error>) -> T {
    for _ in 0..100 {
        match once() {
            Ok(done) => return done,
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
        }
    }
    panic!("the driver refuses 100 loads in a row");
}

/// Copies the pieces between all places. Checks all bytes, except those of pieces that the driver refused:
/// they are undefined. Adds the numbers of copied and of refused pieces.
fn check_with_refusals(
    engine: &CudaEngine,
    queue: &Queue,
    pieces: &[Piece],
    len: usize,
    by_rows: bool,
    counts: &mut [usize; 2],
) {
    let directions =
        [[Place::Host, Place::Device], [Place::Device, Place::Host], [Place::Device; 2], [Place::Host; 2]];
    for (number, [from, to]) in directions.into_iter().enumerate() {
        let (src, dst) = (pattern(len, number), pattern(len, number + 50));
        let source = retried(|| window(engine, queue, from, &src));
        let target = retried(|| window(engine, queue, to, &dst));
        let copied: Vec<bool> = if by_rows {
            let rows = |at: fn(&Piece) -> usize| pieces.iter().map(|piece| (at(piece), piece.len)).collect();
            let from = Rows::new(source, rows(|piece| piece.from)).expect("inside");
            let to = Rows::new(target.clone(), rows(|piece| piece.to)).expect("inside");
            let ended = queue.copy(from, to).expect("room").wait().map(drop);
            vec![succeeded(ended.map_err(Error::from)); pieces.len()]
        } else {
            let transfers: Vec<_> = pieces
                .iter()
                .map(|Piece { from, to, len }| {
                    queue.copy(source.slice(*from..from + len), target.slice(*to..to + len)).expect("room")
                })
                .collect();
            transfers
                .into_iter()
                .map(|transfer| succeeded(transfer.wait().map(drop).map_err(Error::from)))
                .collect()
        };
        let host = retried(|| Ok(queue.copy(target.clone(), engine.allocate(len)?)?.wait()?.1));
        let (mut expected, mut found) = (dst, host.to_vec());
        for (Piece { from, to, len }, copied) in pieces.iter().zip(copied) {
            counts[usize::from(!copied)] += 1;
            if copied {
                expected[*to..to + len].copy_from_slice(&src[*from..from + len]);
            } else {
                expected[*to..to + len].fill(0);
                found[*to..to + len].fill(0);
            }
        }
        let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{from} to {to}: a byte of {len} is wrong");
    }
}

fn succeeded(ended: Result<(), Error>) -> bool {
    ended.map_err(|error| assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}")).is_ok()
}

/// Runs cases until at least `number` pieces were copied or refused.
fn random_pieces(number: usize) {
    // Opening an engine compiles its kernel, so all cases share the engines.
    let ways = [Pieces::Kernel, Pieces::Auto, Pieces::Batch, Pieces::Loop];
    let healthy = ways.map(|pieces| open(0, pieces));
    let refusing = ways.map(|pieces| open(REFUSING, pieces));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let (mut runner, mut counts) = (proptest::test_runner::TestRunner::new(config), [0; 2]);
    let cases = (shapes(60), any::<bool>(), 0..6_usize, any::<bool>(), 61..300_usize);
    while counts.iter().sum::<usize>() < number {
        let case = cases.new_tree(&mut runner).expect("a case").current();
        let (shapes, by_rows, way, refuses, depth) = case;
        // Most cases take the kernel.
        let way = [0, 0, 0, 1, 2, 3][way];
        let engine = if refuses { &refusing[way] } else { &healthy[way] };
        let queue = engine.open_queue(&QueueOptions::new().with_depth(depth)).expect("a queue");
        let (pieces, len) = layout(&shapes);
        let before = counts;
        check_with_refusals(engine, &queue, &pieces, len, by_rows, &mut counts);
        assert!(refuses || counts[1] == before[1], "only one of the GPUs refuses loads");
    }
    println!("{} pieces are right, and {} were refused", counts[0], counts[1]);
    assert!(counts[1] > 0, "the fault plan refuses some loads");
}

#[test]
fn random_pieces_are_those_of_an_oracle() {
    random_pieces(20_000);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p dma-cuda --test pieces -- --ignored --nocapture"]
fn ten_million_random_pieces_are_those_of_an_oracle() {
    random_pieces(10_000_000);
}
