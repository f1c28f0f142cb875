//! Copies from and to another host: the choice of their queue pair, and its connection.
//!
//! One queue pair is in use at a time. The queue changes to another only when no request is in flight, so
//! that completions stay in order and fences work.
#![expect(unsafe_code, reason = "reads requests of the ring")]

use std::ptr;

use dma_core::{Error, ErrorKind, MemoryRequest, RawRegion, Result, Segment};

use crate::error::{self, FLUSHED, REMOTE, error};
use crate::import::id_of;
use crate::queue::{PairState, RdmaQueue};
use crate::region::{RdmaRegion, keys};
use crate::route::{PIECE, Relay, Route, Target};
use crate::verbs::{SEND_SIGNALED, WR_RDMA_WRITE, ibv_sge};

/// Number of bytes that a proof reads.
const PROOF: usize = 8;

impl RdmaQueue {
    /// Chooses the queue pair for a copy between these imports. The number 0 stands for memory of this
    /// process.
    #[cold]
    pub(crate) fn route(&mut self, ids: (u32, u32)) -> Result<Route> {
        if self.relay.is_some() {
            return Ok(Route::Later);
        }
        let relays = ids.0 != 0 && ids.1 != 0;
        let id = ids.0.max(ids.1);
        if relays || id != self.target() {
            if self.done != self.head {
                self.ring();
                return Ok(Route::Later);
            }
            self.switch(if relays { ids.0 } else { id })?;
        }
        if !matches!(self.state, PairState::Runs | PairState::Connecting(_)) && !self.obstacle()? {
            return Ok(Route::Later);
        }
        let in_flight = self.head - self.done;
        Ok(match &self.link {
            _ if relays => Route::Relay,
            Some(link) if in_flight >= link.room => Route::Later,
            _ => Route::Ready,
        })
    }

