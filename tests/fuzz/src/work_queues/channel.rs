//! The comm channel: endpoints, connections and messages.

use std::ffi::CString;
use std::ptr;

use super::{OK, Peer, WorkQueueProgram, c, call, now};

/// The card's representor of a host function.
pub(super) fn representor(dev: *mut now::doca_dev) -> *mut now::doca_dev_rep {
    let (mut list, mut count, mut rep) = (ptr::null_mut(), 0, ptr::null_mut());
    assert_eq!(call!(doca_devinfo_rep_list_create(dev, 0, &mut list, &mut count)), OK);
    assert!(count > 0);
    // SAFETY: the list has at least one entry, and lives until it is destroyed below.
    let info = unsafe { *list };
    assert_eq!(call!(doca_dev_rep_open(info, &mut rep)), OK);
    assert_eq!(call!(doca_devinfo_rep_list_destroy(list)), OK);
    rep
}

impl WorkQueueProgram {
    fn name(&self) -> CString {
        let which = self.input.byte() % 9;
        let name = match which {
            0..8 => format!("fuzz-old-{}-{}", std::process::id(), which / 6),
            _ => "n".repeat(self.input.below(200)),
        };
        CString::new(name).expect("no NUL")
    }

    /// Stores a connection, unless it is already stored.
    fn keep(&self, peer: *mut c::doca_comm_channel_addr_t, ep: *mut c::doca_comm_channel_ep_t) {
        let mut peers = self.peers.borrow_mut();
        assert!(!peer.is_null());
        if !peers.iter().any(|other| other.peer == peer) {
            peers.push(Peer { peer, ep });
        }
    }

    pub(super) fn endpoint_step(&self) {
        let ep = self.input.handle(&self.endpoints);
        match self.input.byte() % 8 {
            0..3 => self.create_endpoint(),
            3 => {
                if call!(doca_comm_channel_ep_destroy(ep)) == OK {
                    self.endpoints.borrow_mut().retain(|other| *other != ep);
                    self.peers.borrow_mut().retain(|other| other.ep != ep);
                }
            }
            4 => {
                call!(doca_comm_channel_ep_set_device(ep, self.dev()));
                call!(doca_comm_channel_ep_set_device_rep(ep, self.rep));
                call!(doca_comm_channel_ep_set_max_msg_size(ep, self.input.number() as u16));
                call!(doca_comm_channel_ep_set_send_queue_size(ep, self.input.number() as u16));
                call!(doca_comm_channel_ep_set_recv_queue_size(ep, self.input.number() as u16));
            }
            5 => {
                let (mut send, mut receive, mut changes) = (-1, -1, -1);
                call!(doca_comm_channel_ep_get_event_channel(ep, &mut send, &mut receive));
                call!(doca_comm_channel_ep_get_service_event_channel(ep, &mut changes));
                call!(doca_comm_channel_ep_event_handle_arm_send(ep));
                call!(doca_comm_channel_ep_event_handle_arm_recv(ep));
            }
            6 => _ = call!(doca_comm_channel_ep_listen(ep, self.name().as_ptr())),
            _ => self.connect(ep),
        }
    }

    /// Creates an endpoint, which usually listens or connects.
    pub(super) fn create_endpoint(&self) {
        let mut ep = ptr::null_mut();
        assert_eq!(call!(doca_comm_channel_ep_create(&mut ep)), OK);
        self.endpoints.borrow_mut().push(ep);
        let is_service = self.input.byte().is_multiple_of(3);
        call!(doca_comm_channel_ep_set_device(ep, self.devs[usize::from(!is_service)]));
        if is_service {
            call!(doca_comm_channel_ep_set_device_rep(ep, self.rep));
            call!(doca_comm_channel_ep_listen(ep, self.name().as_ptr()));
        } else {
            self.connect(ep);
        }
    }

    fn connect(&self, ep: *mut c::doca_comm_channel_ep_t) {
        let mut peer = ptr::null_mut();
        if call!(doca_comm_channel_ep_connect(ep, self.name().as_ptr(), &mut peer)) == OK {
            self.keep(peer, ep);
        }
    }

    pub(super) fn message_step(&self) {
        let none = Peer { peer: ptr::null_mut(), ep: ptr::null_mut() };
        let Peer { peer, ep } = self.input.pick(&self.peers).unwrap_or(none);
        let any = self.input.handle(&self.endpoints);
        match self.input.byte() % 8 {
            0..2 => {
                let from = self.input.below(256);
                let most = if self.input.byte().is_multiple_of(8) { 8192 - 256 } else { 41 };
                let (message, len) = (self.text[from..].as_ptr().cast(), self.input.below(most));
                let ep = if self.input.byte().is_multiple_of(8) { any } else { ep };
                call!(doca_comm_channel_ep_sendto(ep, message, len, 0, peer));
            }
            2..5 => self.receive(any),
            5 => {
                let (mut value, mut data) = (0, 0);
                call!(doca_comm_channel_peer_addr_update_info(peer));
                call!(doca_comm_channel_peer_addr_get_recv_bytes(peer, &mut value));
                call!(doca_comm_channel_peer_addr_get_send_messages(peer, &mut value));
                call!(doca_comm_channel_peer_addr_set_user_data(peer, 5));
                call!(doca_comm_channel_peer_addr_get_user_data(peer, &mut data));
                assert!(peer.is_null() || data == 5);
            }
            6 => {
                let ep = if self.input.byte().is_multiple_of(8) { any } else { ep };
                if call!(doca_comm_channel_ep_disconnect(ep, peer)) == OK {
                    self.peers.borrow_mut().retain(|other| other.peer != peer);
                }
            }
            _ => {
                let (mut list, mut count) = (ptr::null_mut(), 0);
                call!(doca_comm_channel_ep_update_service_state_info(any));
                if call!(doca_comm_channel_ep_get_peer_addr_list(any, &mut list, &mut count)) == OK {
                    for place in 0..count as usize {
                        // SAFETY: the call has succeeded, so the list has `count` entries.
                        self.keep(unsafe { *list.add(place) }, any);
                    }
                }
                call!(doca_comm_channel_ep_get_pending_connections(any, &mut count));
            }
        }
    }

    fn receive(&self, ep: *mut c::doca_comm_channel_ep_t) {
        let (mut buffer, mut peer) = ([0_u8; 4080], ptr::null_mut());
        let room = if self.input.byte().is_multiple_of(8) { self.input.below(30) } else { buffer.len() };
        let mut len = room;
        let code =
            call!(doca_comm_channel_ep_recvfrom(ep, buffer.as_mut_ptr().cast(), &mut len, 0, &mut peer));
        if code == OK {
            assert!(len > 0 && len <= room, "a message of {len} bytes in a buffer of {room}");
            let ascends = |two: &[u8]| two[1] == two[0].wrapping_add(1);
            assert!(buffer[..len].windows(2).all(ascends), "the received message differs from the sent one");
            self.keep(peer, ep);
        } else {
            assert_eq!(len, room, "the length changed without a message");
        }
    }
}
