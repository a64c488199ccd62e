//! The TCP ports that perftest's servers listen at: from the configured range, each for one lease.

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The ports in use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(Arc<Mutex<Used>>);

#[derive(Debug, Default)]
struct Used {
    ports: BTreeSet<u16>,
    /// The one given out last: the next is another, since the kernel keeps closed connections.
    last: u16,
}

/// A port of ours. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    used: Ports,
}

impl Ports {
    /// A port that nobody has: none of our own leases, and no other program.
    pub(crate) fn take(&self, range: &Range<u16>) -> Option<Port> {
        let mut used = self.lock();
        // The first one by chance: an agent that starts anew leaves the ports of the one before alone.
        let from = if range.contains(&used.last) { used.last + 1 } else { rand::random_range(range.clone()) };
        let number = (from..range.end).chain(range.start..from).find(|port| {
            // Closed at once: perftest takes it over a moment later.
            !used.ports.contains(port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
        })?;
        used.ports.insert(number);
        used.last = number;
        Some(Port { number, used: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Port {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.used.lock().ports.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_one_owner_and_one_that_another_program_has_is_left_out() {
        let other = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let taken = other.local_addr().unwrap().port();
        let range = taken..taken.saturating_add(3);
        let ports = Ports::default();
        let (first, second) = (ports.take(&range), ports.take(&range));
        let numbers: Vec<u16> = [&first, &second].into_iter().flatten().map(Port::number).collect();
        assert!(!numbers.contains(&taken), "{numbers:?}");
        assert!(numbers.len() < 2 || numbers[0] != numbers[1], "{numbers:?}");
        assert!(ports.take(&(taken..taken + 1)).is_none());
        drop((first, second));
        assert!(ports.lock().ports.is_empty());
    }
}
