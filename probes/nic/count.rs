//! Which of a driver's counters we understand, and as what.
//!
//! Every driver names its counters in its own way and some have hundreds. Only those listed here
//! are read and exported, under one word for one meaning, so that a fleet of mixed NICs has one
//! set of series and the number of series has a bound. Names are those of mlx5, bnxt_re, ionic,
//! irdma and rxe. Where a device has several files for one word, the first in the list counts.

use std::collections::BTreeMap;

/// What a counter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Received data, in units of so many bytes.
    Received(u32),
    /// Transmitted data, in units of so many bytes.
    Transmitted(u32),
    /// Losses of the link.
    Downed,
    /// Faults of this link, cable or adapter: judged.
    Fault(&'static str),
    /// Failures seen here that another part may have caused: exported, not judged.
    Error(&'static str),
    /// Packets dropped for want of room or of a receiver.
    Discard(&'static str),
    /// Marks of congestion: they tell of the traffic, not of the hardware.
    Congestion(&'static str),
}

/// One counter file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Its path below the port (`counters/…`, `hw_counters/…`) or the network device.
    pub file: &'static str,
    /// What it counts.
    pub meaning: Meaning,
    /// The width of the field behind it: old management datagrams have narrow ones, which stick at
    /// their maximum instead of wrapping.
    pub bits: u32,
}

const fn wide(file: &'static str, meaning: Meaning) -> Counter {
    Counter { file, meaning, bits: 64 }
}

const fn narrow(file: &'static str, bits: u32, meaning: Meaning) -> Counter {
    Counter { file, meaning, bits }
}

use Meaning::{Congestion, Discard, Downed, Error, Fault, Received, Transmitted};

/// Files below a port.
pub static PORT: &[Counter] = &[
    // InfiniBand's own counters, which mlx5 shows for RoCE too; data is in words of 4 bytes.
    wide("counters/port_rcv_data", Received(4)),
    wide("counters/port_xmit_data", Transmitted(4)),
    narrow("counters/link_downed", 8, Downed),
    narrow("counters/symbol_error", 16, Fault("symbol")),
    narrow("counters/link_error_recovery", 8, Fault("link_recovery")),
    narrow("counters/port_rcv_errors", 16, Fault("receive")),
    narrow("counters/local_link_integrity_errors", 4, Fault("link_integrity")),
    narrow("counters/excessive_buffer_overrun_errors", 4, Fault("buffer_overrun")),
    narrow("counters/port_rcv_remote_physical_errors", 16, Error("remote_physical")),
    narrow("counters/port_xmit_discards", 16, Discard("transmit")),
    wide("counters/port_xmit_wait", Congestion("transmit_wait")),
    // Data by the drivers that have no such counters.
    wide("hw_counters/rx_rdma_ucast_bytes", Received(1)),
    wide("hw_counters/tx_rdma_ucast_bytes", Transmitted(1)),
    wide("hw_counters/rx_bytes", Received(1)),
    wide("hw_counters/tx_bytes", Transmitted(1)),
    wide("hw_counters/ip4InOctets", Received(1)),
    wide("hw_counters/ip4OutOctets", Transmitted(1)),
    wide("hw_counters/link_downed", Downed),
    wide("hw_counters/rx_icrc_encapsulated", Fault("icrc")),
    wide("hw_counters/res_tx_pci_err", Fault("pci_transmit")),
    wide("hw_counters/res_rx_pci_err", Fault("pci_receive")),
    wide("hw_counters/local_ack_timeout_err", Error("ack_timeout")),
    wide("hw_counters/tx_rdma_ack_timeout", Error("ack_timeout")),
    wide("hw_counters/max_retry_exceeded", Error("retry_exceeded")),
    wide("hw_counters/req_tx_retry_excd_err", Error("retry_exceeded")),
    wide("hw_counters/retry_exceeded_err", Error("retry_exceeded")),
    wide("hw_counters/tx_roce_discards", Discard("transmit")),
    wide("hw_counters/rx_roce_discards", Discard("receive")),
    wide("hw_counters/ip4InDiscards", Discard("receive")),
    wide("hw_counters/out_of_buffer", Discard("no_buffer")),
    wide("hw_counters/rx_out_of_buffer", Discard("no_buffer")),
    wide("hw_counters/resp_rx_outof_buf", Discard("no_buffer")),
    wide("hw_counters/np_cnp_sent", Congestion("cnp_sent")),
    wide("hw_counters/tx_cnp_pkts", Congestion("cnp_sent")),
    wide("hw_counters/tx_rdma_cnp_pkts", Congestion("cnp_sent")),
    wide("hw_counters/cnpSent", Congestion("cnp_sent")),
    wide("hw_counters/rp_cnp_handled", Congestion("cnp_handled")),
    wide("hw_counters/rx_cnp_pkts", Congestion("cnp_handled")),
    wide("hw_counters/rx_rdma_cnp_pkts", Congestion("cnp_handled")),
    wide("hw_counters/cnpHandled", Congestion("cnp_handled")),
    wide("hw_counters/np_ecn_marked_roce_packets", Congestion("ecn_marked")),
    wide("hw_counters/rx_ecn_marked_pkts", Congestion("ecn_marked")),
    wide("hw_counters/rx_rdma_ecn_pkts", Congestion("ecn_marked")),
    wide("hw_counters/RxECNMrkd", Congestion("ecn_marked")),
    wide("hw_counters/roce_adp_retrans", Congestion("retransmitted")),
    wide("hw_counters/to_retransmits", Congestion("retransmitted")),
    wide("hw_counters/tx_rdma_retx_pkts", Congestion("retransmitted")),
    wide("hw_counters/completer_retry_err", Congestion("retransmitted")),
    wide("hw_counters/tcpRetransSegs", Congestion("retransmitted")),
    wide("hw_counters/out_of_sequence", Congestion("out_of_sequence")),
    wide("hw_counters/resp_rx_outouf_seq", Congestion("out_of_sequence")),
    wide("hw_counters/out_of_seq_request", Congestion("out_of_sequence")),
];

/// Files below a network device, read for Ethernet only: IP over InfiniBand counts its own packets.
pub static NETDEV: &[Counter] = &[
    wide("carrier_down_count", Downed),
    wide("statistics/rx_crc_errors", Fault("crc")),
    wide("statistics/rx_frame_errors", Fault("frame")),
    wide("statistics/rx_dropped", Discard("netdev_receive")),
    wide("statistics/tx_dropped", Discard("netdev_transmit")),
];

/// The counters that a port has, one for each meaning, with their values.
pub fn known(values: &BTreeMap<String, u64>) -> Vec<(&'static Counter, u64)> {
    let mut found: Vec<(&'static Counter, u64)> = Vec::new();
    for counter in PORT.iter().chain(NETDEV) {
        if let Some(value) = values.get(counter.file)
            && !found.iter().any(|(other, _)| other.meaning.same_as(counter.meaning))
        {
            found.push((counter, *value));
        }
    }
    found
}

impl Meaning {
    /// Whether both make the same series, in whatever unit the driver counts.
    fn same_as(self, other: Meaning) -> bool {
        match (self, other) {
            (Received(_), Received(_)) | (Transmitted(_), Transmitted(_)) => true,
            (one, two) => one == two,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_of_a_meaning_counts_and_unknown_names_do_not() {
        let values = [
            ("counters/link_downed", 4),
            ("hw_counters/link_downed", 9),
            ("carrier_down_count", 7),
            ("counters/port_rcv_data", 100),
            ("hw_counters/rx_bytes", 1),
            ("hw_counters/lifespan", 10),
        ];
        let values = values.map(|(name, value)| (name.to_string(), value)).into();
        let found: Vec<_> = known(&values).iter().map(|(counter, value)| (counter.meaning, *value)).collect();
        assert_eq!(found, [(Received(4), 100), (Downed, 4)]);
    }

    #[test]
    fn each_file_is_listed_once_and_the_words_are_bounded() {
        let all: Vec<_> = PORT.iter().chain(NETDEV).collect();
        let mut files: Vec<_> = all.iter().map(|counter| counter.file).collect();
        files.sort_unstable();
        let count = files.len();
        files.dedup();
        assert_eq!(files.len(), count);
        let mut meanings: Vec<Meaning> = Vec::new();
        for counter in all {
            if !meanings.iter().any(|other| other.same_as(counter.meaning)) {
                meanings.push(counter.meaning);
            }
        }
        // With the eight series of a port's state this keeps 8 NICs under 300, whatever they show.
        assert!(meanings.len() <= 28, "{}", meanings.len());
    }
}
