//! Modules, functions and launches.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_char, c_int, c_uint};

use cuda_ptx::{Module, PtxError, Source};
use dma_standin::c_abi::{Addr, Ptr};

use crate::c_abi::{In, Out, Text, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{Function, SHARED_MAX, Shape, lock};

/// `CUjit_option`.
const ERROR_LOG_BUFFER: c_int = 5;
const ERROR_LOG_BUFFER_SIZE: c_int = 6;

/// The buffer of the caller for errors: its address and its length.
type Log = Option<(Ptr<c_char>, usize)>;

/// Reads a module from an image, which is a text that ends in NUL. Compiled images are refused.
fn load(module: Out<u64>, image: Addr, log: Log) -> Outcome {
    module.check()?;
    lock()?.current()?;
    // SAFETY: an image has at least 4 bytes.
    let start = unsafe { image.to::<[u8; 4]>() }.get().copied().ok_or(Code::INVALID_VALUE)?;
    if start == *b"\x7fELF" || matches!(u32::from_le_bytes(start), 0xba55_ed50 | 0x4662_43b1) {
        complain("the stand-in runs PTX texts only, not images that are compiled for a device", log);
        return Err(Code::NO_BINARY_FOR_GPU);
    }
    // SAFETY: an image that is not compiled is a text that ends in NUL.
    let text = unsafe { Text::new(image.raw().cast()) }.str()?;
    load_text(module, text, log)
}

fn load_text(module: Out<u64>, text: &str, log: Log) -> Outcome {
    // A driver takes an image for PTX by its first word (lupinemachines/lupine#440).
    let begins = text.trim_ascii_start();
    if !begins.starts_with(".version") && !begins.starts_with("//") {
        complain("the image is no PTX text: it begins neither with `.version` nor with a comment", log);
        return Err(Code::INVALID_IMAGE);
    }
    let refused = |error: PtxError| {
        complain(&error.to_string(), log);
        if error.is_unsupported { Code::NOT_SUPPORTED } else { Code::INVALID_PTX }
    };
    let source = Source::read(text).map_err(refused)?;
    let memory = lock()?.place_variables(source.initial())?;
    let read = Module::read(&source, memory).map_err(refused);
    let mut driver = lock()?;
    match read {
        Ok(read) => module.put(driver.load_module(read)?),
        Err(code) => {
            if let Some(memory) = memory {
                driver.memory.free_variables(memory);
            }
            Err(code)
        }
    }
}

/// Writes a message to the caller's buffer. Without one, writes the message to stderr.
fn complain(message: &str, log: Log) {
    match log {
        Some((buffer, room)) if room > 0 && !buffer.is_null() => {
            // SAFETY: C passes a buffer of `room` bytes. The text is cut off if it is longer.
            unsafe { buffer.put_text(room, message) };
        }
        _ => eprintln!("cuda-emu: {message}"),
    }
}

/// Returns the buffer for errors among the options.
///
/// # Safety
///
/// C passes `count` options and values.
unsafe fn log_of(count: c_uint, options: In<c_int>, values: In<u64>) -> Outcome<Log> {
    if count == 0 {
        return Ok(None);
    }
    // SAFETY: the caller guarantees the length.
    let options = unsafe { options.slice(count as usize) }?;
    // SAFETY: the caller guarantees the length.
    let values = unsafe { values.slice(count as usize) }?;
    let value =
        |wanted| options.iter().zip(values).find(|(option, _)| **option == wanted).map(|(_, value)| *value);
    let (Some(buffer), Some(size)) = (value(ERROR_LOG_BUFFER), value(ERROR_LOG_BUFFER_SIZE)) else {
        return Ok(None);
    };
    // SAFETY: the value of this option is the address of a buffer of `size` bytes. The size is an `unsigned
    // int`.
    Ok(Some((unsafe { Addr::at(buffer).to() }, size as u32 as usize)))
}

/// # Safety
///
/// `address` is NULL, or has `len` bytes.
unsafe fn bytes_at<'a>(address: Addr, len: usize) -> Outcome<&'a [u8]> {
    require(!address.is_null(), Code::INVALID_VALUE)?;
    // SAFETY: the caller guarantees the length, and bytes have no invalid values.
    let bytes = unsafe { address.to::<u8>() };
    // SAFETY: the caller guarantees the length.
    Ok(unsafe { bytes.slice(len) })
}

/// Collects the parameters of a launch.
///
/// # Safety
///
/// `parameters` is NULL or has an address of each of the kernel's parameters. `extra` is NULL or has the
/// entries that the reference of `cuLaunchKernel` lists.
unsafe fn parameters_of(function: &Function, parameters: In<Addr>, extra: In<u64>) -> Outcome<Box<[u8]>> {
    let kernel = &function.kernel;
    let mut bytes = vec![0; kernel.parameters_len()];
    if kernel.parameters.is_empty() {
        return Ok(bytes.into());
    }
    if !parameters.is_null() {
        // SAFETY: the caller guarantees the length.
        let addresses = unsafe { parameters.slice(kernel.parameters.len()) }?;
        for (parameter, address) in kernel.parameters.iter().zip(addresses) {
            // SAFETY: C passes the address of a value with the parameter's length.
            let value = unsafe { bytes_at(*address, parameter.len) }?;
            bytes[parameter.offset..parameter.offset + parameter.len].copy_from_slice(value);
        }
        return Ok(bytes.into());
    }
    /// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`.
    const POINTER: u64 = 1;
    const SIZE: u64 = 2;
    // SAFETY: `extra` has a pointer and a size, each after its name, and an end.
    let entries = unsafe { extra.slice(4) }?;
    let value = |name| entries.chunks(2).find(|entry| entry[0] == name).map(|entry| entry[1]);
    let (Some(buffer), Some(size)) = (value(POINTER), value(SIZE)) else { return Err(Code::INVALID_VALUE) };
    // SAFETY: C passes the address of a buffer, and the address of its length.
    let len = unsafe { Addr::at(size).to::<usize>() }.get().copied().ok_or(Code::INVALID_VALUE)?;
    require(len >= bytes.len(), Code::INVALID_VALUE)?;
    // SAFETY: C passes a buffer of `len` bytes.
    let given = unsafe { bytes_at(Addr::at(buffer), bytes.len()) }?;
    bytes.copy_from_slice(given);
    Ok(bytes.into())
}

/// # Safety
///
/// See [`parameters_of`].
unsafe fn launch(function: u64, shape: Shape, stream: u64, parameters: In<Addr>, extra: In<u64>) -> Outcome {
    let mut driver = lock()?;
    driver.current()?;
    // SAFETY: the caller meets the requirements of this function.
    let parameters = unsafe { parameters_of(driver.modules.function(function)?, parameters, extra) }?;
    driver.launch(function, shape, parameters, stream)
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared: c_uint,
    stream: u64,
    attributes: In<LaunchAttribute>,
    number: c_uint,
}

const _: () = assert!(size_of::<LaunchConfig>() == 56);

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchAttribute {
    id: c_int,
    value: [u64; 8],
}

/// `CUlaunchAttributeID` of attributes that have no effect here: ignored, access policy, synchronization
/// policy, priority, memory domains.
const HARMLESS: [c_int; 6] = [0, 1, 3, 8, 9, 10];

c_calls! {
    fn cuModuleLoad(module: Out<u64>, path: Text) {
        lock()?.current()?;
        let text = std::fs::read_to_string(path.str()?).map_err(|_| Code::FILE_NOT_FOUND)?;
        load_text(module, &text, None)
    }

    fn cuModuleLoadData(module: Out<u64>, image: Addr) { load(module, image, None) }

    fn cuModuleLoadDataEx(module: Out<u64>, image: Addr, count: c_uint, options: In<c_int>, values: In<u64>) {
        // SAFETY: C passes `count` options and values.
        let log = unsafe { log_of(count, options, values) }?;
        load(module, image, log)
    }

    fn cuModuleUnload(module: u64) { lock()?.unload_module(module) }

    fn cuModuleGetFunction(function: Out<u64>, module: u64, name: Text) {
        function.check()?;
        let found = lock()?.function(module, name.str()?)?;
        function.put(found)
    }

    fn cuModuleGetFunctionCount(count: Out<c_uint>, module: u64) {
        let driver = lock()?;
        count.put(driver.modules.module(module)?.kernels.len() as c_uint)
    }

    fn cuModuleGetGlobal_v2(addr: Out<u64>, len: Out<usize>, module: u64, name: Text) {
        let driver = lock()?;
        let found = driver.modules.module(module)?.variable(name.str()?);
        let (start, bytes) = found.ok_or(Code::NOT_FOUND)?;
        addr.put_if(start);
        len.put_if(bytes as usize);
        Ok(())
    }

    fn cuModuleGetLoadingMode(mode: Out<c_int>) { mode.put(1) }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_int, function: u64) {
        let driver = lock()?;
        let Function { kernel, dynamic_shared_max, .. } = driver.modules.function(function)?;
        value.put(match attribute {
            0 => kernel.threads_max as c_int,
            1 => kernel.shared as c_int,
            // Constant memory, and the cache mode. The module has the constants.
            2 | 7 => 0,
            3 => kernel.local as c_int,
            4 => kernel.register_count().min(255).into(),
            // Versions of the text and of the compiled image.
            5 => 70,
            6 => 90,
            8 => *dynamic_shared_max as c_int,
            9 => -1,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    fn cuFuncSetAttribute(function: u64, attribute: c_int, value: c_int) {
        let mut driver = lock()?;
        let function = driver.modules.function_mut(function)?;
        match attribute {
            8 => {
                let most = SHARED_MAX.saturating_sub(function.kernel.shared);
                let wanted = u32::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
                require(wanted <= most, Code::INVALID_VALUE)?;
                function.dynamic_shared_max = wanted;
                Ok(())
            }
            9 if (-1..=100).contains(&value) => Ok(()),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    fn cuFuncSetCacheConfig(function: u64, _config: c_int) { lock()?.modules.function(function).map(|_| ()) }

    fn cuFuncGetModule(module: Out<u64>, function: u64) {
        let driver = lock()?;
        module.put(driver.modules.function(function)?.module)
    }

    fn cuFuncGetParamInfo(function: u64, index: usize, offset: Out<usize>, len: Out<usize>) {
        let driver = lock()?;
        let parameters = &driver.modules.function(function)?.kernel.parameters;
        let parameter = parameters.get(index).ok_or(Code::INVALID_VALUE)?;
        offset.put(parameter.offset)?;
        len.put_if(parameter.len);
        Ok(())
    }

    fn cuLaunchKernel(
        function: u64,
        blocks_x: c_uint,
        blocks_y: c_uint,
        blocks_z: c_uint,
        threads_x: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        shared: c_uint,
        stream: u64,
        parameters: In<Addr>,
        extra: In<u64>,
    ) {
        let blocks = [blocks_x, blocks_y, blocks_z];
        let shape = Shape { blocks, threads: [threads_x, threads_y, threads_z], shared };
        // SAFETY: C passes what the reference of this call demands.
        unsafe { launch(function, shape, stream, parameters, extra) }
    }

    fn cuLaunchKernelEx(config: In<LaunchConfig>, function: u64, parameters: In<Addr>, extra: In<u64>) {
        let LaunchConfig { blocks, threads, shared, stream, attributes, number } = config.value()?;
        if number > 0 {
            // SAFETY: C passes `number` attributes.
            let attributes = unsafe { attributes.slice(number as usize) }?;
            require(attributes.iter().all(|attribute| HARMLESS.contains(&attribute.id)), Code::NOT_SUPPORTED)?;
        }
        // SAFETY: C passes what the reference of this call demands.
        unsafe { launch(function, Shape { blocks, threads, shared }, stream, parameters, extra) }
    }
}
