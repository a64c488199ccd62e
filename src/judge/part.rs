//! Which part a low value blames, from what else was measured. Pure.

use std::{collections::BTreeSet, fmt};

/// The part that a suspicion is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The runs that tell have not been made yet.
    Undecided,
    Gpu(String),
    /// The way between two GPUs.
    GpuPair(String, String),
    /// The way between a GPU and a NIC.
    GpuToNic {
        gpu: String,
        nic: String,
    },
    /// Low without any network too.
    Nic(String),
    /// Low with several partners, and fine without the network.
    Port(String),
    /// Low with several partners, and nobody knows how it is without the network.
    NicOrPort(String),
    /// Low with this partner, and fine with others.
    Partner(String),
    /// Low with the only partner there is.
    Path {
        nic: String,
        partner: String,
    },
    /// All of the node's GPUs together.
    Node,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Undecided => f.write_str("undecided"),
            Part::Gpu(gpu) => f.write_str(gpu),
            Part::GpuPair(a, b) => write!(f, "{a} to {b} (the way between them)"),
            Part::GpuToNic { gpu, nic } => write!(f, "{gpu} to {nic} (PCIe way)"),
            Part::Nic(nic) => write!(f, "{nic} (NIC or its PCIe way)"),
            Part::Port(nic) => write!(f, "{nic} (port, cable or switch port)"),
            Part::NicOrPort(nic) => write!(f, "{nic} (NIC, cable or switch port)"),
            Part::Partner(partner) => write!(f, "{partner} (that node or the path to it)"),
            Part::Path { nic, partner } => write!(f, "{nic} to {partner} (either end or the path)"),
            Part::Node => f.write_str("node"),
        }
    }
}

impl Part {
    /// Why it is this part, in a sentence.
    pub(crate) fn why(&self) -> &'static str {
        match self {
            Part::Undecided => "the runs that tell which part it is are under way",
            Part::Gpu(_) => "what is low has this GPU in common",
            Part::GpuPair(..) => "only what goes between these two GPUs is low",
            Part::GpuToNic { .. } => {
                "it is low from GPU memory and not from host memory: ACS that sends traffic through the root \
                 complex, a narrow PCIe link, or a GPU far from its NIC"
            }
            Part::Nic(_) => "it is low in loopback too, where no network is involved",
            Part::Port(_) => "it is low with several partners, and not in loopback",
            Part::NicOrPort(_) => "it is low with several partners",
            Part::Partner(_) => "it is low with this partner only",
            Part::Path { .. } => "it is low with the only partner that could be asked",
            Part::Node => "what is low has no single GPU in common",
        }
    }
}

/// What is known of a way that data takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sight {
    /// Not measured since the suspicion came up.
    #[default]
    Unseen,
    Fine,
    Low,
}

/// What was measured around an RDMA device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rail {
    pub(crate) nic: String,
    /// The GPU nearest to it, as far as there is one.
    pub(crate) gpu: Option<String>,
    /// Copies between that GPU and the host.
    pub(crate) gpu_to_host: Sight,
    /// To itself, host memory and GPU memory.
    pub(crate) loopback_host: Sight,
    pub(crate) loopback_gpu: Sight,
    /// With partners, host memory and GPU memory.
    pub(crate) pair_host: Sight,
    pub(crate) pair_gpu: Sight,
    /// Partners with which it was low, and with which it was not.
    pub(crate) low_with: BTreeSet<String>,
    pub(crate) good_with: BTreeSet<String>,
    /// Whether the runs that tell have been made.
    pub(crate) decided: bool,
}

