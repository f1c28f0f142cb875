//! Contexts: which of them is current, the primary ones, their end, and access to peers.

use super::objects::{Context, PrimaryContext};
use super::{CURRENT, Driver, Locked, lock, wait};
use crate::codes::{Code, Outcome, require};

/// Changes which context is current.
pub(crate) mod current {
    use super::{CURRENT, Code, Outcome};

    #[inline]
    pub(crate) fn get() -> Option<u64> {
        CURRENT.with_borrow(|stack| stack.last().copied())
    }

    pub(crate) fn push(context: u64) {
        CURRENT.with_borrow_mut(|stack| stack.push(context));
    }

    pub(crate) fn pop() -> Outcome<u64> {
        CURRENT.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn set(context: u64) {
        CURRENT.with_borrow_mut(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        });
    }
}

impl Driver {
    /// Returns a context, if it exists.
    pub(crate) fn context(&self, context: u64) -> Outcome<&Context> {
        self.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn context_mut(&mut self, context: u64) -> Outcome<&mut Context> {
        self.contexts.get_mut(&context).ok_or(Code::INVALID_CONTEXT)
    }

    /// Returns the current context and its device, unless a failure ended the context.
    #[inline]
    pub(crate) fn current(&self) -> Outcome<(u64, usize)> {
        let context = current::get().ok_or(Code::INVALID_CONTEXT)?;
        let Context { device, dead, .. } = self.context(context)?;
        match dead {
            None => Ok((context, *device)),
            Some(code) => Err(*code),
        }
    }

    pub(crate) fn create_context(&mut self, device: usize, flags: u32) -> u64 {
        let handle = self.handle();
        let context = Context { device, flags, primary: false, dead: None, legacy: None, peers: Vec::new() };
        self.contexts.insert(handle, context);
        handle
    }

    pub(crate) fn retain_primary(&mut self, device: usize) -> u64 {
        let PrimaryContext { context, flags, .. } = self.primary[device];
        let handle = context.unwrap_or_else(|| {
            let handle = self.create_context(device, flags);
            if let Some(context) = self.contexts.get_mut(&handle) {
                context.primary = true;
            }
            handle
        });
        let primary = &mut self.primary[device];
        primary.context = Some(handle);
        primary.retained += 1;
        handle
    }

    /// Returns the flags of a device's primary context, and true if the context exists.
    pub(crate) fn primary_state(&self, device: usize) -> (u32, bool) {
        let PrimaryContext { context, flags, .. } = self.primary[device];
        (flags, context.is_some())
    }

    pub(crate) fn set_primary_flags(&mut self, device: usize, flags: u32) {
        self.primary[device].flags = flags;
    }

    pub(crate) fn is_primary(&self, context: u64) -> bool {
        self.contexts.get(&context).is_some_and(|context| context.primary)
    }

    /// Ends a context. The context's streams execute no further steps.
    fn remove_context(&mut self, context: u64) {
        let mine: Vec<_> =
            self.streams.iter().filter(|(_, s)| s.context == context).map(|(h, _)| *h).collect();
        for stream in mine {
            self.remove_stream(stream);
        }
        self.events.retain(|_, event| event.context != context);
        self.modules.drop_context(context);
        self.memory.drop_context(context);
        self.contexts.remove(&context);
        for context in self.contexts.values_mut() {
            context.legacy = context.legacy.filter(|stream| self.streams.contains_key(stream));
        }
    }
}

/// Waits until all streams of a context are idle.
pub(crate) fn wait_context(driver: Locked, context: u64) -> Outcome {
    wait(driver, move |driver| match driver.context(context)?.dead {
        Some(code) => Err(code),
        None => Ok(!driver.streams.values().any(|s| s.context == context && !s.steps.is_empty())),
    })
}

/// Releases one use of a primary context. Releasing the last one waits for the context's streams and ends the
/// context, unless another thread has retained it meanwhile.
pub(crate) fn release_primary(mut driver: Locked, device: usize) -> Outcome {
    let last = driver.primary[device].context.filter(|_| driver.primary[device].retained == 1);
    let mut waited = Ok(());
    if let Some(context) = last
        && driver.context(context)?.dead.is_none()
    {
        drop(driver);
        waited = wait_context(lock()?, context);
        driver = lock()?;
    }
    let primary = &mut driver.primary[device];
    primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
    if let Some(context) = primary.context.filter(|_| primary.retained == 0)
        && driver.context(context)?.dead.is_none()
    {
        driver.remove_context(context);
        driver.primary[device].context = None;
    }
    waited
}

/// Ends a context. A context that a failure ended stays lost; only a new process can use the device again.
pub(crate) fn end_context(driver: Locked, context: u64) -> Outcome {
    if driver.context(context)?.dead.is_some() {
        return Ok(());
    }
    drop(driver);
    wait_context(lock()?, context)?;
    lock()?.remove_context(context);
    Ok(())
}

/// Grants a context access to another's memory. Copies of the stand-in need no such permission.
pub(crate) fn enable_peer(driver: &mut Driver, peer: u64) -> Outcome {
    let (context, device) = driver.current()?;
    require(driver.context(peer)?.device != device, Code::INVALID_DEVICE)?;
    let peers = &mut driver.context_mut(context)?.peers;
    require(!peers.contains(&peer), Code::PEER_ACCESS_ALREADY_ENABLED)?;
    peers.push(peer);
    Ok(())
}

/// Revokes the access that `enable_peer` granted.
pub(crate) fn disable_peer(driver: &mut Driver, peer: u64) -> Outcome {
    let (context, _) = driver.current()?;
    let peers = &mut driver.context_mut(context)?.peers;
    let at = peers.iter().position(|known| *known == peer).ok_or(Code::PEER_ACCESS_NOT_ENABLED)?;
    peers.remove(at);
    Ok(())
}
