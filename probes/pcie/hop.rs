//! One link: its two ends, what they can do together, and what it does now.

use super::Function;
use crate::inventory::Link;

/// The link between a function and the port above it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop<'a> {
    /// The end away from the root complex.
    pub(super) lower: &'a Function,
    /// The port above; none where the kernel shows none, as in some virtual machines.
    pub(super) upper: Option<&'a Function>,
}

/// A value that both ends of a link can reach, and which end sets it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Limit<T> {
    /// Both can do the same, or the port's own is not known.
    Both(T),
    /// The device can do less than its slot.
    Device { device: T, slot: T },
    /// The slot can do less than its device.
    Slot { device: T, slot: T },
}

impl<T: Copy + PartialOrd> Limit<T> {
    fn of(device: Option<T>, slot: Option<T>) -> Option<Limit<T>> {
        let device = device?;
        Some(match slot {
            Some(slot) if device < slot => Limit::Device { device, slot },
            Some(slot) if device > slot => Limit::Slot { device, slot },
            Some(_) | None => Limit::Both(device),
        })
    }

    /// What both can do.
    pub(super) fn value(self) -> T {
        match self {
            Limit::Both(value) | Limit::Device { device: value, .. } | Limit::Slot { slot: value, .. } => {
                value
            }
        }
    }

    /// What both can do, and why it is not more.
    pub(super) fn words(self, show: impl Fn(T) -> String) -> String {
        match self {
            Limit::Both(value) => format!("{}, what both ends of the link can do", show(value)),
            Limit::Device { device, slot } => {
                format!("{}, all that the device can do; its slot could do {}", show(device), show(slot))
            }
            Limit::Slot { device, slot } => {
                format!("{}, all that the slot can do; the device could do {}", show(slot), show(device))
            }
        }
    }
}

impl<'a> Hop<'a> {
    /// The links from a function up to the root complex, nearest first.
    ///
    /// Every switch is two bridges in a row, its downstream and its upstream port, and the way
    /// between them is no link. So the lower ends are the function itself and every second bridge.
    pub(super) fn all(function: &'a Function, bridges: &[Option<&'a Function>]) -> Vec<Hop<'a>> {
        let lower = std::iter::once(Some(function)).chain(bridges.iter().copied().skip(1).step_by(2));
        let upper = bridges.iter().copied().step_by(2).chain([None]);
        lower.zip(upper).filter_map(|(lower, upper)| Some(Hop { lower: lower?, upper })).collect()
    }

    /// The state of the link, as its lower end tells it.
    pub(super) fn link(&self) -> Option<Link> {
        self.lower.link()
    }

    fn upper_link(&self) -> Link {
        self.upper.and_then(Function::link).unwrap_or_default()
    }

    /// The width that both ends can do, in lanes.
    pub(super) fn width_limit(&self) -> Option<Limit<u32>> {
        Limit::of(self.link()?.max_width, self.upper_link().max_width)
    }

    /// The speed that both ends can do, in GT/s.
    pub(super) fn speed_limit(&self) -> Option<Limit<f64>> {
        Limit::of(self.link()?.max_speed, self.upper_link().max_speed)
    }

    /// What the link carries now, in bytes per second.
    pub(super) fn bandwidth(&self) -> Option<f64> {
        let link = self.link()?;
        Some(bandwidth(link.speed?, link.width?))
    }

    /// `the link between 0000:22:00.0 and 0000:23:00.0`
    pub(super) fn words(&self) -> String {
        match self.upper {
            Some(upper) => format!("the link between {} and {}", upper.pci, self.lower.pci),
            None => format!("the link of {}", self.lower.pci),
        }
    }
}

/// What is left of a link's transfers after its line code, in bytes per second one way.
///
/// 8b/10b up to 5 GT/s, 128b/130b up to 32; from 64 GT/s on, flits of 256 bytes carry 236 bytes of
/// packets beside link control, check sums and error correction.
pub(super) fn bandwidth(gigatransfers: f64, lanes: u32) -> f64 {
    let code = match gigatransfers {
        slow if slow <= 5.0 => 8.0 / 10.0,
        middle if middle <= 32.0 => 128.0 / 130.0,
        _ => 236.0 / 256.0,
    };
    gigatransfers * 1e9 * code / 8.0 * f64::from(lanes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(pci: &str, max_speed: f64, max_width: u32) -> Function {
        let link = Link {
            speed: Some(max_speed),
            width: Some(max_width),
            max_speed: Some(max_speed),
            max_width: Some(max_width),
        };
        Function { pci: pci.into(), text_link: Some(link), ..Function::default() }
    }

    #[test]
    fn a_switch_is_two_bridges_and_no_link_between_them() {
        let [device, down, up, root] = ["d", "down", "up", "root"].map(|pci| function(pci, 32.0, 16));
        let ends = |bridges: &[Option<&Function>]| -> Vec<(String, Option<String>)> {
            Hop::all(&device, bridges)
                .iter()
                .map(|hop| (hop.lower.pci.clone(), hop.upper.map(|upper| upper.pci.clone())))
                .collect()
        };
        let pair = |lower: &str, upper: &str| (lower.to_string(), Some(upper.to_string()));
        assert_eq!(ends(&[]), [("d".to_string(), None)]);
        assert_eq!(ends(&[Some(&root)]), [pair("d", "root")]);
        assert_eq!(ends(&[Some(&down), Some(&up), Some(&root)]), [pair("d", "down"), pair("up", "root")]);
        assert_eq!(ends(&[None, Some(&up), Some(&root)]), [("d".to_string(), None), pair("up", "root")]);
    }

    #[test]
    fn the_weaker_end_sets_the_limit_and_is_named() {
        let table = [
            (Some(16), Some(16), Some("x16, what both ends of the link can do")),
            (Some(16), None, Some("x16, what both ends of the link can do")),
            (Some(8), Some(16), Some("x8, all that the device can do; its slot could do x16")),
            (Some(16), Some(8), Some("x8, all that the slot can do; the device could do x16")),
            (None, Some(8), None),
        ];
        for (device, slot, want) in table {
            let words = Limit::of(device, slot).map(|limit| limit.words(|lanes: u32| format!("x{lanes}")));
            assert_eq!(words.as_deref(), want, "{device:?} {slot:?}");
        }
    }

    #[test]
    fn bandwidth_is_what_the_line_code_leaves() {
        let table =
            [(2.5, 1, 0.25e9), (5.0, 4, 2e9), (8.0, 8, 7.877e9), (32.0, 16, 63.015e9), (64.0, 16, 118e9)];
        for (speed, lanes, want) in table {
            let got = bandwidth(speed, lanes);
            assert!((got / want - 1.0).abs() < 1e-3, "{speed} x{lanes}: {got}");
        }
    }
}