/// The part that low values of an RDMA device blame.
pub(crate) fn of_rail(rail: Rail) -> Part {
    let nic = rail.nic;
    if rail.loopback_host == Sight::Low {
        return Part::Nic(nic);
    }
    let gpu_only = rail.pair_host != Sight::Low
        && (rail.pair_gpu == Sight::Low || rail.loopback_gpu == Sight::Low)
        && (rail.pair_host == Sight::Fine || rail.loopback_host == Sight::Fine);
    if let (true, Some(gpu)) = (gpu_only, rail.gpu) {
        return match rail.gpu_to_host {
            Sight::Low => Part::Gpu(gpu),
            Sight::Unseen | Sight::Fine => Part::GpuToNic { gpu, nic },
        };
    }
    let only_low: Vec<String> = rail.low_with.difference(&rail.good_with).cloned().collect();
    match (only_low.as_slice(), rail.good_with.is_empty()) {
        ([_, _, ..], _) if rail.loopback_host == Sight::Fine => Part::Port(nic),
        ([_, _, ..], _) => Part::NicOrPort(nic),
        ([partner], false) => Part::Partner(partner.clone()),
        ([partner], true) if rail.decided => Part::Path { nic, partner: partner.clone() },
        _ if rail.decided => Part::NicOrPort(nic),
        _ => Part::Undecided,
    }
}

/// The part that low copies between GPUs blame: the GPU that all of them have in common.
pub(crate) fn of_pairs(low: &[(String, String)]) -> Part {
    let mut common: Option<BTreeSet<&String>> = None;
    for (src, dst) in low {
        let ends = BTreeSet::from([src, dst]);
        common = Some(match common {
            None => ends,
            Some(common) => common.intersection(&ends).copied().collect(),
        });
    }
    let common: Vec<&String> = common.into_iter().flatten().collect();
    match common.as_slice() {
        [gpu] => Part::Gpu(gpu.to_string()),
        [a, b] => Part::GpuPair(a.to_string(), b.to_string()),
        _ => Part::Node,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn each_pattern_of_low_ways_names_its_part() {
        use Sight::{Fine, Low, Unseen};
        let rail = |low: &[&str], good: &[&str]| Rail {
            nic: "mlx5_0".into(),
            gpu: Some("0000:05:00.0".into()),
            pair_host: Low,
            low_with: names(low),
            good_with: names(good),
            decided: true,
            ..Rail::default()
        };
        let table = [
            (Rail { loopback_host: Low, ..rail(&["b", "c"], &[]) }, "mlx5_0 (NIC or its PCIe way)"),
            (Rail { loopback_host: Fine, ..rail(&["b", "c"], &[]) }, "mlx5_0 (port, cable or switch port)"),
            (rail(&["b", "c"], &[]), "mlx5_0 (NIC, cable or switch port)"),
            (rail(&["b"], &["c"]), "b (that node or the path to it)"),
            (rail(&["b"], &[]), "mlx5_0 to b (either end or the path)"),
            (Rail { decided: false, ..rail(&["b"], &[]) }, "undecided"),
            (
                Rail { pair_host: Fine, pair_gpu: Low, ..rail(&["b", "c"], &[]) },
                "0000:05:00.0 to mlx5_0 (PCIe way)",
            ),
            (Rail { pair_host: Fine, pair_gpu: Low, gpu_to_host: Low, ..rail(&["b"], &[]) }, "0000:05:00.0"),
            (
                Rail { pair_host: Unseen, loopback_host: Fine, loopback_gpu: Low, ..rail(&[], &[]) },
                "0000:05:00.0 to mlx5_0 (PCIe way)",
            ),
        ];
        for (rail, words) in table {
            assert_eq!(of_rail(rail.clone()).to_string(), words, "{rail:?}");
        }
    }

    #[test]
    fn one_gpu_of_eight_is_named_and_two_that_only_dislike_each_other_are_a_pair() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
        };
        assert_eq!(of_pairs(&pairs(&[("a", "b"), ("c", "a"), ("a", "d")])), Part::Gpu("a".into()));
        assert_eq!(of_pairs(&pairs(&[("a", "b"), ("b", "a")])), Part::GpuPair("a".into(), "b".into()));
        assert_eq!(of_pairs(&pairs(&[("a", "b"), ("c", "d")])), Part::Node);
        assert_eq!(of_pairs(&[]), Part::Node);
    }
}
