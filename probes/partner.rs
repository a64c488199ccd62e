//! The other end of a run that two nodes make together.

/// Another node's RDMA device, as this node's side of a lease knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Partner {
    /// The node, by its name in the membership: the label `peer`.
    pub name: String,
    /// Where its programs answer over TCP: a name or an address of the membership, never of a message.
    pub host: String,
    /// Which of the two this node is.
    pub side: Side,
    /// `ib_write_bw` is a part of the same lease, so host memory is measured before `gdr` is.
    pub host_measured: bool,
    /// What the partner said when the lease began; none while it has not been asked yet.
    pub terms: Option<Terms>,
}

impl Partner {
    /// Nobody in particular: enough to be told whether a run is possible and what it will use.
    pub fn nobody() -> Partner {
        Partner {
            name: String::new(),
            host: String::new(),
            side: Side::Opener,
            host_measured: false,
            terms: None,
        }
    }
}

/// Which of two nodes this one is. Both make the same list of stages, each with its own half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It asked for the lease.
    Opener,
    /// It granted it.
    Server,
}

/// What the partner said of its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The name of its RDMA device, for people.
    pub device: String,
    /// Where its servers listen.
    pub port: u16,
    /// The GID that its device uses; none on InfiniBand.
    pub gid: Option<[u8; 16]>,
    /// The rate of its port, in bits per second; none where it can't tell.
    pub bits_per_second: Option<f64>,
    /// Whether both ends can use GPU memory in this run.
    pub gpu: bool,
    /// Host memory bandwidth measured earlier in this lease; none if `gdr` has to measure it too.
    pub host: Option<HostBandwidth>,
}

/// Bandwidth of host memory, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostBandwidth {
    /// From this node to the partner.
    pub sent: f64,
    /// From the partner to this node.
    pub received: f64,
}