    fn target(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.id)
    }

    /// Switches to the queue pair of an import, or to this process's own queue pair for 0. No request may be
    /// in flight.
    fn switch(&mut self, id: u32) -> Result<()> {
        if id == self.target() {
            return Ok(());
        }
        if id == 0 {
            self.switch_to_own();
            return Ok(());
        }
        let import = self.inner.import(id)?;
        let most = self.inner.device.attr.max_qp_wr.min(self.inner.device.attr.max_cqe.saturating_sub(1));
        let slots = (2 * self.depth).min(usize::try_from(most).unwrap_or(0));
        if slots < 2 {
            return Err(error(ErrorKind::OutOfResources, "a copy to another host needs two requests")
                .with_hint("the device's max_qp_wr and max_cqe limit their number (`ibv_devinfo -v`)"));
        }
        let bounce = self.bounce()?.info().segment(PIECE, PROOF);
        let is_connected = self.pair.use_link(&import, slots).inspect_err(|_| self.switch_to_own())?;
        self.link = Some(Target::of(&import, slots));
        self.state = if is_connected { PairState::Runs } else { PairState::Unconnected };
        // SAFETY: this is the only request of its ring, and providers copied it when it was posted.
        let proof = unsafe { &mut *self.proof.at(0) };
        let grant = &import.grant;
        proof.sge = ibv_sge { addr: bounce.addr.0, length: PROOF as u32, lkey: keys(bounce.key).0 };
        proof.wr.next = ptr::null_mut();
        proof.wr.send_flags = SEND_SIGNALED;
        (proof.wr.remote_addr, proof.wr.rkey) = (grant.proof_addr, grant.proof_rkey);
        Ok(())
    }

    fn switch_to_own(&mut self) {
        self.link = None;
        self.state = if self.pair.use_own() {
            PairState::Runs
        } else {
            PairState::Down(error(ErrorKind::DeviceFault, "the queue pair is not connected"))
        };
    }

    /// Returns the queue's own memory: the bounce buffer for copies between two imports, and after it the
    /// bytes of the read that proves a write.
    fn bounce(&mut self) -> Result<&RdmaRegion> {
        let bounce = match self.bounce.take() {
            Some(bounce) => bounce,
            None => RdmaRegion::allocate(&self.inner, &MemoryRequest::new(PIECE + PROOF))?,
        };
        Ok(self.bounce.insert(bounce))
    }

    /// Begins to connect the link in use.
    #[cold]
    pub(crate) fn connect(&mut self) -> Result<()> {
        self.state = PairState::Connecting(self.pair.connect()?);
        Ok(())
    }

    /// Completes the connection if the exporter has accepted it, and posts the waiting requests.
    #[cold]
    pub(crate) fn connected(&mut self) {
        let PairState::Connecting(connecting) = &mut self.state else { return };
        let Some(agreed) = connecting.outcome() else { return };
        match agreed.and_then(|agreed| self.pair.join(agreed)) {
            Ok(()) => {
                self.state = PairState::Runs;
                self.ring();
            }
            Err(error) => self.not_connected(&error),
        }
    }

    /// Ends all copies that wait for a connection.
    #[cold]
    fn not_connected(&mut self, why: &Error) {
        let (device, error) = (self.pair.device().name.clone(), why.to_string());
        dma_core::deferred_log!(warn, device, why = error, "a queue pair cannot be connected to an exporter");
        // The link must be reset, because one side may have been connected. There is no link if its queue
        // pair could not be made.
        if self.link.is_none() || self.abort_link() {
            self.end_all(error::connecting(why.kind()));
        }
    }

    /// Resets the link in use. Returns false if the reset fails.
    fn abort_link(&mut self) -> bool {
        let let_go = self.pair.quiesce();
        self.state = if let_go {
            PairState::Unconnected
        } else {
            PairState::Lost(
                error(ErrorKind::DeviceLost, "the device can neither reset nor destroy a queue pair")
                    .with_hint("see `dmesg`, then open the engine again"),
            )
        };
        let_go
    }

    /// Resets the link in use after a failure, and connects it again if requests were submitted since.
    #[cold]
    pub(crate) fn disconnect(&mut self) {
        if !self.abort_link() {
            return;
        }
        self.resets += 1;
        if self.posted == self.head {
            self.relay = None;
        } else if let Err(why) = self.connect() {
            self.not_connected(&why);
        }
    }

    /// Returns the code to report for a status. Writes over a link before the failure are reported as
    /// flushed, because they may not have arrived.
    #[cold]
    pub(crate) fn reported_code(&mut self, status: i32, number: u64) -> i32 {
        if self.link.is_none() {
            return status;
        }
        for before in self.done..number {
            // SAFETY: the request is within the ring, and is not being written.
            let opcode = unsafe { (*self.ring.at(before)).wr.opcode };
            if opcode == WR_RDMA_WRITE {
                let place = self.place(before);
                self.codes[place] = FLUSHED;
            }
        }
        if status == FLUSHED { FLUSHED } else { REMOTE + status }
    }

    /// Begins a relay. No request may be in flight.
    #[cold]
    pub(crate) fn begin_relay(&mut self, token: u64, src: Segment, dst: Segment) {
        let place = self.place(self.head);
        self.tokens[place] = token;
        self.head += 1;
        self.relay = Some(Relay { src, dst, at: 0, writes: false });
        self.relay();
    }

    /// Posts the next step of the relay, if none is in flight.
    #[cold]
    pub(crate) fn relay(&mut self) {
        let Some(relay) = &self.relay else { return };
        if self.done == self.head {
            self.relay = None;
            return;
        }
        if self.posted == self.head || !matches!(self.state, PairState::Runs | PairState::Connecting(_)) {
            return;
        }
        let (at, writes, piece) = (relay.at, relay.writes, relay.piece());
        let part = |of: Segment| Segment { addr: of.addr.offset(at), len: piece, ..of };
        let (from, to) = (part(relay.src), part(relay.dst));
        let step = self.bounce().map(|bounce| bounce.info().segment(0, piece)).and_then(|bounce| {
            let (src, dst) = if writes { (bounce, to) } else { (from, bounce) };
            self.switch(id_of(if writes { to } else { from }.key))?;
            self.write_at(self.head - 1, src, dst, 0);
            self.obstacle()
        });
        match step {
            Ok(_) => self.ring(),
            Err(why) => self.not_connected(&why),
        }
    }
}
