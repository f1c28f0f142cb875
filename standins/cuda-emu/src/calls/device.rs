//! Initialization, version, errors, entry points and devices.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::occupancy;
use crate::c_abi::{Out, Text, c_calls};
use crate::codes::{self, Code};
use crate::driver::{self, lock};

/// Attributes of every device, by the numbers of `CUdevice_attribute`.
const ATTRIBUTES: [(c_int, c_int); 40] = [
    (1, 1024),                        // MAX_THREADS_PER_BLOCK
    (2, 1024),                        // MAX_BLOCK_DIM_X
    (3, 1024),                        // MAX_BLOCK_DIM_Y
    (4, 64),                          // MAX_BLOCK_DIM_Z
    (5, i32::MAX),                    // MAX_GRID_DIM_X
    (6, 65_535),                      // MAX_GRID_DIM_Y
    (7, 65_535),                      // MAX_GRID_DIM_Z
    (8, driver::SHARED_MAX as c_int), // MAX_SHARED_MEMORY_PER_BLOCK
    (10, occupancy::WARP as c_int),   // WARP_SIZE
    (11, MAX_PITCH as c_int),
    (12, occupancy::REGISTERS as c_int), // MAX_REGISTERS_PER_BLOCK
    (15, 1),                             // GPU_OVERLAP
    (16, occupancy::MULTIPROCESSORS),
    (19, 1),                                    // CAN_MAP_HOST_MEMORY
    (31, 1),                                    // CONCURRENT_KERNELS
    (34, 0),                                    // PCI_DEVICE_ID
    (39, occupancy::THREADS as c_int),          // MAX_THREADS_PER_MULTIPROCESSOR
    (40, 3),                                    // ASYNC_ENGINE_COUNT
    (41, 1),                                    // UNIFIED_ADDRESSING
    (50, 0),                                    // PCI_DOMAIN_ID
    (75, 9),                                    // COMPUTE_CAPABILITY_MAJOR
    (76, 0),                                    // COMPUTE_CAPABILITY_MINOR
    (78, 1),                                    // STREAM_PRIORITIES_SUPPORTED
    (81, occupancy::SHARED as c_int),           // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
    (82, occupancy::REGISTERS as c_int),        // MAX_REGISTERS_PER_MULTIPROCESSOR
    (83, 1),                                    // MANAGED_MEMORY
    (89, 1),                                    // CONCURRENT_MANAGED_ACCESS
    (91, 1),                                    // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
    (99, 1),                                    // HOST_REGISTER_SUPPORTED
    (106, occupancy::BLOCKS as c_int),          // MAX_BLOCKS_PER_MULTIPROCESSOR
    (111, occupancy::SHARED_RESERVED as c_int), // RESERVED_SHARED_MEMORY_PER_BLOCK
    (115, 1),                                   // MEMORY_POOLS_SUPPORTED
    (116, 0),                                   // GPU_DIRECT_RDMA_SUPPORTED
    (119, 1),                                   // MEMPOOL_SUPPORTED_HANDLE_TYPES: file descriptors
    (122, 1),                                   // CAN_USE_64_BIT_STREAM_MEM_OPS
    (123, 1),                                   // CAN_USE_STREAM_WAIT_VALUE_NOR
    (124, 1),                                   // DMA_BUF_SUPPORTED
    (134, 0),                                   // HOST_NUMA_ID
    (142, 1),                                   // HOST_NUMA_MEMORY_POOLS_SUPPORTED
    (144, 1),                                   // HOST_MEMORY_POOLS_SUPPORTED
];
/// `CU_DEVICE_ATTRIBUTE_MAX_PITCH`, in bytes.
pub(crate) const MAX_PITCH: usize = i32::MAX as usize;
const PCI_BUS_ID: c_int = 33;
const READ_ONLY_HOST_REGISTER_SUPPORTED: c_int = 113;
/// PCI bus number of the first device; each further device has the next number.
const FIRST_BUS: usize = 0x17;

fn pci(device: usize) -> String {
    format!("0000:{:02x}:00.0", FIRST_BUS + device)
}

