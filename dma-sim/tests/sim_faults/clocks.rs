//! Tests of the clocks: virtual, manual and real time.

use std::time::Instant;

use super::*;

/// A workload whose calls depend only on the engine's answers.
fn workload(seed: u64, profile: &str) -> (u64, Vec<String>) {
    let options = SimOptions::new()
        .with_profile(Profile::by_name(profile).unwrap())
        .with_seed(seed)
        .with_faults("fail:p=0.02+lose@40+slow:p=0.1:for=5us+reset@70".parse().unwrap())
        .with_trace(TraceMode::Record);
    let engine = SimEngine::open(&options).unwrap();
    let options = QueueOptions::new().with_depth(16).with_drop_timeout(SHORT);
    let queue = engine.open_queue(&options).unwrap();
    let mut held = Vec::new();
    for round in 0..30_usize {
        for i in 0..4 {
            let len = 1 + (round * 977 + i * 131) % 9_000;
            match queue.copy(engine.allocate(len).unwrap(), engine.allocate(len).unwrap()) {
                Ok(transfer) => held.push(transfer),
                Err(e) => assert_eq!(e.kind(), ErrorKind::QueueFull),
            }
        }
        if round % 3 == 0 {
            queue.fence();
        }
        queue.flush();
        queue.poll();
        held.retain(|transfer| !transfer.is_done());
    }
    drop(queue);
    drop(held);
    let digest = engine.device().trace().digest();
    (digest, engine.take_trace().iter().map(ToString::to_string).collect())
}

#[test]
fn the_same_seed_is_the_same_trace_to_the_byte() {
    for profile in Profile::NAMES {
        let (digest, lines) = workload(7, profile);
        assert!(lines.len() > 300);
        let again = workload(7, profile);
        assert_eq!(again.1, lines, "{profile}");
        assert_eq!(again.0, digest);
        assert_ne!(workload(8, profile).0, digest, "{profile}");
    }
}

#[test]
fn virtual_time_passes_by_polling_only() {
    let (engine, queue) = open(Profile::bluefield3(), "");
    let transfer = copy(&engine, &queue).unwrap();
    queue.poll();
    assert_eq!(engine.now(), Time::ZERO, "nothing was released to the device");
    queue.flush();
    assert_eq!(engine.now(), Time::ZERO);
    assert_eq!(queue.poll(), 1);
    let then = engine.now();
    assert!((1_500..3_000).contains(&(then.as_ps() / 1_000)), "{then}");
    transfer.wait().unwrap();
    for _ in 0..10 {
        queue.poll();
    }
    assert_eq!(engine.now(), then, "time does not advance while the queue is idle");
}

#[test]
fn manual_time_passes_by_hand_only() {
    let options = SimOptions::new().with_profile(Profile::bluefield3()).with_clock(Clock::Manual);
    let engine = SimEngine::open(&options).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let mut transfer = copy(&engine, &queue).unwrap();
    assert_eq!(transfer.wait_for(Duration::from_millis(5)).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(engine.now(), Time::ZERO);
    assert_eq!(engine.advance(Duration::from_nanos(100)), Time::from_ns(100));
    assert!(!transfer.is_done());
    assert!(engine.settle() > Time::from_us(1));
    assert!(transfer.is_done());
    transfer.wait().unwrap();
}

#[test]
fn sleepers_are_woken_on_the_manual_clock() {
    let options = SimOptions::new().with_profile(Profile::bluefield3()).with_clock(Clock::Manual);
    let engine = SimEngine::open(&options).unwrap();
    // The driver also wakes a sleeper to look for stalls. The long timeout prevents that for a minute.
    let patient = QueueOptions::new().with_stall_timeout(Duration::from_secs(24 * 3600));
    let queue = engine.open_queue(&patient).unwrap();
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let driver = queue.driver().unwrap();
    let readable = || {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let soon = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::new(&driver, PollFlags::IN)], Some(&soon)).unwrap() > 0
    };
    let transfer = copy(&engine, &queue).unwrap();
    driver.run().unwrap();
    assert!(!readable());
    engine.advance(Duration::from_nanos(10));
    assert!(!readable(), "nothing completed yet");
    engine.settle();
    assert!(readable());
    driver.run().unwrap();
    assert!(!readable());
    transfer.wait().unwrap();
}

#[test]
fn real_time_takes_as_long_as_the_device() {
    let mut options = SimOptions::new().with_profile(Profile::bluefield3()).with_clock(Clock::Real);
    options.latency = Some(Time::from_us(30_000));
    options.jitter = Some(0);
    let engine = SimEngine::open(&options).unwrap();
    let queue = engine.open_queue(&QueueOptions::new()).unwrap();
    let begun = Instant::now();
    copy(&engine, &queue).unwrap().wait().unwrap();
    // The bound is only a lower bound, because the machine may take longer.
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert!(
        engine.advance(Duration::from_secs(3_600)) < Time::from_us(3_600_000_000),
        "only the real clock advances time"
    );
}
