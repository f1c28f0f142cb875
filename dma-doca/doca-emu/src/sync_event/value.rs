//! Memory of an event's number.
#![expect(unsafe_code, reason = "memory that is shared with another process, or the program's own")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::export::Descriptor;
use crate::c_abi::{INVALID, Outcome, c, require};

/// Contents of the shared memory.
#[repr(C)]
struct Page {
    number: AtomicU64,
    /// 1 until the maker destroys the event.
    alive: AtomicU32,
    nonce: [u8; 16],
}

/// Memory of an event's own, which other processes can map.
pub(super) struct Shared {
    page: NonNull<Page>,
    memory: OwnedFd,
    /// The process that made it, if it was another one: readable when it has ended.
    maker: Option<OwnedFd>,
    nonce: [u8; 16],
}

/// Place of the number.
pub(super) enum Value {
    Shared(Shared),
    /// At an address that the program gave.
    User(UserNumber),
}

/// The address of a number that the program keeps.
pub(super) struct UserNumber(NonNull<u64>);

impl UserNumber {
    /// # Safety
    ///
    /// The address is aligned and the number stays there as long as the event, touched atomically only.
    pub(super) unsafe fn new(address: NonNull<u64>) -> Self {
        Self(address)
    }
}

// SAFETY: the memory is only touched atomically, from any thread.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

/// Pages are of this size or a multiple.
const LENGTH: usize = 4096;

impl Shared {
    /// New memory, with the number 0.
    pub(super) fn new() -> Outcome<Self> {
        let system = |_| c::DOCA_ERROR_OPERATING_SYSTEM;
        let memory = memfd_create(c"doca-emu-sync-event", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(system)?;
        ftruncate(&memory, LENGTH as u64).map_err(system)?;
        // Sealed, so that neither side can shrink the memory.
        fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(system)?;
        let mut nonce = [0; 16];
        let random = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut nonce));
        random.map_err(|_| c::DOCA_ERROR_OPERATING_SYSTEM)?;
        let page = map(&memory)?;
        // SAFETY: mapped for reading and writing, as long as a page, and nobody else knows of it yet.
        unsafe { page.write(Page { number: AtomicU64::new(0), alive: AtomicU32::new(1), nonce }) };
        Ok(Self { page, memory, maker: None, nonce })
    }

    /// Opens the memory of a descriptor.
    ///
    /// # Errors
    ///
    /// `INVALID_VALUE` if it is not there any more, or is something else.
    pub(super) fn open(descriptor: &Descriptor) -> Outcome<Self> {
        let own = descriptor.pid == std::process::id();
        let maker = if own {
            None
        } else {
            let pid = i32::try_from(descriptor.pid).ok().and_then(Pid::from_raw).ok_or(INVALID)?;
            Some(pidfd_open(pid, PidfdFlags::empty()).map_err(|_| INVALID)?)
        };
        let path = PathBuf::from(format!("/proc/{}/fd/{}", descriptor.pid, descriptor.fd));
        let memory =
            rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
                .map_err(|_| INVALID)?;
        // A file that can shrink would crash readers.
        let seals = fcntl_get_seals(&memory).map_err(|_| INVALID)?;
        let stat = fstat(&memory).map_err(|_| INVALID)?;
        require(seals.contains(SealFlags::SHRINK) && stat.st_size == LENGTH as i64, INVALID)?;
        let page = map(&memory)?;
        let shared = Self { page, memory, maker, nonce: descriptor.nonce };
        // SAFETY: as long as a page; written before the descriptor was given away, and not since.
        let nonce = unsafe { (*page.as_ptr()).nonce };
        require(nonce == descriptor.nonce && shared.is_alive(), INVALID)?;
        Ok(shared)
    }

    pub(super) fn descriptor(&self, serial: &str) -> Descriptor {
        let fd = self.memory.as_raw_fd().unsigned_abs();
        Descriptor { pid: std::process::id(), fd, nonce: self.nonce, serial: serial.to_owned() }
    }

    fn page(&self) -> (&AtomicU64, &AtomicU32) {
        // SAFETY: mapped as long as `self` lives, and only touched atomically.
        let number = unsafe { &(*self.page.as_ptr()).number };
        // SAFETY: as above.
        let alive = unsafe { &(*self.page.as_ptr()).alive };
        (number, alive)
    }

    /// The maker lives, and has not destroyed the event.
    fn is_alive(&self) -> bool {
        let (_, alive) = self.page();
        if alive.load(Ordering::Acquire) == 0 {
            return false;
        }
        let Some(maker) = &self.maker else { return true };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut ended = [PollFd::from_borrowed_fd(maker.as_fd(), PollFlags::IN)];
        !matches!(poll(&mut ended, Some(&now)), Ok(1..))
    }
}

fn map(memory: &OwnedFd) -> Outcome<NonNull<Page>> {
    // SAFETY: a new mapping, wherever the system has room.
    let address = unsafe {
        mmap(ptr::null_mut(), LENGTH, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, memory, 0)
    };
    address.ok().and_then(|address| NonNull::new(address.cast())).ok_or(c::DOCA_ERROR_NO_MEMORY)
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.page.as_ptr().cast(), LENGTH) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

impl Value {
    pub(super) fn number(&self) -> &AtomicU64 {
        match self {
            Self::Shared(shared) => shared.page().0,
            // SAFETY: `new` was promised a number, as long as the event.
            Self::User(UserNumber(address)) => unsafe { AtomicU64::from_ptr(address.as_ptr()) },
        }
    }

    /// `IO_FAILED` if the number is another process's and that has ended or destroyed the event.
    pub(super) fn check(&self) -> Outcome {
        match self {
            Self::Shared(shared) => require(shared.is_alive(), c::DOCA_ERROR_IO_FAILED),
            Self::User(_) => Ok(()),
        }
    }

    /// Ends the event for importers.
    pub(super) fn revoke(&self) {
        if let Self::Shared(shared) = self {
            shared.page().1.store(0, Ordering::Release);
        }
    }
}
