//! A server or client of the comm channel, on a progress engine of its own.
#![expect(unsafe_code, reason = "calls the SDK with handles that it gave out")]

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dma_core::{Error, ErrorKind, Result};
use doca_sys::Comch;
use doca_sys::bindings::*;

use super::callbacks::{Outgoing, Told, connected, disconnected, not_sent, received, sent};
use crate::device::{Device, OpenRepresentor};
use crate::error::{check, error, failed};
use crate::ffi::{creation, out};

/// The longest message where the library does not tell.
const MAX_MESSAGE: u32 = 4080;
/// Messages on their way at once, at most.
const SEND_TASKS: u32 = 32;
/// How long taking an endpoint down may take.
const REST: Duration = Duration::from_secs(2);

/// A server or a client.
#[derive(Debug)]
pub(super) struct Endpoint {
    device: Arc<Device>,
    calls: Comch,
    pe: *mut doca_pe,
    ctx: *mut doca_ctx,
    side: Side,
    max: u32,
    handle: Option<i32>,
    /// At an address of its own, since callbacks know it.
    told: Box<Told>,
}

// SAFETY: what it consists of has no thread's state, and is used by one thread at a time, under the lock that it is kept in.
unsafe impl Send for Endpoint {}

#[derive(Debug)]
enum Side {
    Server(
        *mut doca_comch_server,
        #[expect(dead_code, reason = "open for as long as the server")] OpenRepresentor,
    ),
    Client(*mut doca_comch_client),
}

/// What has become of a message.
#[derive(Debug)]
pub(super) enum Sent {
    Waiting,
    Done,
    Failed(Error),
}

/// A descriptor to sleep on.
#[derive(Debug)]
pub(super) struct Sleep(Option<OwnedFd>);

impl Sleep {
    /// Sleeps until something happens, or for `most`.
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
    /// Whether a server of this name can be.
    pub(super) fn check_name(device: &Device, name: &str) -> Result<()> {
        if name.is_empty() {
            return Err(
                error(ErrorKind::InvalidArgument, "an empty name").with_hint("give the server a name")
            );
        }
        let ask = device.sdk.comch.and_then(|calls| calls.doca_comch_cap_get_max_name_len);
        let Some(ask) = ask else { return Ok(()) };
        // SAFETY: an opened device's info.
        let most = out(&device.sdk, "", u32::MAX, |p| unsafe { ask(device.info(), p) }).unwrap_or(u32::MAX);
        // With the NUL at the end.
        if name.len() >= most as usize {
            return Err(error(ErrorKind::OutOfRange, format!("the name {name:?}"))
                .with_numbers(name.len() as u64, u64::from(most) - 1)
                .with_hint("shorten the name"));
        }
        Ok(())
    }

    /// Starts a server for the function that `representor` stands for, or, without one, a client.
    pub(super) fn new(
        device: &Arc<Device>,
        name: &CStr,
        representor: Option<OpenRepresentor>,
    ) -> Result<Self> {
        let sdk = &device.sdk;
        let Some(calls) = sdk.comch else { return Err(error(ErrorKind::MissingSdk, "no comm channel")) };
        let _serial = creation();
        // SAFETY: the pointer can be written.
        let pe =
            out(sdk, "doca_pe_create", std::ptr::null_mut(), |p| unsafe { (sdk.common.doca_pe_create)(p) })?;
        let made = match representor {
            Some(representor) => {
                // SAFETY: an opened device and representor, and a name.
                let server = out(sdk, "doca_comch_server_create", std::ptr::null_mut(), |p| unsafe {
                    (calls.doca_comch_server_create)(device.raw(), representor.raw(), name.as_ptr(), p)
                });
                server.map(|raw| {
                    // SAFETY: made just now.
                    let ctx = unsafe { (calls.doca_comch_server_as_ctx)(raw) };
                    (ctx, Side::Server(raw, representor))
                })
            }
            None => {
                // SAFETY: an opened device, and a name.
                let client = out(sdk, "doca_comch_client_create", std::ptr::null_mut(), |p| unsafe {
                    (calls.doca_comch_client_create)(device.raw(), name.as_ptr(), p)
                });
                client.map(|raw| {
                    // SAFETY: made just now.
                    let ctx = unsafe { (calls.doca_comch_client_as_ctx)(raw) };
                    (ctx, Side::Client(raw))
                })
            }
        };
        let (ctx, side) = made.inspect_err(|_| {
            // SAFETY: made above, with nothing on it.
            unsafe { (sdk.common.doca_pe_destroy)(pe) };
        })?;
        let ask = |call: Option<unsafe extern "C" fn(*const doca_devinfo, *mut u32) -> doca_error_t>,
                   most: u32| {
            // SAFETY: an opened device's info.
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
            told: Box::default(),
        };
        // On failure the drop takes it apart, which needs the lock.
        drop(_serial);
        endpoint.told.client.set(matches!(endpoint.side, Side::Client(_)));
        endpoint.configure(tasks)?;
        endpoint.start()?;
        endpoint.handle = endpoint.notification();
        Ok(endpoint)
    }

