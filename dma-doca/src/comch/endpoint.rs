//! A server or client of the comm channel, on a progress engine of its own.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, Result};
use doca_sys::Comch;
use doca_sys::bindings::*;

use super::callbacks::{Events, Outgoing, connected, disconnected, not_sent, received, sent};
use crate::device::{Device, OpenRepresentor};
use crate::error::{check, error, failed};
use crate::ffi::{creation, out};

/// The longest message in bytes, if the library does not report it.
const MAX_MESSAGE: u32 = 4080;
/// Maximum number of messages being sent.
const SEND_TASKS: u32 = 32;
/// Time limit for shutting an endpoint down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Endpoint {
    device: Arc<Device>,
    calls: Comch,
    pe: *mut doca_pe,
    ctx: *mut doca_ctx,
    side: EndpointSide,
    max: u32,
    handle: Option<i32>,
    /// State of the callbacks. Boxed, because callbacks use its address.
    events: Box<Events>,
}

// SAFETY: the SDK's objects have no thread-local state, and the endpoint's lock admits one thread at a time.
unsafe impl Send for Endpoint {}

#[derive(Debug)]
enum EndpointSide {
    Server(
        *mut doca_comch_server,
        #[expect(dead_code, reason = "open for as long as the server")] OpenRepresentor,
    ),
    Client(*mut doca_comch_client),
}

#[derive(Debug)]
pub(super) enum Sent {
    Waiting,
    Done,
    Failed(Error),
}

#[derive(Debug)]
pub(super) struct Sleep(Option<OwnedFd>);

impl Sleep {
    /// Sleeps until an event occurs, at most for `most`.
    pub(super) fn nap(&self, most: Duration) {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        match (&self.0, Timespec::try_from(most)) {
            (Some(fd), Ok(most)) => {
                let _ = poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&most));
            }
            _ => std::thread::sleep(most.min(Duration::from_micros(100))),
        }
    }
}