c_calls! {
    fn cuInit(flags: c_uint) { driver::init(flags) }

    fn cuDriverGetVersion(version: Out<c_int>) { version.put(driver::machine().version) }

    fn cuGetErrorName(code: c_int, name: Out<*const c_char>) {
        let known = codes::describe(code);
        name.put(known.map_or(std::ptr::null(), |(name, _)| name.as_ptr()))?;
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(code: c_int, text: Out<*const c_char>) {
        let known = codes::describe(code);
        text.put(known.map_or(std::ptr::null(), |(_, text)| text.as_ptr()))?;
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetProcAddress_v2(name: Text, call: Out<*mut c_void>, version: c_int, _flags: u64, status: Out<c_int>) {
        let name = name.str()?;
        let found = super::by_version(name, version).or_else(|| refused(name));
        status.put_if(c_int::from(found.is_none()));
        call.put(found.map_or(std::ptr::null_mut(), std::ptr::NonNull::as_ptr))?;
        found.map(|_| ()).ok_or(Code::NOT_FOUND)
    }

    fn cuGetProcAddress(name: Text, call: Out<*mut c_void>, version: c_int, _flags: u64) {
        let name = name.str()?;
        let found = super::by_version(name, version).or_else(|| refused(name)).ok_or(Code::NOT_FOUND)?;
        call.put(found.as_ptr())
    }

    fn cuDeviceGetCount(count: Out<c_int>) { count.put(lock()?.config.gpus.len() as c_int) }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        lock()?.device(ordinal)?;
        device.put(ordinal)
    }

    fn cuDeviceGetName(name: Out<c_char>, room: c_int, device: c_int) {
        let driver = lock()?;
        let gpu = driver.device(device)?;
        // SAFETY: C passes a buffer of `room` bytes.
        unsafe { name.cut_text(&driver.config.gpus[gpu].name, room) }
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: c_int) { uuid.put(uuid_of(lock()?.device(device)?)) }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: c_int) { uuid.put(uuid_of(lock()?.device(device)?)) }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        let driver = lock()?;
        let gpu = driver.device(device)?;
        bytes.put(driver.memory.spaces[gpu].total() as usize)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        let driver = lock()?;
        let gpu = driver.device(device)?;
        let known = ATTRIBUTES.iter().find(|(known, _)| *known == attribute);
        value.put(match (attribute, known) {
            (PCI_BUS_ID, _) => (FIRST_BUS + gpu) as c_int,
            (READ_ONLY_HOST_REGISTER_SUPPORTED, _) => driver.config.machine.read_only_register.into(),
            (_, Some((_, value))) => *value,
            (1..=200, None) => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn cuDeviceGetPCIBusId(id: Out<c_char>, room: c_int, device: c_int) {
        let address = pci(lock()?.device(device)?);
        // SAFETY: C passes a buffer of `room` bytes.
        unsafe { id.cut_text(&address, room) }
    }

    fn cuDeviceGetByPCIBusId(device: Out<c_int>, id: Text) {
        let wanted = id.str()?.to_ascii_lowercase();
        let number = lock()?.config.gpus.len();
        let found = (0..number).find(|gpu| pci(*gpu) == wanted || pci(*gpu).ends_with(&format!(":{wanted}")));
        device.put(found.ok_or(Code::INVALID_DEVICE)? as c_int)
    }

    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        let driver = lock()?;
        can.put((driver.device(device)? != driver.device(peer)?).into())
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, _attribute: c_int, from: c_int, to: c_int) {
        let driver = lock()?;
        value.put((driver.device(from)? != driver.device(to)?).into())
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        lock()?.device(device)?;
        major.put(9)?;
        minor.put(0)
    }
}

fn uuid_of(device: usize) -> [u8; 16] {
    let mut uuid = *b"cuda-emu-gpu-000";
    uuid[15] = device as u8;
    uuid
}

/// Returns the address of a call of the installed library that only returns `CUDA_ERROR_NOT_SUPPORTED`.
fn refused(name: &str) -> Option<std::ptr::NonNull<c_void>> {
    let mut own = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `own` has room for the description that `dladdr` writes.
    if unsafe { libc::dladdr(cuInit as *const c_void, own.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` succeeded, so it has filled `own`.
    let own = unsafe { own.assume_init() };
    // SAFETY: `dli_fname` is the path of this loaded library, and RTLD_NOLOAD does not run its code again.
    let library = unsafe { libc::dlopen(own.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    let library = std::ptr::NonNull::new(library)?;
    let variants = [format!("{name}_v3"), format!("{name}_v2"), name.to_owned()];
    variants.into_iter().find_map(|name| {
        let name = std::ffi::CString::new(name).ok()?;
        // SAFETY: the library is loaded, and the name ends in NUL.
        std::ptr::NonNull::new(unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) })
    })
}

/// Writes the profiles of the devices, in at most `room` bytes, and returns 0. Only the stand-in has this
/// call, so a program that finds it knows that it uses the stand-in.
///
/// # Safety
///
/// `model` must be valid for writes of `room` bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuda_emu_model(model: Out<c_char>, room: c_int) -> c_int {
    crate::c_abi::answer(move || {
        let driver = lock()?;
        let profiles = driver.config.gpus.iter().map(|gpu| {
            let delay = gpu.delay.map_or(String::new(), |delay| format!(", {delay} longer"));
            format!("{} ({}){delay}", gpu.profile.name, gpu.profile.source)
        });
        let text = profiles.collect::<Vec<_>>().join("; ");
        // SAFETY: C passes a buffer of `room` bytes.
        unsafe { model.cut_text(&text, room) }
    })
}
