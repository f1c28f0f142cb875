//! The implementation of [`Context`](crate::ctx::Context) for [`Endpoint`].

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use super::connection::Link;
use super::endpoint::{Endpoint, LISTENER, SEARCH_LIMIT};
use super::wire;
use crate::c_abi::{INVALID, Outcome, c, require};
use crate::ctx::{Context, Ctx, State};
use crate::log::sdk_log;
use crate::pe::Ready;
use crate::task::{Head, Submit};

/// Maximum number of descriptors that one progress call serves if no callback runs.
const ROUNDS: u32 = 64;

impl Context for Endpoint {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        self.tasks.prepare();
        if !self.is_server() {
            self.new_connection(None);
            self.deadline.set(Some(Instant::now() + SEARCH_LIMIT));
            self.retry_at.set(None);
            self.epoll()?;
            return Ok(State::Starting);
        }
        let listener = self.address.listen().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                sdk_log!(
                    ERROR,
                    "comch server: a server for {} exists already",
                    self.address.text.replace('\n', " ")
                );
                c::DOCA_ERROR_IN_USE
            }
            _ => c::DOCA_ERROR_OPERATING_SYSTEM,
        })?;
        self.watch(listener.as_fd(), LISTENER)?;
        self.listener.replace(Some(listener));
        Ok(State::Running)
    }

    fn stop(&self) {
        drop(self.listener.take());
        self.deadline.set(None);
        for connection in self.connections.borrow().iter() {
            if connection.link.get() == Link::Open {
                // If the socket has no room for the notice, the peer detects the end when the socket is
                // closed.
                let _ = connection.send(&[&[wire::BYE]]);
            }
            connection.link.set(Link::Closed);
            self.abandon_pending(connection);
            if self.is_server() {
                self.ready.borrow_mut().push_back(connection.id);
            }
        }
    }

    fn is_drained(&self) -> bool {
        let served = !self.is_server() || self.connections.borrow().is_empty();
        served && self.tasks.is_drained()
    }

    fn release(&self) {
        self.ready.borrow_mut().clear();
        let connections = self.connections.borrow().clone();
        for connection in &connections {
            self.remove(connection);
        }
    }

    fn progress(&self) -> bool {
        if self.tasks.report_next(&self.ctx, |_| ()) {
            return true;
        }
        match self.ctx.state() {
            State::Idle => return false,
            State::Starting if self.find_server() => return true,
            _ => {}
        }
        // An event that runs no callback of the program does not count as progress, so continue with the
        // next event.
        for _ in 0..ROUNDS {
            if self.attend() {
                return true;
            }
            let Some(id) = self.next_ready() else { break };
            if self.serve(id) {
                return true;
            }
        }
        self.attend()
    }

    fn submit(&self, head: &Head, _how: Submit) -> Outcome {
        let pool = self.tasks.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let connection = task.body.connection.borrow().clone().ok_or(INVALID)?;
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        let message = task.body.message.get();
        let message = message.get()?;
        let mut pending = connection.pending.borrow_mut();
        let sent = if pending.is_empty() {
            connection.send_message(message)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        };
        match sent {
            Ok(()) => self.tasks.end(head.index, c::DOCA_SUCCESS),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pending.push_back((head.index, message.to_vec()));
                drop(pending);
                self.watch_room(&connection, true);
            }
            Err(_) => self.tasks.end(head.index, c::DOCA_ERROR_CONNECTION_RESET),
        }
        self.ctx.take(head);
        Ok(())
    }

    fn put(&self, head: &Head) {
        if let Some(task) = self.tasks.pool().find(head) {
            task.body.connection.replace(None);
            self.tasks.put(head);
        }
    }

    fn ready(&self) -> Ready {
        if self.tasks.has_ended() || !self.ready.borrow().is_empty() {
            return Ready::Now;
        }
        if self.ctx.state() == State::Stopping && self.is_drained() {
            return Ready::Now;
        }
        if self.wake_flag.sleep(self.ctx.pe().and_then(|pe| pe.timer())) {
            return Ready::Now;
        }
        // A client without a socket tries to connect again.
        let now = Instant::now();
        let looks = match self.client_connection() {
            // Before the first attempt, the time of the next attempt is now.
            Ok(connection) if connection.socket.borrow().is_none() => {
                Some(self.retry_at.get().unwrap_or(now))
            }
            _ => None,
        };
        match (self.ctx.state(), self.deadline.get()) {
            (State::Starting, Some(deadline)) => {
                Ready::After(looks.unwrap_or(deadline).min(deadline).saturating_duration_since(now))
            }
            _ => Ready::WhenWoken,
        }
    }
}