impl Endpoint {
    /// Checks that the name of a server is not empty, and that it does not exceed the limit of the device.
    pub(super) fn check_name(device: &Device, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(
                error(ErrorKind::InvalidArgument, "an empty name").with_hint("give the server a name")
            );
        }
        let ask = device.sdk.comch.and_then(|calls| calls.doca_comch_cap_get_max_name_len);
        let Some(ask) = ask else { return Ok(()) };
        // SAFETY: the info belongs to an open device, and `out` passes a pointer that can be written.
        let most = out(&device.sdk, "", u32::MAX, |p| unsafe { ask(device.info(), p) }).unwrap_or(u32::MAX);
        // The limit includes the NUL.
        if name.len() >= most as usize {
            return Err(error(ErrorKind::OutOfRange, format!("the name {name:?}"))
                .with_numbers(name.len() as u64, u64::from(most) - 1)
                .with_hint("shorten the name"));
        }
        Ok(())
    }

    /// Starts a server for the function of `representor`, or a client if there is no representor.
    pub(super) fn new(
        device: &Arc<Device>,
        name: &CStr,
        representor: Option<OpenRepresentor>,
    ) -> Result<Self> {
        let sdk = &device.sdk;
        let Some(calls) = sdk.comch else { return Err(error(ErrorKind::MissingSdk, "no comm channel")) };
        let _serial = creation();
        // SAFETY: `out` passes a pointer that can be written.
        let pe =
            out(sdk, "doca_pe_create", std::ptr::null_mut(), |p| unsafe { (sdk.common.doca_pe_create)(p) })?;
        let made = match representor {
            Some(representor) => {
                // SAFETY: the device and the representor are open, the name is a C string, and `out` passes a
                // pointer that can be written.
                let server = out(sdk, "doca_comch_server_create", std::ptr::null_mut(), |p| unsafe {
                    (calls.doca_comch_server_create)(device.raw(), representor.raw(), name.as_ptr(), p)
                });
                server.map(|raw| {
                    // SAFETY: the server was created above, and is not destroyed.
                    let ctx = unsafe { (calls.doca_comch_server_as_ctx)(raw) };
                    (ctx, EndpointSide::Server(raw, representor))
                })
            }
            None => {
                // SAFETY: the device is open, the name is a C string, and `out` passes a pointer that can be
                // written.
                let client = out(sdk, "doca_comch_client_create", std::ptr::null_mut(), |p| unsafe {
                    (calls.doca_comch_client_create)(device.raw(), name.as_ptr(), p)
                });
                client.map(|raw| {
                    // SAFETY: the client was created above, and is not destroyed.
                    let ctx = unsafe { (calls.doca_comch_client_as_ctx)(raw) };
                    (ctx, EndpointSide::Client(raw))
                })
            }
        };
        let (ctx, side) = made.inspect_err(|_| {
            // SAFETY: the progress engine was created above, no context is connected to it, and it is not
            // used again.
            unsafe { (sdk.common.doca_pe_destroy)(pe) };
        })?;
        let ask = |call: Option<unsafe extern "C" fn(*const doca_devinfo, *mut u32) -> doca_error_t>,
                   most: u32| {
            // SAFETY: the info belongs to an open device, and `out` passes a pointer that can be written.
            call.and_then(|call| out(sdk, "", 0, |p| unsafe { call(device.info(), p) }).ok()).unwrap_or(most)
        };
        let max = ask(calls.doca_comch_cap_get_max_msg_size, MAX_MESSAGE);
        let tasks = ask(calls.doca_comch_cap_get_max_send_tasks, SEND_TASKS).clamp(1, SEND_TASKS);
        let mut endpoint = Self {
            device: Arc::clone(device),
            calls,
            pe,
            ctx,
            side,
            max,
            handle: None,
            events: Box::default(),
        };
        // Unlock: if a call below fails, dropping the endpoint takes this lock.
        drop(_serial);
        endpoint.events.client.set(matches!(endpoint.side, EndpointSide::Client(_)));
        endpoint.configure(tasks)?;
        endpoint.start()?;
        endpoint.handle = endpoint.notification();
        Ok(endpoint)
    }

    fn configure(&self, tasks: u32) -> Result<()> {
        let (sdk, calls, max) = (&self.device.sdk, &self.calls, self.max);
        macro_rules! call {
            ($name:ident($($argument:expr),*)) => {
                // SAFETY: the server or client exists and is not started, and the callbacks have the types
                // that the calls require.
                check(sdk, stringify!($name), unsafe { (calls.$name)($($argument),*) })?
            };
        }
        match self.side {
            EndpointSide::Server(raw, _) => {
                call!(doca_comch_server_set_max_msg_size(raw, max));
                call!(doca_comch_server_task_send_set_conf(raw, Some(sent), Some(not_sent), tasks));
                call!(doca_comch_server_event_msg_recv_register(raw, Some(received)));
                call!(doca_comch_server_event_connection_status_changed_register(
                    raw,
                    Some(connected),
                    Some(disconnected)
                ));
            }
            EndpointSide::Client(raw) => {
                call!(doca_comch_client_set_max_msg_size(raw, max));
                call!(doca_comch_client_task_send_set_conf(raw, Some(sent), Some(not_sent), tasks));
                call!(doca_comch_client_event_msg_recv_register(raw, Some(received)));
            }
        }
        // SAFETY: both objects were created by `new`, and neither is connected.
        check(sdk, "doca_pe_connect_ctx", unsafe { (sdk.common.doca_pe_connect_ctx)(self.pe, self.ctx) })
    }

    fn start(&self) -> Result<()> {
        let sdk = &self.device.sdk;
        // SAFETY: the context exists and is configured, and `during` provides the state for its callbacks.
        let code = self.events.during(|| unsafe { (sdk.common.doca_ctx_start)(self.ctx) });
        // A client connects while it is starting.
        if code == DOCA_SUCCESS || code == DOCA_ERROR_IN_PROGRESS {
            return Ok(());
        }
        let e = failed(sdk, "doca_ctx_start", code);
        Err(match (&self.side, e.kind()) {
            (EndpointSide::Server(..), ErrorKind::InUse) => {
                e.with_hint("another server has the name: stop it, or choose another name")
            }
            _ => e,
        })
    }

    fn notification(&self) -> Option<i32> {
        let common = &self.device.sdk.common;
        let get = common.doca_pe_get_notification_handle?;
        // SAFETY: the progress engine exists as long as the endpoint, and `out` passes a pointer that can be
        // written.
        let handle = out(&self.device.sdk, "", -1, |p| unsafe { get(self.pe, p) }).ok()?;
        (handle >= 0).then_some(handle)
    }

    pub(super) const fn max(&self) -> usize {
        self.max as usize
    }

    fn state(&self) -> doca_ctx_states {
        let sdk = &self.device.sdk;
        let call = sdk.common.doca_ctx_get_state;
        // SAFETY: the context exists as long as the endpoint, and `out` passes a pointer that can be written.
        out(sdk, "", DOCA_CTX_STATE_IDLE, |p| unsafe { call(self.ctx, p) }).unwrap_or(DOCA_CTX_STATE_STOPPING)
    }

    /// Makes progress until no work is left. Marks all connections as closed if the context has stopped.
    pub(super) fn progress(&mut self) {
        let progress = self.device.sdk.common.doca_pe_progress;
        // SAFETY: the progress engine is this endpoint's, and the caller holds the endpoint's lock.
        self.events.during(|| while unsafe { progress(self.pe) } != 0 {});
        // The SDK stops a client whose server is gone.
        let state = self.state();
        if state == DOCA_CTX_STATE_IDLE || state == DOCA_CTX_STATE_STOPPING {
            self.events.peers.borrow_mut().iter_mut().for_each(|peer| peer.open = false);
        }
    }

    /// Requests a notification, and returns a descriptor that becomes readable at the next event.
    pub(super) fn arm(&mut self) -> Sleep {
        let common = &self.device.sdk.common;
        let (Some(handle), Some(request), Some(clear)) =
            (self.handle, common.doca_pe_request_notification, common.doca_pe_clear_notification)
        else {
            return Sleep(None);
        };
        // SAFETY: `handle` is the notification handle of this progress engine, which exists as long as the
        // endpoint.
        unsafe { clear(self.pe, handle) };
        // SAFETY: the progress engine is this endpoint's, and only this thread uses it now.
        let armed = unsafe { request(self.pe) } == DOCA_SUCCESS;
        // SAFETY: the descriptor is not -1, and is open as long as the progress engine exists.
        let fd = unsafe { BorrowedFd::borrow_raw(handle) };
        // Duplicate the descriptor, because the endpoint may be dropped during the sleep.
        Sleep(armed.then(|| fd.try_clone_to_owned().ok()).flatten())
    }

    /// Returns the number of a client's connection, or `None` while the client is connecting.
    pub(super) fn connected(&mut self) -> Result<Option<u64>> {
        let EndpointSide::Client(raw) = self.side else { return Ok(None) };
        let sdk = &self.device.sdk;
        match self.state() {
            DOCA_CTX_STATE_RUNNING => {
                let get = self.calls.doca_comch_client_get_connection;
                // SAFETY: the client is running, and `out` passes a pointer that can be written.
                let peer = out(sdk, "doca_comch_client_get_connection", std::ptr::null_mut(), |p| unsafe {
                    get(raw, p)
                })?;
                Ok(Some(self.events.own(peer)))
            }
            DOCA_CTX_STATE_STARTING => Ok(None),
            _ => Err(error(ErrorKind::Closed, "the server refused the connection, or does not exist")),
        }
    }

    /// Accepts a connection, if one is waiting, and returns its number.
    pub(super) fn accepted(&mut self) -> Result<Option<u64>> {
        let mut peers = self.events.peers.borrow_mut();
        // Drops connections that closed before they were accepted.
        peers.retain(|peer| peer.accepted || peer.open || !peer.inbox.is_empty());
        if let Some(peer) = peers.iter_mut().find(|peer| !peer.accepted) {
            peer.accepted = true;
            return Ok(Some(peer.number));
        }
        drop(peers);
        match self.state() {
            DOCA_CTX_STATE_RUNNING | DOCA_CTX_STATE_STARTING => Ok(None),
            _ => Err(error(ErrorKind::Closed, "the device stopped the server").with_hint("listen again")),
        }
    }

    /// Takes the next message of a connection. `None` if no message has arrived, `Closed` if the connection
    /// has ended and all its messages were taken.
    pub(super) fn message(&mut self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut peers = self.events.peers.borrow_mut();
        let peer = peers.iter_mut().find(|peer| peer.number == number).ok_or_else(gone)?;
        match peer.inbox.pop_front() {
            Some(message) => Ok(Some(message)),
            None if peer.open => Ok(None),
            None => Err(gone()),
        }
    }

    /// Starts to send a message, and returns the number of the send. `None` if too many messages are being
    /// sent.
    pub(super) fn send(&mut self, number: u64, message: &[u8]) -> Result<Option<u64>> {
        let open = |events: &Events| {
            let peers = events.peers.borrow();
            peers.iter().find(|peer| peer.number == number && peer.open).map(|peer| peer.raw)
        };
        let peer = open(&self.events).ok_or_else(gone)?;
        let (sdk, calls) = (&self.device.sdk, &self.calls);
        let message: Box<[u8]> = message.into();
        let (bytes, len) = (message.as_ptr().cast(), message.len() as u32);
        macro_rules! allocate {
            ($name:ident($raw:expr)) => {{
                // SAFETY: the connection is open and belongs to this endpoint, and `out` passes a pointer
                // that can be written. The message is kept until the task has ended.
                let allocate = |p| unsafe { (calls.$name)($raw, peer, bytes, len, p) };
                (stringify!($name), out(sdk, stringify!($name), std::ptr::null_mut(), allocate))
            }};
        }
        let (name, made) = match self.side {
            EndpointSide::Server(raw, _) => allocate!(doca_comch_server_task_send_alloc_init(raw)),
            EndpointSide::Client(raw) => allocate!(doca_comch_client_task_send_alloc_init(raw)),
        };
        let send = match made {
            Ok(send) => send,
            Err(e) => {
                return match e.native().map(|native| native.code as doca_error_t) {
                    // All tasks are in use.
                    Some(DOCA_ERROR_NO_MEMORY) => Ok(None),
                    Some(DOCA_ERROR_BAD_STATE) => Err(gone()),
                    Some(DOCA_ERROR_INVALID_VALUE) => Err(failed(sdk, name, DOCA_ERROR_TOO_BIG)
                        .with_hint("send shorter messages: the peer has a lower limit")),
                    _ => Err(e),
                };
            }
        };
        // SAFETY: the send task was created above, and is not freed.
        let task = unsafe { (calls.doca_comch_task_send_as_task)(send) };
        // SAFETY: the task was created above and is not submitted yet, and its message is kept until it has
        // ended.
        let code = self.events.during(|| unsafe { (sdk.common.doca_task_submit)(task) });
        if code != DOCA_SUCCESS {
            // SAFETY: the task was not submitted, so its message is not read, and it is not used again.
            unsafe { (sdk.common.doca_task_free)(task) };
            return match code {
                DOCA_ERROR_AGAIN => Ok(None),
                DOCA_ERROR_BAD_STATE => Err(gone()),
                _ => Err(failed(sdk, "doca_task_submit", code)),
            };
        }
        let number = Events::number();
        self.events.sends.borrow_mut().push(Outgoing {
            number,
            task,
            send,
            _message: message,
            end: None,
            abandoned: false,
            status: sdk.common.doca_task_get_status,
            free: sdk.common.doca_task_free,
        });
        Ok(Some(number))
    }

    /// Returns the state of the send with this number. A send that has ended is then forgotten.
    pub(super) fn sent(&mut self, number: u64) -> Sent {
        let mut sends = self.events.sends.borrow_mut();
        let Some(at) = sends.iter().position(|send| send.number == number) else { return Sent::Done };
        match sends[at].end {
            None => Sent::Waiting,
            Some(code) => {
                sends.swap_remove(at);
                match code {
                    DOCA_SUCCESS => Sent::Done,
                    // Libraries return different codes here, but the cause is always a closed connection.
                    _ => Sent::Failed(gone().with_native(crate::error::native(&self.device.sdk, code))),
                }
            }
        }
    }

    /// Records that no caller waits for this send any more. Its message is freed when the send ends.
    pub(super) fn abandon(&mut self, number: u64) {
        let mut sends = self.events.sends.borrow_mut();
        if let Some(at) = sends.iter().position(|send| send.number == number) {
            if sends[at].end.is_some() {
                sends.swap_remove(at);
            } else {
                sends[at].abandoned = true;
            }
        }
    }

    /// Removes a connection. A server also ends it, so that the client is notified.
    pub(super) fn disconnect(&mut self, number: u64) {
        let mut peers = self.events.peers.borrow_mut();
        let Some(at) = peers.iter().position(|peer| peer.number == number) else { return };
        let peer = peers.swap_remove(at);
        drop(peers);
        if let (true, EndpointSide::Server(raw, _), Some(call)) =
            (peer.open, &self.side, self.calls.doca_comch_server_disconnect)
        {
            // SAFETY: the connection is open and belongs to this server, which exists as long as the
            // endpoint.
            self.events.during(|| unsafe { call(*raw, peer.raw) });
            self.progress();
        }
    }

    /// Stops the context and destroys the endpoint's objects. Returns false if that fails or exceeds the time
    /// limit.
    fn take_down(&mut self) -> bool {
        let sdk = Arc::clone(&self.device.sdk);
        // Give messages that are being sent time to complete.
        let until = Instant::now() + SHUTDOWN_TIMEOUT;
        while self.state() == DOCA_CTX_STATE_RUNNING
            && self.events.sends.borrow().iter().any(|send| send.end.is_none())
            && Instant::now() < until
        {
            self.progress();
        }
        let open: Vec<_> = self.events.peers.borrow().iter().map(|peer| peer.number).collect();
        open.into_iter().for_each(|number| self.disconnect(number));
        let until = Instant::now() + SHUTDOWN_TIMEOUT;
        if self.state() != DOCA_CTX_STATE_IDLE {
            // SAFETY: the context exists as long as the endpoint.
            self.events.during(|| unsafe { (sdk.common.doca_ctx_stop)(self.ctx) });
        }
        while self.state() != DOCA_CTX_STATE_IDLE {
            self.progress();
            if Instant::now() > until {
                return false;
            }
            std::thread::yield_now();
        }
        let _serial = creation();
        let code = match &self.side {
            // SAFETY: the server is idle, and not used again.
            EndpointSide::Server(raw, _) => unsafe { (self.calls.doca_comch_server_destroy)(*raw) },
            // SAFETY: the client is idle, and not used again.
            EndpointSide::Client(raw) => unsafe { (self.calls.doca_comch_client_destroy)(*raw) },
        };
        // SAFETY: the progress engine has no contexts left, and is not used again.
        code == DOCA_SUCCESS && unsafe { (sdk.common.doca_pe_destroy)(self.pe) } == DOCA_SUCCESS
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.take_down() {
            // Leak the messages, because the device may still read them. This must precede the log line,
            // because a log subscriber may panic.
            std::mem::forget(std::mem::take(&mut self.events));
            std::mem::forget(Arc::clone(&self.device));
            let device = self.device.address.clone();
            dma_core::deferred_log!(error, target: "doca", device, "a comm channel does not become idle, and is leaked");
        }
    }
}

fn gone() -> Error {
    error(ErrorKind::Closed, "the peer disconnected, or died").with_hint("connect again")
}
