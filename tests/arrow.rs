//! Arrow buffers of registered memory, through `bytes::Bytes`, which every version of Arrow accepts.

use bytes::Bytes;
use dma::prelude::*;

#[test]
fn an_arrow_buffer_keeps_the_memory_and_returns_it_to_the_pool() {
    let engine = dma::open("cpu").expect("the CPU");
    let pool = BufferPool::new(&engine, &PoolOptions::new().with_class(64, 1)).expect("a pool");
    let in_use = || pool.classes().map(|class| class.in_use).sum::<usize>();
    let mut buffer = pool.try_get(24).expect("free");
    for (i, number) in buffer.chunks_exact_mut(8).enumerate() {
        number.copy_from_slice(&(i as i64 - 1).to_ne_bytes());
    }
    let begin = buffer.as_ptr();
    let arrow = arrow_buffer::Buffer::from(Bytes::from(buffer.freeze()));
    assert_eq!(arrow.as_ptr(), begin, "the memory is not copied");
    let numbers = arrow_buffer::ScalarBuffer::<i64>::new(arrow.clone(), 1, 2);
    assert_eq!(numbers[..], [0, 1]);
    drop(arrow);
    assert_eq!(in_use(), 1);
    std::thread::spawn(move || drop(numbers)).join().expect("no panic");
    assert_eq!(in_use(), 0);
}

#[test]
fn an_arrow_buffer_is_registered_in_place() {
    let engine = dma::open("cpu").expect("the CPU");
    let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
    let arrow = arrow_buffer::Buffer::from_vec(vec![7_u8; 100_000]);
    let begin = arrow.as_ptr();
    let src = engine.register_read_only(Bytes::from_owner(arrow)).expect("registered");
    assert_eq!(src.as_ptr(), begin, "the memory is not copied");
    let dst = engine.allocate(src.len()).expect("memory");
    let (src, dst) = queue.copy(src, dst).and_then(Transfer::wait).expect("a copy");
    assert_eq!(src[..], dst[..]);
}
