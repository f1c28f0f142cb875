//! The endpoint as a context.
#![expect(unsafe_code, reason = "the program's messages")]

use std::io;
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::time::Instant;

use super::connection::Link;
use super::endpoint::{Endpoint, LISTENER, PATIENCE, Send};
use super::frame;
use crate::ctx::{Context, Ctx, Ready, State};
use crate::door::{INVALID, Outcome, c, require};
use crate::log::sdk_log;
use crate::task::{Head, Holder, Pool, Submit};

/// Descriptors served in one progress as long as the program notices nothing.
const ROUNDS: u32 = 64;

impl Context for Endpoint {
    fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    fn start(&self) -> Outcome<State> {
        let conf = self.send_conf.get();
        let tasks = conf.map_or(0, |conf| conf.tasks);
        if self.pool().len() != tasks as usize {
            let context: Weak<dyn Context> = self.this.clone();
            self.pool.replace(Rc::new(Pool::new(tasks, &context, Send::empty)));
        }
        if !self.is_server() {
            self.new_connection(None);
            self.deadline.set(Some(Instant::now() + PATIENCE));
            self.retry_at.set(None);
            self.epoll()?;
            return Ok(State::Starting);
        }
        let listener = self.address.listen().map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                sdk_log!(
                    ERROR,
                    "comch server: there is one for {} already",
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
                // A socket without room is closed all the same, which tells the other side as well.
                let _ = connection.send(&[&[frame::BYE]]);
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
        served && self.ended.borrow().is_empty() && self.pool().taken() == 0
    }

    fn release(&self) {
        self.ready.borrow_mut().clear();
        let connections = self.connections.borrow().clone();
        for connection in &connections {
            self.remove(connection);
        }
    }

    fn progress(&self) -> bool {
        let next = self.ended.borrow_mut().pop_front();
        if let Some((index, status)) = next {
            self.report(index, status);
            return true;
        }
        match self.ctx.state() {
            State::Idle => return false,
            State::Starting if self.look() => return true,
            _ => {}
        }
        // What the program does not notice is no progress to it: on to the next, and once more for what that led to.
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
        require(self.ctx.state() == State::Running, c::DOCA_ERROR_BAD_STATE)?;
        let pool = self.pool();
        let task = pool.find(head).ok_or(INVALID)?;
        let connection = task.body.connection.borrow().clone().ok_or(INVALID)?;
        require(connection.link.get() == Link::Open, c::DOCA_ERROR_NOT_CONNECTED)?;
        // SAFETY: the message lies where the program said that it does, until the task ends.
        let message =
            unsafe { std::slice::from_raw_parts(task.body.message.get(), task.body.len.get() as usize) };
        let mut pending = connection.pending.borrow_mut();
        let sent = if pending.is_empty() {
            connection.send_message(message)
        } else {
            Err(io::ErrorKind::WouldBlock.into())
        };
        match sent {
            Ok(()) => self.ended.borrow_mut().push_back((head.index, c::DOCA_SUCCESS)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pending.push_back((head.index, message.to_vec()));
                drop(pending);
                self.watch_room(&connection, true);
            }
            Err(_) => self.ended.borrow_mut().push_back((head.index, c::DOCA_ERROR_CONNECTION_RESET)),
        }
        head.holder.set(Holder::Device);
        self.ctx.in_flight.set(self.ctx.in_flight.get() + 1);
        Ok(())
    }

    fn free(&self, head: &Head) {
        let pool = self.pool();
        if let Some(task) = pool.find(head) {
            task.body.connection.replace(None);
            pool.put(head);
        }
    }

    fn ready(&self) -> Ready {
        if !self.ended.borrow().is_empty() || !self.ready.borrow().is_empty() {
            return Ready::Now;
        }
        if self.ctx.state() == State::Stopping && self.is_drained() {
            return Ready::Now;
        }
        if self.attention.sleep(self.ctx.pe().and_then(|pe| pe.timer())) {
            return Ready::Now;
        }
        // A client that has no socket looks again; one that waits for an answer gives up in time.
        let now = Instant::now();
        let looks = match self.client_connection() {
            // Not looked yet: now.
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