    fn configure(&self, tasks: u32) -> Result<()> {
        let (sdk, calls, max) = (&self.device.sdk, &self.calls, self.max);
        // SAFETY (all): an endpoint that is not started, and functions of the right types.
        match &self.side {
            Side::Server(raw, _) => {
                let raw = *raw;
                // SAFETY: as above.
                let code = unsafe { (calls.doca_comch_server_set_max_msg_size)(raw, max) };
                check(sdk, "doca_comch_server_set_max_msg_size", code)?;
                // SAFETY: as above.
                let code = unsafe {
                    (calls.doca_comch_server_task_send_set_conf)(raw, Some(sent), Some(not_sent), tasks)
                };
                check(sdk, "doca_comch_server_task_send_set_conf", code)?;
                // SAFETY: as above.
                let code = unsafe { (calls.doca_comch_server_event_msg_recv_register)(raw, Some(received)) };
                check(sdk, "doca_comch_server_event_msg_recv_register", code)?;
                let register = calls.doca_comch_server_event_connection_status_changed_register;
                // SAFETY: as above.
                let code = unsafe { register(raw, Some(connected), Some(disconnected)) };
                check(sdk, "doca_comch_server_event_connection_status_changed_register", code)?;
            }
            Side::Client(raw) => {
                let raw = *raw;
                // SAFETY: as above.
                let code = unsafe { (calls.doca_comch_client_set_max_msg_size)(raw, max) };
                check(sdk, "doca_comch_client_set_max_msg_size", code)?;
                // SAFETY: as above.
                let code = unsafe {
                    (calls.doca_comch_client_task_send_set_conf)(raw, Some(sent), Some(not_sent), tasks)
                };
                check(sdk, "doca_comch_client_task_send_set_conf", code)?;
                // SAFETY: as above.
                let code = unsafe { (calls.doca_comch_client_event_msg_recv_register)(raw, Some(received)) };
                check(sdk, "doca_comch_client_event_msg_recv_register", code)?;
            }
        }
        // SAFETY: a context and a progress engine, neither of them connected.
        check(sdk, "doca_pe_connect_ctx", unsafe { (sdk.common.doca_pe_connect_ctx)(self.pe, self.ctx) })
    }

    fn start(&self) -> Result<()> {
        let sdk = &self.device.sdk;
        // SAFETY: a configured context.
        let code = self.told.during(|| unsafe { (sdk.common.doca_ctx_start)(self.ctx) });
        // A client is connected when the start has come to its end.
        if code == DOCA_SUCCESS || code == DOCA_ERROR_IN_PROGRESS {
            return Ok(());
        }
        let e = failed(sdk, "doca_ctx_start", code);
        Err(match (&self.side, e.kind()) {
            (Side::Server(..), ErrorKind::InUse) => {
                e.with_hint("another server has the name: stop it, or take another name")
            }
            _ => e,
        })
    }

    fn notification(&self) -> Option<i32> {
        let common = &self.device.sdk.common;
        let get = common.doca_pe_get_notification_handle?;
        // SAFETY: a progress engine.
        let handle = out(&self.device.sdk, "", -1, |p| unsafe { get(self.pe, p) }).ok()?;
        (handle >= 0).then_some(handle)
    }

    /// The longest message, in bytes.
    pub(super) const fn max(&self) -> usize {
        self.max as usize
    }

    fn state(&self) -> doca_ctx_states {
        let sdk = &self.device.sdk;
        let call = sdk.common.doca_ctx_get_state;
        // SAFETY: a context.
        out(sdk, "", DOCA_CTX_STATE_IDLE, |p| unsafe { call(self.ctx, p) }).unwrap_or(DOCA_CTX_STATE_STOPPING)
    }

