//! Copies make progress: events wake their owner, and no poll takes long.

use super::*;

/// Sleeps until a poll has work.
fn sleep_until_told(queue: &mut dyn RawQueue) {
    let events = queue.events().expect("there are events");
    if events.arm().expect("it can be armed") {
        let fd = events.fd().unwrap();
        let soon = Timespec { tv_sec: 60, tv_nsec: 0 };
        let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&soon));
        assert_eq!(ready.expect("poll works"), 1, "asleep for ever");
        events.disarm();
    }
}

/// The owner arms the event while nothing is in flight, and the next submission wakes it.
#[test]
fn arming_comes_before_submitting() {
    for threads in [0, 1] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let (src, dst) = (region(&engine, 1 << 20), region(&engine, 1 << 20));
        for len in [64, 1 << 20] {
            let mut queue = queue(&engine, 8);
            let readable = |queue: &mut dyn RawQueue, wait| {
                let events = queue.events().expect("there are events");
                let fd = events.fd().unwrap();
                rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).expect("poll works")
                    == 1
            };
            let (now, soon) = (Timespec { tv_sec: 0, tv_nsec: 0 }, Timespec { tv_sec: 60, tv_nsec: 0 });
            assert!(queue.events().expect("there are events").arm().expect("it can be armed"));
            assert!(!readable(&mut *queue, now), "nothing has happened");
            assert!(submit(&mut *queue, Descriptor::copy(1, segment(&*src, 0, len), segment(&*dst, 0, len))));
            queue.flush();
            assert!(readable(&mut *queue, soon), "{len} bytes, {threads} threads");
            drain(&mut *queue, 1);
            queue.events().expect("there are events").disarm();
            assert!(!readable(&mut *queue, now));
        }
    }
}

/// An owner that sleeps on the event after flushing is woken once a poll has work: to report a copy by a
/// helper, or to execute one that is too short to wake a helper for.
#[test]
fn flushed_copies_need_no_polling_in_vain() {
    let engine = open(&CpuOptions::new().with_threads(1));
    for len in [64 << 10, 256 << 10, 3 << 20] {
        let (src, dst) = (region(&engine, len), region(&engine, len));
        let mut queue = queue(&engine, 8);
        // The helper thread goes to sleep between the two copies.
        for turn in 1..=20 {
            store(&*src, &vec![turn; len]);
            assert!(submit(&mut *queue, Descriptor::copy(1, segment(&*src, 0, len), segment(&*dst, 0, len))));
            queue.flush();
            let mut completions = [Completion::done(0); 4];
            let mut polls = 0;
            loop {
                sleep_until_told(&mut *queue);
                polls += 1;
                if queue.poll(&mut completions) == 1 {
                    break;
                }
                assert!(polls < 100, "{len} bytes: each wake-up found nothing to report");
            }
            assert!(bytes(&*dst).iter().all(|byte| *byte == turn));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Short copies are executed during submission, so that every poll fills its buffer with reports. A long copy
/// still makes progress and is reported, although only the polling thread works.
#[test]
fn short_copies_do_not_hold_up_long_ones() {
    const LEN: usize = 4 << 20;
    for threads in [0, 1] {
        let engine = open(&CpuOptions::new().with_threads(threads).with_hint(CacheHint::Cold));
        let (src, dst) = (region(&engine, LEN + 64), region(&engine, LEN + 64));
        store(&*src, &[3; LEN + 64]);
        let mut queue = queue(&engine, 8);
        assert!(submit(&mut *queue, Descriptor::copy(0, segment(&*src, 0, LEN), segment(&*dst, 0, LEN))));
        queue.flush();
        if threads > 0 {
            sleep_until_told(&mut *queue);
        }
        let short = Descriptor::copy(1, segment(&*src, LEN, 64), segment(&*dst, LEN, 64));
        let mut completion = [Completion::done(1)];
        let (mut patience, mut polls) = (Patience::new(), 0);
        while completion[0].token != 0 {
            while submit(&mut *queue, short) {}
            queue.flush();
            assert_eq!(queue.poll(&mut completion), 1);
            polls += 1;
            // A thread may hold the last chunk, however often the owner polls.
            assert!(threads > 0 || polls <= 200, "not done after {polls} polls");
            patience.check("the long copy is done");
        }
        assert!(bytes(&*dst)[..LEN].iter().all(|byte| *byte == 3));
        // The long copy does not delay the short ones.
        assert!(threads > 0 || polls > 16, "{polls} polls for 16 chunks");
        drain(&mut *queue, 7);
    }
}

/// A long copy is reported chunk by chunk, so that its waiter neither considers the engine stalled nor sleeps
/// while the copy needs its polls.
#[test]
fn a_long_copy_shows_that_it_gets_on() {
    const LEN: usize = (40 << 20) + 5;
    for threads in [0, 2] {
        let engine = open(&CpuOptions::new().with_threads(threads));
        let max = engine.info().limits.max_transfer;
        let queue = engine.open_queue(&QueueOptions::new()).expect("a queue");
        let mut src = engine.allocate(LEN).expect("memory");
        for (at, word) in src.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&at.to_ne_bytes());
        }
        let transfer = queue.copy(src, engine.allocate(LEN).expect("memory")).expect("accepted");
        queue.flush();
        let (mut patience, mut reported, mut in_vain) = (Patience::new(), 0, 0);
        while queue.counters().in_flight > 0 {
            match queue.poll() {
                0 => in_vain += 1,
                n => (reported, in_vain) = (reported + n as u64, 0),
            }
            // A thread may still be copying the last chunk, however often the owner polls.
            assert!(threads > 0 || in_vain <= 100, "nothing was reported by {in_vain} polls");
            patience.check(format_args!("all is reported, but {reported} pieces are"));
        }
        assert_eq!(queue.counters().descriptors, reported);
        assert!(reported > 1 && reported == (LEN as u64).div_ceil(max), "{reported} pieces of up to {max}");
        let (src, dst) = transfer.wait().expect("done");
        assert!(src[..] == dst[..], "it arrives whole");
    }
}

/// The polling thread finishes the operation before a fence, and sleeps. The helper thread, which may have
/// gone to sleep at the fence, executes the rest.
#[test]
fn fences_open_while_everybody_sleeps() {
    const LEN: usize = 256 << 10;
    let engine = open(&CpuOptions::new().with_threads(1).with_inline_limit(0));
    let (src, dst) = (region(&engine, LEN), region(&engine, LEN));
    let mut queue = queue(&engine, 8);
    let mut completions = [Completion::done(0); 4];
    for _ in 0..300 {
        for fence in [false, true] {
            let descriptor = Descriptor::copy(1, segment(&*src, 0, LEN), segment(&*dst, 0, LEN));
            assert!(submit(&mut *queue, descriptor.with_fence(fence)));
        }
        queue.flush();
        let mut done = 0;
        while done == 0 {
            done += queue.poll(&mut completions);
        }
        if done == 1 && queue.events().expect("there are events").arm().expect("it can be armed") {
            let events = queue.events().expect("there are events");
            let fd = events.fd().unwrap();
            let soon = Timespec { tv_sec: 60, tv_nsec: 0 };
            let ready = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&soon));
            assert_eq!(ready.expect("poll works"), 1, "no wake-up after a fence opened");
        }
        queue.events().expect("there are events").disarm();
        while done < 2 {
            done += queue.poll(&mut completions);
        }
    }
}
