//! The comm channel: servers, clients, connections and messages.

use std::ffi::CString;
use std::ptr;

use super::{ContextProgram, OK, c, call, within};

/// The card's representor of a host function.
pub(super) fn representor(dev: *mut c::doca_dev) -> *mut c::doca_dev_rep {
    let (mut list, mut count, mut rep) = (ptr::null_mut(), 0, ptr::null_mut());
    let all = c::DOCA_DEVINFO_REP_FILTER_ALL as i32;
    assert_eq!(call!(doca_devinfo_rep_create_list(dev, all, &mut list, &mut count)), OK);
    assert!(count > 0);
    // SAFETY: the list has at least one entry, and lives until it is destroyed below.
    let info = unsafe { *list };
    assert_eq!(call!(doca_dev_rep_open(info, &mut rep)), OK);
    assert_eq!(call!(doca_devinfo_rep_destroy_list(list)), OK);
    rep
}

unsafe extern "C" fn on_sent(task: *mut c::doca_comch_task_send, _: c::doca_data, _: c::doca_data) {
    within(|program| program.ended(call!(doca_comch_task_send_as_task(task)), true));
}

unsafe extern "C" fn on_not_sent(task: *mut c::doca_comch_task_send, _: c::doca_data, _: c::doca_data) {
    within(|program| program.ended(call!(doca_comch_task_send_as_task(task)), false));
}

unsafe extern "C" fn on_message(
    _: *mut c::doca_comch_event_msg_recv,
    bytes: *mut u8,
    len: u32,
    connection: *mut c::doca_comch_connection,
) {
    within(|program| {
        assert!(!connection.is_null() && len > 0);
        // SAFETY: the stand-in passes a message of `len` bytes, which stays unchanged during the callback.
        let message = unsafe { std::slice::from_raw_parts(bytes, len as usize) };
        // Each message is a part of memory with ascending bytes.
        assert!(
            message.windows(2).all(|two| two[1] == two[0].wrapping_add(1)),
            "the received message differs from the sent one"
        );
        program.step_in_callback();
    });
}

unsafe extern "C" fn on_connect(
    _: *mut c::doca_comch_event_connection_status_changed,
    connection: *mut c::doca_comch_connection,
    _: u8,
) {
    within(|program| {
        assert!(!program.connections.borrow().contains(&connection), "a connection came twice");
        program.connections.borrow_mut().push(connection);
        program.step_in_callback();
    });
}

unsafe extern "C" fn on_disconnect(
    _: *mut c::doca_comch_event_connection_status_changed,
    connection: *mut c::doca_comch_connection,
    _: u8,
) {
    within(|program| {
        let known = program.connections.borrow().contains(&connection);
        assert!(known, "an unknown connection ended");
        program.connections.borrow_mut().retain(|other| *other != connection);
        assert!(
            !call!(doca_comch_server_get_server_ctx(connection)).is_null(),
            "the pointer is valid during the call"
        );
        program.step_in_callback();
    });
}

impl ContextProgram {
    fn name(&self) -> CString {
        let which = self.input.byte() % 9;
        let name = match which {
            0..8 => format!("fuzz-{}-{}", std::process::id(), which / 6),
            _ => "n".repeat(self.input.below(200)),
        };
        CString::new(name).expect("no NUL")
    }

    /// Sends a message, which is usually valid.
    fn message(&self) -> (*const std::ffi::c_void, u32) {
        let from = self.input.below(256);
        let len = if self.input.byte().is_multiple_of(8) {
            self.input.below(8192 - 256)
        } else {
            self.input.below(41)
        };
        (self.bytes[from..].as_ptr().cast(), len as u32)
    }

    pub(super) fn server_step(&self) {
        let server = self.input.handle(&self.servers);
        let connection = self.input.handle(&self.connections);
        match self.input.byte() % 12 {
            0..2 => self.create_server(),
            2 => {
                if call!(doca_comch_server_destroy(server)) == OK {
                    self.servers.borrow_mut().retain(|other| *other != server);
                }
            }
            3 => self.use_ctx(call!(doca_comch_server_as_ctx(server))),
            4 => {
                call!(doca_comch_server_disconnect(server, connection));
            }
            5..8 => {
                let ((message, len), mut task) = (self.message(), ptr::null_mut());
                if call!(doca_comch_server_task_send_alloc_init(server, connection, message, len, &mut task))
                    == OK
                {
                    let task = call!(doca_comch_task_send_as_task(task));
                    self.keep(task);
                    self.submit(task, || call!(doca_task_submit(task)));
                }
            }
            8 => {
                let (mut value, mut counter) = (0, 0);
                call!(doca_comch_server_set_max_msg_size(server, self.input.number() as u32));
                call!(doca_comch_server_get_max_msg_size(server, &mut value));
                call!(doca_comch_server_set_recv_queue_size(server, self.input.number() as u32));
                call!(doca_comch_server_get_recv_queue_size(server, &mut value));
                call!(doca_comch_connection_update_info(connection));
                call!(doca_comch_connection_get_counter(
                    connection,
                    u32::from(self.input.byte() % 6),
                    &mut counter
                ));
            }
            9 => {
                call!(doca_comch_connection_set_user_data(connection, c::doca_data { u64_: 3 }));
                call!(doca_comch_connection_get_user_data(connection));
                assert!(call!(doca_comch_client_get_client_ctx(connection)).is_null(), "it is a server's");
            }
            10 => {
                // Passes a handle of the wrong kind.
                assert!(call!(doca_comch_client_as_ctx(server.cast())).is_null());
                assert_ne!(call!(doca_comch_client_destroy(server.cast())), OK);
            }
            _ => {
                let conf = u32::from(self.input.byte() % 5);
                call!(doca_comch_server_task_send_set_conf(server, Some(on_sent), Some(on_not_sent), conf));
                call!(doca_comch_server_event_msg_recv_register(server, Some(on_message)));
                assert_ne!(call!(doca_comch_server_event_msg_recv_register(server, None)), OK);
            }
        }
    }