    /// Lets happen what is to happen now.
    pub(super) fn progress(&mut self) {
        let progress = self.device.sdk.common.doca_pe_progress;
        // SAFETY: this endpoint's progress engine, under its lock.
        self.told.during(|| while unsafe { progress(self.pe) } != 0 {});
        // A client whose server is gone stops by itself.
        let state = self.state();
        if state == DOCA_CTX_STATE_IDLE || state == DOCA_CTX_STATE_STOPPING {
            self.told.peers.borrow_mut().iter_mut().for_each(|peer| peer.open = false);
        }
    }

    /// A descriptor that becomes readable when something happens.
    pub(super) fn arm(&mut self) -> Sleep {
        let common = &self.device.sdk.common;
        let (Some(handle), Some(request), Some(clear)) =
            (self.handle, common.doca_pe_request_notification, common.doca_pe_clear_notification)
        else {
            return Sleep(None);
        };
        // SAFETY: a progress engine and its own handle.
        unsafe { clear(self.pe, handle) };
        // SAFETY: as above.
        let armed = unsafe { request(self.pe) } == DOCA_SUCCESS;
        // SAFETY: not -1, and open for as long as the progress engine.
        let fd = unsafe { BorrowedFd::borrow_raw(handle) };
        // One of its own: the endpoint may go while somebody sleeps.
        Sleep(armed.then(|| fd.try_clone_to_owned().ok()).flatten())
    }

    /// The connection of a client, once it is there.
    pub(super) fn connected(&mut self) -> Result<Option<u64>> {
        let Side::Client(raw) = self.side else { return Ok(None) };
        let sdk = &self.device.sdk;
        match self.state() {
            DOCA_CTX_STATE_RUNNING => {
                let get = self.calls.doca_comch_client_get_connection;
                // SAFETY: a running client.
                let peer = out(sdk, "doca_comch_client_get_connection", std::ptr::null_mut(), |p| unsafe {
                    get(raw, p)
                })?;
                Ok(Some(self.told.own(peer)))
            }
            DOCA_CTX_STATE_STARTING => Ok(None),
            _ => Err(error(ErrorKind::Closed, "the server refused, or there is none")),
        }
    }

