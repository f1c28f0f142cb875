//! Tests of the set, by one thread and by several.

use proptest::prelude::*;

use super::*;

/// Releases a block in the same way as the pool, on the thread with this number.
fn give_back(set: &FreeSet, thread: usize, block: u32) {
    let (word, bit) = set.place(block);
    if !give_to_cache(set.caches.of(thread), block) && !give(word, bit) {
        assert!(matches!(set.give_with_lock(block), Released::Kept(_)), "the set is open");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { thread: usize },
    GiveBack { thread: usize, which: usize },
    Wait,
    Poll { which: usize },
    Leave { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (thread, which) = (0..4_usize, 0..64_usize);
    let step = prop_oneof![
        8 => thread.clone().prop_map(|thread| Step::Take { thread }),
        8 => (thread, which.clone()).prop_map(|(thread, which)| Step::GiveBack { thread, which }),
        1 => Just(Step::Wait),
        2 => which.clone().prop_map(|which| Step::Poll { which }),
        1 => which.prop_map(|which| Step::Leave { which }),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    /// The oracle is a list of free blocks and a FIFO list of tasks. A request fails exactly if no block
    /// is free, wherever the blocks are.
    #[test]
    fn a_set_with_caches_is_a_set_with_a_wait_list(count in 1..70_usize, steps in steps()) {
        // Threads 0 to 2 have caches.
        let set = FreeSet::with_caches(count, ThreadCaches::with_threads(3));
        let mut free: Vec<u32> = (0..count).map(|index| set.number(index)).collect();
        free.iter().for_each(|block| give_back(&set, 3, *block));
        let mut taken = Vec::new();
        // The tasks in the list, and the blocks that were passed to them.
        let mut tasks: Vec<(Option<u64>, Option<u32>)> = Vec::new();
        let is_waiting = |task: &(Option<u64>, Option<u32>)| task.1.is_none();
        for step in steps {
            match step {
                Step::Take { thread } => {
                    let block = set.take_as(thread);
                    prop_assert_eq!(block.is_some(), !free.is_empty());
                    if let Some(block) = block {
                        prop_assert!(free.contains(&block));
                        free.retain(|other| *other != block);
                        taken.push(block);
                    }
                }
                Step::GiveBack { thread, which } if !taken.is_empty() => {
                    let block = taken.swap_remove(which % taken.len());
                    give_back(&set, thread, block);
                    match tasks.iter_mut().find(|task| is_waiting(task)) {
                        Some(task) => task.1 = Some(block),
                        None => free.push(block),
                    }
                }
                Step::Wait => {
                    let mut task = None;
                    match set.poll_take(&mut task, Waker::noop()) {
                        Poll::Ready(block) => {
                            prop_assert!(free.contains(&block));
                            free.retain(|other| *other != block);
                            taken.push(block);
                        }
                        Poll::Pending => {
                            prop_assert!(free.is_empty());
                            tasks.push((task, None));
                        }
                    }
                }
                Step::Poll { which } if !tasks.is_empty() => {
                    let at = which % tasks.len();
                    let polled = set.poll_take(&mut tasks[at].0, Waker::noop());
                    prop_assert_eq!(polled, tasks[at].1.map_or(Poll::Pending, Poll::Ready));
                    if polled.is_ready() {
                        taken.extend(tasks.remove(at).1);
                    }
                }
                Step::Leave { which } if !tasks.is_empty() => {
                    let (task, block) = tasks.remove(which % tasks.len());
                    prop_assert_eq!(set.leave(task.expect("it is in the list")), block);
                    taken.extend(block);
                }
                _ => {}
            }
            prop_assert_eq!(set.free(), free.len());
            let cached = set.cached();
            prop_assert!(free.iter().all(|block| set.has(*block) != cached.contains(block)));
            prop_assert_eq!(set.waits().tasks, tasks.iter().filter(|task| is_waiting(task)).count());
        }
        let mut closed = set.close();
        closed.sort_unstable();
        free.sort_unstable();
        prop_assert_eq!(closed, free);
    }
}
