//! [`Pending`]: connections that have not authenticated yet, and the choice of the one to evict.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Maximum number of pending connections.
pub const MAX_PENDING: usize = 128;
/// Time after which a pending connection is closed, while more than half of [`MAX_PENDING`] are pending.
pub const PENDING_TIMEOUT: Duration = Duration::from_secs(5);

/// The origin of a connection. Connections of one origin compete only with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A network: an IPv4 address, or the first 64 bits of an IPv6 address, because one host can have all
    /// addresses of such a network.
    Network(u64),
    /// A user of this machine, by user id.
    User(u32),
}

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        })
    }
}

/// Connections that have not authenticated yet, oldest first.
///
/// A new connection never waits: if [`MAX_PENDING`] connections are pending, the oldest connection of the
/// origin that has the most is closed. So an origin that opens many connections loses only its own
/// connections. A connection of that origin is still served if it authenticates before the origin has opened
/// [`MAX_PENDING`] more connections.
#[derive(Debug)]
pub struct Pending<C> {
    connections: VecDeque<(Origin, Instant, C)>,
}

impl<C> Default for Pending<C> {
    fn default() -> Self {
        Self { connections: VecDeque::new() }
    }
}

impl<C> Pending<C> {
    /// Adds a connection. If the table was full, removes another connection and returns it: tell its peer
    /// that this side is busy, and close it.
    pub fn add(&mut self, origin: Origin, connection: C) -> Option<C> {
        let evicted = if self.connections.len() >= MAX_PENDING { self.evict(origin) } else { None };
        self.connections.push_back((origin, Instant::now() + PENDING_TIMEOUT, connection));
        evicted
    }

    /// Removes the oldest connection of the origin that has the most connections, counting the new
    /// connection of `newcomer`.
    fn evict(&mut self, newcomer: Origin) -> Option<C> {
        let mut counts = HashMap::from([(newcomer, 1)]);
        for (origin, ..) in &self.connections {
            *counts.entry(*origin).or_insert(0) += 1;
        }
        let most = *counts.values().max()?;
        let oldest = self.connections.iter().position(|(origin, ..)| counts[origin] == most)?;
        self.connections.remove(oldest).map(|(_, _, connection)| connection)
    }

    /// Passes each connection to `keep`, oldest first. Keeps the connections that `keep` returns.
    pub fn filter_map(&mut self, mut keep: impl FnMut(C) -> Option<C>) {
        for _ in 0..self.connections.len() {
            let Some((origin, until, connection)) = self.connections.pop_front() else { break };
            if let Some(connection) = keep(connection) {
                self.connections.push_back((origin, until, connection));
            }
        }
    }

    /// While more than half of [`MAX_PENDING`] connections are pending, removes those that are older than
    /// [`PENDING_TIMEOUT`], oldest first. Returns them: tell their peers that this side is busy, and close
    /// them. Fewer connections do no harm, and a slow peer has all the time that it needs.
    ///
    /// Call this after the connections were read, because bytes of a peer may have waited for this process.
    pub fn expire(&mut self) -> Vec<C> {
        let now = Instant::now();
        let excess = self.connections.len().saturating_sub(MAX_PENDING / 2);
        let expired = self.connections.iter().take(excess).take_while(|(_, until, _)| *until <= now).count();
        self.connections.drain(..expired).map(|(_, _, connection)| connection).collect()
    }

    /// Returns the time when the next connection expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let excess = self.connections.len() > MAX_PENDING / 2;
        self.connections.front().filter(|_| excess).map(|(_, until, _)| *until)
    }

    /// Returns the connections, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &C> {
        self.connections.iter().map(|(_, _, connection)| connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(last: u8) -> Origin {
        IpAddr::from([10, 0, 0, last]).into()
    }

    #[test]
    fn a_full_table_closes_the_oldest_of_the_origin_that_has_most() {
        let mut pending = Pending::default();
        assert_eq!(pending.add(origin(1), 1000), None);
        for number in 0..MAX_PENDING - 1 {
            assert_eq!(pending.add(origin(2), number), None);
        }
        // The oldest connection of the busiest origin is evicted, whichever origin opens a new connection.
        assert_eq!(pending.add(origin(2), 2000), Some(0));
        assert_eq!(pending.add(origin(3), 3000), Some(1));
        assert_eq!(pending.add(origin(1), 1001), Some(2));
        assert_eq!(pending.iter().len(), MAX_PENDING);
        assert!([1000, 1001, 3000].iter().all(|kept| pending.iter().any(|number| number == kept)));
    }

    #[test]
    fn many_origins_of_one_connection_close_the_oldest() {
        let mut pending = Pending::default();
        for number in 0..MAX_PENDING as u32 {
            assert_eq!(pending.add(Origin::User(number), number), None);
        }
        assert_eq!(pending.add(Origin::User(1000), 1000), Some(0));
    }

    #[test]
    fn one_host_is_one_origin() {
        let of = |address: &str| Origin::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn kept_connections_stay_in_order() {
        let mut pending = Pending::default();
        (0..6).for_each(|number| assert_eq!(pending.add(origin(1), number), None));
        pending.filter_map(|number| (number % 2 == 0).then_some(number + 10));
        assert!(pending.iter().copied().eq([10, 12, 14]));
    }

    #[test]
    fn only_a_table_that_is_half_full_closes_slow_connections() {
        let mut pending = Pending::default();
        let half = MAX_PENDING / 2;
        (0..half).for_each(|number| assert_eq!(pending.add(origin(1), number), None));
        let past = Instant::now();
        pending.connections.iter_mut().for_each(|(_, until, _)| *until = past);
        assert!(pending.next_deadline().is_none() && pending.expire().is_empty());
        (half..half + 3).for_each(|number| assert_eq!(pending.add(origin(1), number), None));
        assert_eq!(pending.next_deadline(), Some(past));
        assert_eq!(pending.expire(), [0, 1, 2]);
        assert!(pending.expire().is_empty());
        assert_eq!(pending.add(origin(1), 0), None);
        pending.connections.iter_mut().for_each(|(_, until, _)| *until = past + 2 * PENDING_TIMEOUT);
        assert_eq!(pending.next_deadline(), Some(past + 2 * PENDING_TIMEOUT));
        assert!(pending.expire().is_empty(), "it is not old yet");
    }
}