    /// A connection of a server's that nobody has had yet.
    pub(super) fn accepted(&mut self) -> Result<Option<u64>> {
        let mut peers = self.told.peers.borrow_mut();
        // Those that came and went before anybody asked.
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

    /// A message of this peer's.
    pub(super) fn message(&mut self, number: u64) -> Result<Option<Vec<u8>>> {
        let mut peers = self.told.peers.borrow_mut();
        let peer = peers.iter_mut().find(|peer| peer.number == number).ok_or_else(gone)?;
        match peer.inbox.pop_front() {
            Some(message) => Ok(Some(message)),
            None if peer.open => Ok(None),
            None => Err(gone()),
        }
    }

    /// Starts to send; `None` if too many messages are on their way.
    pub(super) fn send(&mut self, number: u64, message: &[u8]) -> Result<Option<u64>> {
        let open = |told: &Told| {
            let peers = told.peers.borrow();
            peers.iter().find(|peer| peer.number == number && peer.open).map(|peer| peer.raw)
        };
        let peer = open(&self.told).ok_or_else(gone)?;
        let (sdk, calls) = (&self.device.sdk, &self.calls);
        let message: Box<[u8]> = message.into();
        let (bytes, len) = (message.as_ptr().cast(), message.len() as u32);
        let (name, made) = match &self.side {
            Side::Server(raw, _) => {
                let name = "doca_comch_server_task_send_alloc_init";
                // SAFETY: an open connection of this endpoint's, and a message that stays until the task has ended.
                (
                    name,
                    out(sdk, name, std::ptr::null_mut(), |p| unsafe {
                        (calls.doca_comch_server_task_send_alloc_init)(*raw, peer, bytes, len, p)
                    }),
                )
            }
            Side::Client(raw) => {
                let name = "doca_comch_client_task_send_alloc_init";
                // SAFETY: as above.
                (
                    name,
                    out(sdk, name, std::ptr::null_mut(), |p| unsafe {
                        (calls.doca_comch_client_task_send_alloc_init)(*raw, peer, bytes, len, p)
                    }),
                )
            }
        };
        let send = match made {
            Ok(send) => send,
            Err(e) => {
                return match e.native().map(|native| native.code as doca_error_t) {
                    // All tasks are on their way.
                    Some(DOCA_ERROR_NO_MEMORY) => Ok(None),
                    Some(DOCA_ERROR_BAD_STATE) => Err(gone()),
                    Some(DOCA_ERROR_INVALID_VALUE) => Err(failed(sdk, name, DOCA_ERROR_TOO_BIG)
                        .with_hint("the peer takes shorter messages than this side")),
                    _ => Err(e),
                };
            }
        };
        // SAFETY: made just now.
        let task = unsafe { (calls.doca_comch_task_send_as_task)(send) };
        // SAFETY: a task that is not on its way.
        let code = self.told.during(|| unsafe { (sdk.common.doca_task_submit)(task) });
        if code != DOCA_SUCCESS {
            // SAFETY: it was not taken.
            unsafe { (sdk.common.doca_task_free)(task) };
            return match code {
                DOCA_ERROR_AGAIN => Ok(None),
                DOCA_ERROR_BAD_STATE => Err(gone()),
                _ => Err(failed(sdk, "doca_task_submit", code)),
            };
        }
        let number = Told::number();
        self.told.sends.borrow_mut().push(Outgoing {
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

    /// What has become of a message.
    pub(super) fn sent(&mut self, number: u64) -> Sent {
        let mut sends = self.told.sends.borrow_mut();
        let Some(at) = sends.iter().position(|send| send.number == number) else { return Sent::Done };
        match sends[at].end {
            None => Sent::Waiting,
            Some(code) => {
                sends.swap_remove(at);
                match code {
                    DOCA_SUCCESS => Sent::Done,
                    // Whatever the library calls it: a message that cannot be delivered has nobody to go to.
                    _ => Sent::Failed(gone().with_native(crate::error::native(&self.device.sdk, code))),
                }
            }
        }
    }

    /// Nobody waits for a message any more.
    pub(super) fn abandon(&mut self, number: u64) {
        let mut sends = self.told.sends.borrow_mut();
        if let Some(at) = sends.iter().position(|send| send.number == number) {
            if sends[at].end.is_some() {
                sends.swap_remove(at);
            } else {
                sends[at].abandoned = true;
            }
        }
    }

    /// Ends a connection, and forgets it.
    pub(super) fn disconnect(&mut self, number: u64) {
        let mut peers = self.told.peers.borrow_mut();
        let Some(at) = peers.iter().position(|peer| peer.number == number) else { return };
        let peer = peers.swap_remove(at);
        drop(peers);
        if let (true, Side::Server(raw, _), Some(call)) =
            (peer.open, &self.side, self.calls.doca_comch_server_disconnect)
        {
            // SAFETY: a connection of this server's that is open.
            self.told.during(|| unsafe { call(*raw, peer.raw) });
            self.progress();
        }
    }

    /// Stops the context and takes everything apart. `false` if it does not come to rest.
    fn take_down(&mut self) -> bool {
        let sdk = Arc::clone(&self.device.sdk);
        // What is on its way goes out first, if it does soon.
        let until = Instant::now() + REST;
        while self.state() == DOCA_CTX_STATE_RUNNING
            && self.told.sends.borrow().iter().any(|send| send.end.is_none())
            && Instant::now() < until
        {
            self.progress();
        }
        let open: Vec<_> = self.told.peers.borrow().iter().map(|peer| peer.number).collect();
        open.into_iter().for_each(|number| self.disconnect(number));
        let until = Instant::now() + REST;
        if self.state() != DOCA_CTX_STATE_IDLE {
            // SAFETY: a context.
            self.told.during(|| unsafe { (sdk.common.doca_ctx_stop)(self.ctx) });
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
            // SAFETY: an idle server, not used again.
            Side::Server(raw, _) => unsafe { (self.calls.doca_comch_server_destroy)(*raw) },
            // SAFETY: an idle client, not used again.
            Side::Client(raw) => unsafe { (self.calls.doca_comch_client_destroy)(*raw) },
        };
        // SAFETY: without contexts now, not used again.
        code == DOCA_SUCCESS && unsafe { (sdk.common.doca_pe_destroy)(self.pe) } == DOCA_SUCCESS
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.take_down() {
            // Messages on their way may still be read, even if who listens to the log panics.
            std::mem::forget(std::mem::take(&mut self.told));
            std::mem::forget(Arc::clone(&self.device));
            tracing::error!(target: "doca", device = self.device.address, "a comm channel does not come to rest, and is leaked");
        }
    }
}

/// The error of a peer that is not there any more.
fn gone() -> Error {
    error(ErrorKind::Closed, "the peer disconnected, or died").with_hint("connect again")
}