    fn create_server(&self) {
        let (name, mut server) = (self.name(), ptr::null_mut());
        let dev = if self.input.byte().is_multiple_of(8) { self.host } else { self.dpu };
        let rep = if self.input.byte().is_multiple_of(8) { ptr::null_mut() } else { self.rep };
        if call!(doca_comch_server_create(dev, rep, name.as_ptr(), &mut server)) != OK {
            return;
        }
        self.servers.borrow_mut().push(server);
        let set = [
            call!(doca_comch_server_task_send_set_conf(server, Some(on_sent), Some(on_not_sent), 2)),
            call!(doca_comch_server_event_msg_recv_register(server, Some(on_message))),
            call!(doca_comch_server_event_connection_status_changed_register(
                server,
                Some(on_connect),
                Some(on_disconnect)
            )),
        ];
        assert_eq!(set, [OK; 3]);
        self.adopt(call!(doca_comch_server_as_ctx(server)));
    }

    pub(super) fn client_step(&self) {
        let client = self.input.handle(&self.clients);
        let mut connection = ptr::null_mut();
        match self.input.byte() % 10 {
            0..2 => self.create_client(),
            2 => {
                if call!(doca_comch_client_destroy(client)) == OK {
                    self.clients.borrow_mut().retain(|other| *other != client);
                }
            }
            3 => self.use_ctx(call!(doca_comch_client_as_ctx(client))),
            4..8 => {
                call!(doca_comch_client_get_connection(client, &mut connection));
                let ((message, len), mut task) = (self.message(), ptr::null_mut());
                if call!(doca_comch_client_task_send_alloc_init(client, connection, message, len, &mut task))
                    == OK
                {
                    let task = call!(doca_comch_task_send_as_task(task));
                    self.keep(task);
                    self.submit(task, || call!(doca_task_submit(task)));
                }
            }
            8 => {
                let mut value = 0;
                call!(doca_comch_client_set_max_msg_size(client, self.input.number() as u32));
                call!(doca_comch_client_get_max_msg_size(client, &mut value));
                call!(doca_comch_client_set_recv_queue_size(client, self.input.number() as u32));
                call!(doca_comch_client_get_recv_queue_size(client, &mut value));
                call!(doca_comch_client_get_device(client, &mut ptr::null_mut()));
                if call!(doca_comch_client_get_connection(client, &mut connection)) == OK {
                    assert!(
                        call!(doca_comch_server_get_server_ctx(connection)).is_null(),
                        "it is a client's"
                    );
                    let server = self.input.handle(&self.servers);
                    assert_ne!(call!(doca_comch_server_disconnect(server, connection)), OK, "of another");
                }
            }
            _ => {
                assert!(call!(doca_comch_server_as_ctx(client.cast())).is_null());
                assert_ne!(call!(doca_comch_server_destroy(client.cast())), OK);
            }
        }
    }

    fn create_client(&self) {
        let (name, mut client) = (self.name(), ptr::null_mut());
        let dev = if self.input.byte().is_multiple_of(8) { self.dpu } else { self.host };
        if call!(doca_comch_client_create(dev, name.as_ptr(), &mut client)) != OK {
            return;
        }
        self.clients.borrow_mut().push(client);
        let set = [
            call!(doca_comch_client_task_send_set_conf(client, Some(on_sent), Some(on_not_sent), 2)),
            call!(doca_comch_client_event_msg_recv_register(client, Some(on_message))),
        ];
        assert_eq!(set, [OK; 2]);
        self.adopt(call!(doca_comch_client_as_ctx(client)));
    }

    pub(super) fn destroy_comch(&self) {
        for client in self.clients.take() {
            assert_eq!(call!(doca_comch_client_destroy(client)), OK);
        }
        for server in self.servers.take() {
            assert_eq!(call!(doca_comch_server_destroy(server)), OK);
        }
    }
}
