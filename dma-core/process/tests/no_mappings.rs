//! A thread that cannot map its stacks is an error. This test is alone in its process, because it uses up the
//! memory mappings of the whole process. A sanitizer ends a process that has none left.
#![cfg(all(target_os = "linux", not(any(dma_address_sanitizer, dma_thread_sanitizer))))]
#![expect(unsafe_code, reason = "maps memory, and changes its rights")]

use dma_process::{Limit, spawn_thread};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

#[test]
fn threads_without_mappings_are_refused() {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("procfs");
    let most: usize = most.trim().parse().expect("a number");
    if most > 1 << 21 {
        return eprintln!("not tested: this system allows {most} mappings");
    }
    let (page, pages) = (rustix::param::page_size(), most + 2);
    // SAFETY: the kernel chooses unused addresses for the new mapping.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            pages * page,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }
    .expect("addresses");
    // SAFETY: the page is part of the mapping, which no other code uses.
    let set = |at: usize, rights| unsafe { mprotect(start.wrapping_byte_add(at * page), page, rights) };
    // Neighbours with different rights are different mappings.
    let mut last = (0..pages / 2).take_while(|at| set(2 * at + 1, MprotectFlags::READ).is_ok()).last();
    let (mut refused, mut started) = (0, 0);
    // Each step makes two more mappings possible.
    for _ in 0..30 {
        match spawn_thread("mapped".to_owned(), || {}) {
            Ok(thread) => {
                thread.join().expect("it ends");
                started += 1;
            }
            Err(error) => {
                assert_eq!(error.limit(), Limit::Memory);
                assert!(error.hint().contains("vm.max_map_count"), "{error}");
                refused += 1;
            }
        }
        if let Some(at) = last {
            set(2 * at + 1, MprotectFlags::empty()).expect("fewer mappings");
            last = at.checked_sub(1);
        }
    }
    // SAFETY: this is the mapping above.
    unsafe { munmap(start, pages * page) }.expect("unmapped");
    assert!(refused > 5 && started > 5, "{refused} refused, {started} started");
}
