//! The calls of `doca_comch.h` that take a connection.
#![expect(unsafe_code, reason = "functions that C calls by name")]

use std::ptr;
use std::rc::Rc;

use super::connection::{Connection, Link};
use super::endpoint::Endpoint;
use crate::door::{Code, Handle, INVALID, Out, answer, c};

/// What the program attaches to a connection.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_set_user_data(
    connection: Handle<Connection>,
    user_data: c::doca_data,
) -> Code {
    answer(|| {
        connection.get()?.user_data.set(user_data);
        Ok(())
    })
}

/// What the program attached to a connection; 0 for NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_get_user_data(connection: Handle<Connection>) -> c::doca_data {
    connection.get().map_or(c::doca_data { u64_: 0 }, |connection| connection.user_data.get())
}

fn endpoint_of(connection: &Handle<Connection>, is_server: bool) -> *const Endpoint {
    let endpoint = connection.get().ok().and_then(|connection| connection.endpoint.upgrade());
    endpoint
        .filter(|endpoint| endpoint.is_server() == is_server)
        .map_or(ptr::null(), |endpoint| Rc::as_ptr(&endpoint))
}

/// The server that the connection is of, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_server_get_server_ctx(connection: Handle<Connection>) -> *const Endpoint {
    endpoint_of(&connection, true)
}

/// The client that the connection is of, or NULL.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_client_get_client_ctx(connection: Handle<Connection>) -> *const Endpoint {
    endpoint_of(&connection, false)
}

/// Takes the counters as they are now.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_update_info(connection: Handle<Connection>) -> Code {
    answer(|| {
        let connection = connection.get()?;
        connection.shown.set(connection.counters.get());
        match connection.link.get() {
            Link::Greeting => Err(c::DOCA_ERROR_CONNECTION_INPROGRESS),
            Link::Open => Ok(()),
            Link::Closed => Err(c::DOCA_ERROR_CONNECTION_ABORTED),
        }
    })
}

/// A counter, as of the last update.
#[unsafe(no_mangle)]
extern "C" fn doca_comch_connection_get_counter(
    connection: Handle<Connection>,
    counter: c::doca_comch_counter,
    value: Out<u64>,
) -> Code {
    answer(|| {
        value.check()?;
        let counters = connection.get()?.shown.get();
        let which = counter.checked_sub(c::DOCA_COMCH_COUNTER_SENT_MESSAGES).ok_or(INVALID)?;
        value.put(*counters.get(which as usize).ok_or(INVALID)?)
    })
}
