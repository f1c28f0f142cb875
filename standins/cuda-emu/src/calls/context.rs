//! Contexts.
#![expect(unsafe_code, reason = "exports C functions")]

use std::ffi::{c_int, c_uint, c_void};

use crate::c_abi::{In, Out, c_calls};
use crate::codes::{Code, Outcome, require};
use crate::driver::{self, current, lock};

fn create(context: Out<u64>, flags: c_uint, device: c_int) -> Outcome {
    let mut driver = lock()?;
    let device = driver.device(device)?;
    let made = driver.create_context(device, flags);
    current::push(made);
    context.put(made)
}

c_calls! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: c_int) {
        let mut driver = lock()?;
        let device = driver.device(device)?;
        context.put(driver.retain_primary(device))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let driver = lock()?;
        let device = driver.device(device)?;
        driver::release_primary(driver, device)
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let driver = lock()?;
        let (set, exists) = driver.primary_state(driver.device(device)?);
        flags.put(set)?;
        active.put(exists.into())
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        let mut driver = lock()?;
        let device = driver.device(device)?;
        driver.set_primary_flags(device, flags);
        Ok(())
    }

    fn cuCtxCreate_v2(context: Out<u64>, flags: c_uint, device: c_int) { create(context, flags, device) }

    fn cuCtxCreate_v3(context: Out<u64>, _affinity: In<c_void>, _number: c_int, flags: c_uint, device: c_int) {
        create(context, flags, device)
    }

    fn cuCtxCreate_v4(context: Out<u64>, _parameters: In<c_void>, flags: c_uint, device: c_int) {
        create(context, flags, device)
    }

    fn cuCtxDestroy_v2(context: u64) {
        let driver = lock()?;
        driver.context(context)?;
        require(!driver.is_primary(context), Code::INVALID_CONTEXT)?;
        if current::get() == Some(context) {
            current::pop()?;
        }
        driver::end_context(driver, context)
    }

    fn cuCtxPushCurrent_v2(context: u64) {
        lock()?.context(context)?;
        current::push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) {
        let popped = current::pop()?;
        context.put_if(popped);
        Ok(())
    }

    fn cuCtxSetCurrent(context: u64) {
        if context != 0 {
            lock()?.context(context)?;
        }
        current::set(context);
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) { context.put(current::get().unwrap_or(0)) }

    fn cuCtxGetDevice(device: Out<c_int>) {
        let driver = lock()?;
        device.put(driver.context(current::get().ok_or(Code::INVALID_CONTEXT)?)?.device as c_int)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        let driver = lock()?;
        flags.put(driver.context(driver.current()?.0)?.flags)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let mut driver = lock()?;
        let (context, _) = driver.current()?;
        driver.context_mut(context)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) {
        let driver = lock()?;
        let context = if context == 0 { driver.current()?.0 } else { context };
        driver.context(context)?;
        id.put(context)
    }

    fn cuCtxGetApiVersion(_context: u64, version: Out<c_uint>) { version.put(driver::machine().version as c_uint) }

    fn cuCtxSynchronize() {
        let driver = lock()?;
        let (context, _) = driver.current()?;
        driver::wait_context(driver, context)
    }

    fn cuCtxSynchronize_v2(context: u64) {
        let driver = lock()?;
        driver.context(context)?;
        driver::wait_context(driver, context)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        least.put_if(0);
        greatest.put_if(-5);
        Ok(())
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: c_uint) {
        require(flags == 0, Code::INVALID_VALUE)?;
        driver::enable_peer(&mut *lock()?, peer)
    }

    fn cuCtxDisablePeerAccess(peer: u64) { driver::disable_peer(&mut *lock()?, peer) }
}
