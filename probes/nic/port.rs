//! What a port's text files say: its state, its physical state and its rate.

use serde::{Deserialize, Serialize};

use super::{Netdev, Port};
use crate::{Finding, Verdict};

/// `state`, by InfiniBand's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// 1: no link.
    Down,
    /// 2: a link, not yet configured by the subnet manager.
    Init,
    /// 3: configured, not yet allowed to carry data.
    Armed,
    /// 4: carries data.
    Active,
    /// 5: carries data while the link recovers from an error.
    ActiveDefer,
}

/// `rate`: what the port's speed code and width come to.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Rate {
    /// Bits per second over all lanes, in units of 10^9.
    pub gigabits: f64,
    /// `4X` is 4.
    pub lanes: u32,
    /// `NDR`.
    pub speed: String,
}

/// What is known of a port's rate.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Bytes per second.
    Rate(f64),
    /// A number is shown, but it is a placeholder; and why.
    Not(&'static str),
}

impl State {
    /// Reads `4: ACTIVE`.
    pub fn parse(text: &str) -> Option<State> {
        match number(text)? {
            1 => Some(State::Down),
            2 => Some(State::Init),
            3 => Some(State::Armed),
            4 => Some(State::Active),
            5 => Some(State::ActiveDefer),
            _ => None,
        }
    }

    /// Whether data flows, so that the rate is one.
    pub fn carries(self) -> bool {
        match self {
            State::Active | State::ActiveDefer => true,
            State::Down | State::Init | State::Armed => false,
        }
    }
}

/// The number before the colon of `state` and `phys_state`.
pub fn number(text: &str) -> Option<u32> {
    text.split_once(':')?.0.trim().parse().ok()
}

/// The word behind the colon of `state` and `phys_state`.
fn word(text: &str) -> &str {
    text.split_once(':').map_or(text, |(_, word)| word.trim())
}

impl Rate {
    /// Reads `400 Gb/sec (4X NDR)`.
    pub fn parse(text: &str) -> Option<Rate> {
        let (gigabits, rest) = text.split_once(" Gb/sec")?;
        let (lanes, speed) = rest.trim().strip_prefix('(')?.strip_suffix(')')?.split_once("X ")?;
        Some(Rate {
            gigabits: gigabits.trim().parse().ok()?,
            lanes: lanes.parse().ok()?,
            speed: speed.to_string(),
        })
    }
}

impl Port {
    /// Whether the network is Ethernet (RoCE).
    pub fn is_ethernet(&self) -> bool {
        self.link_layer.as_deref() == Some("Ethernet")
    }

    /// The state by name; none if the file is missing, unread or odd.
    pub fn state(&self) -> Option<State> {
        self.state.as_deref().and_then(State::parse)
    }

    /// The rate, unless what is shown is only a placeholder.
    ///
    /// Kernels print speed codes that they don't know as SDR, and a port that is down as well.
    pub fn known_rate(&self) -> Option<Known> {
        if !self.state()?.carries() {
            return Some(Known::Not("the port is down, so its rate is a placeholder"));
        }
        let shown = Rate::parse(self.rate.as_deref()?)?;
        let netdev = self.netdev.as_ref().and_then(Netdev::gigabits).filter(|_| self.is_ethernet());
        match netdev {
            Some(gigabits) if shown.speed == "SDR" && gigabits > shown.gigabits => {
                Some(Known::Rate(gigabits * 1e9 / 8.0))
            }
            Some(_) | None if shown.speed == "SDR" => {
                Some(Known::Not("kernels print SDR for every speed code that they don't know"))
            }
            Some(_) | None => Some(Known::Rate(shown.gigabits * 1e9 / 8.0)),
        }
    }

    /// Whether the port works at all.
    pub fn judge_state(&self, part: &str) -> Finding {
        let expected = "4: ACTIVE, 5: LinkUp";
        let found = format!(
            "{}, {}",
            self.state.as_deref().unwrap_or("state not readable"),
            self.phys_state.as_deref().unwrap_or("physical state not readable")
        );
        let say = |verdict, found: String| Finding::new("port_state", part, verdict, found, expected);
        let phys = self.phys_state.as_deref().and_then(number);
        let show = match &self.netdev {
            Some(netdev) if self.is_ethernet() => format!("ip link show {}", netdev.name),
            Some(_) | None => format!("ibstat {}", part.split('/').next().unwrap_or(part)),
        };
        match self.state() {
            None => say(Verdict::Unknown, found).because("the state can't be told").try_command(show),
            Some(State::Active) if phys == Some(6) => say(Verdict::Degraded, found)
                .because(
                    "the link is recovering from errors: cable, transceiver or the port at the other end",
                )
                .try_command(show),
            Some(State::Active) => say(Verdict::Pass, found),
            Some(State::ActiveDefer) => say(Verdict::Degraded, found)
                .because("the link has failed and is held up only for the moment")
                .try_command(show),
            Some(State::Init | State::Armed) => {
                say(Verdict::Fail, format!("{found}: link up, not activated"))
                    .because("no subnet manager has activated the port, so it carries no data")
                    .try_command("sminfo")
            }
            Some(State::Down) => self.judge_down(say, &found).try_command(show),
        }
    }

    /// A port that is down: switched off by somebody, or without a link.
    ///
    /// On Ethernet drivers report `Disabled` whenever there is no carrier, so only the interface's
    /// own flag tells what an administrator wants.
    fn judge_down(&self, say: impl Fn(Verdict, String) -> Finding, found: &str) -> Finding {
        let phys = self.phys_state.as_deref().unwrap_or_default();
        if self.is_ethernet() {
            return match &self.netdev {
                Some(Netdev { name, admin_up: Some(false), .. }) => {
                    say(Verdict::Unknown, format!("{found}: {name} is administratively down")).because(
                        "an interface that is switched off can't be judged; switch it on or list the port as unused",
                    )
                }
                Some(Netdev { .. }) | None => say(Verdict::Fail, format!("{found}: port down, no carrier (cable or peer)"))
                    .because("the port has no link, so this rail carries nothing"),
            };
        }
        match number(phys) {
            Some(3) => say(Verdict::Unknown, format!("{found}: port disabled by an administrator"))
                .because("a port that is switched off can't be judged; switch it on or list it as unused"),
            Some(2) => say(Verdict::Fail, format!("{found}: port down, polling (cable or peer)"))
                .because("the port looks for a partner and finds none, so this rail carries nothing"),
            Some(_) | None => say(Verdict::Fail, format!("{found}: port down, {}", word(phys)))
                .because("the port has no link, so this rail carries nothing"),
        }
    }
}

impl Netdev {
    /// The speed in units of 10^9 bits per second.
    fn gigabits(&self) -> Option<f64> {
        self.megabits.map(|megabits| f64::from(megabits) / 1000.0)
    }
}

/// Reads a network device's `speed`: -1 and 4294967295 both mean that it is not known.
pub fn megabits(text: &str) -> Option<u32> {
    text.parse::<u32>().ok().filter(|speed| *speed != u32::MAX && *speed != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_whatever_their_width() {
        let table = [
            ("400 Gb/sec (4X NDR)", Some((400.0, 4, "NDR"))),
            ("2.5 Gb/sec (1X SDR)", Some((2.5, 1, "SDR"))),
            ("100 Gb/sec (2X HDR)", Some((100.0, 2, "HDR"))),
            ("1200 Gb/sec (12X NDR)", Some((1200.0, 12, "NDR"))),
            ("800 Gb/sec", None),
            ("", None),
            ("fast Gb/sec (4X NDR)", None),
        ];
        for (text, want) in table {
            let rate = Rate::parse(text);
            assert_eq!(
                rate.as_ref().map(|rate| (rate.gigabits, rate.lanes, rate.speed.as_str())),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn speeds_that_are_none_are_none() {
        let table = [("400000", Some(400_000)), ("-1", None), ("4294967295", None), ("0", None), ("", None)];
        for (text, want) in table {
            assert_eq!(megabits(text), want, "{text}");
        }
    }

    #[test]
    fn a_placeholder_is_never_a_rate() {
        let table = [
            ("4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand", None, Some(Known::Rate(50e9))),
            ("4: ACTIVE", "400 Gb/sec (4X NDR)", "Ethernet", Some(400_000), Some(Known::Rate(50e9))),
            ("4: ACTIVE", "10 Gb/sec (4X SDR)", "Ethernet", Some(800_000), Some(Known::Rate(100e9))),
            ("4: ACTIVE", "", "InfiniBand", None, None),
        ];
        for (state, rate, layer, megabits, want) in table {
            assert_eq!(port(state, "5: LinkUp", rate, layer, megabits, None).known_rate(), want, "{rate}");
        }
        for (state, rate, layer, megabits) in [
            ("4: ACTIVE", "10 Gb/sec (4X SDR)", "InfiniBand", Some(40_000)),
            ("4: ACTIVE", "2.5 Gb/sec (1X SDR)", "Ethernet", None),
            ("1: DOWN", "10 Gb/sec (4X SDR)", "InfiniBand", None),
            ("2: INIT", "400 Gb/sec (4X NDR)", "InfiniBand", None),
        ] {
            let known = port(state, "5: LinkUp", rate, layer, megabits, None).known_rate();
            assert!(matches!(known, Some(Known::Not(_))), "{state} {rate}");
        }
    }

    #[test]
    fn states_are_judged_by_what_they_carry() {
        use Verdict::{Degraded, Fail, Pass, Unknown};
        let table = [
            ("4: ACTIVE", "5: LinkUp", "InfiniBand", None, Pass, "4: ACTIVE, 5: LinkUp"),
            ("1: DOWN", "2: Polling", "InfiniBand", None, Fail, "port down, polling (cable or peer)"),
            ("1: DOWN", "3: Disabled", "InfiniBand", None, Unknown, "port disabled by an administrator"),
            ("1: DOWN", "3: Disabled", "Ethernet", Some(true), Fail, "port down, no carrier (cable or peer)"),
            ("1: DOWN", "3: Disabled", "Ethernet", Some(false), Unknown, "eth0 is administratively down"),
            ("2: INIT", "5: LinkUp", "InfiniBand", None, Fail, "link up, not activated"),
            ("4: ACTIVE", "6: LinkErrorRecovery", "InfiniBand", None, Degraded, "6: LinkErrorRecovery"),
            ("5: ACTIVE_DEFER", "5: LinkUp", "InfiniBand", None, Degraded, "5: ACTIVE_DEFER"),
            ("0: NOP", "5: LinkUp", "InfiniBand", None, Unknown, "0: NOP"),
        ];
        for (state, phys, layer, up, verdict, found) in table {
            let finding = port(state, phys, "10 Gb/sec (4X SDR)", layer, None, up).judge_state("mlx5_0");
            assert_eq!(finding.verdict, Some(verdict), "{state} {phys} {layer}");
            assert!(finding.found.contains(found), "{}", finding.found);
        }
    }

    fn port(
        state: &str,
        phys: &str,
        rate: &str,
        layer: &str,
        megabits: Option<u32>,
        up: Option<bool>,
    ) -> Port {
        Port {
            state: Some(state.into()),
            phys_state: Some(phys.into()),
            rate: Some(rate.into()),
            link_layer: Some(layer.into()),
            netdev: Some(Netdev { name: "eth0".into(), mtu: None, megabits, admin_up: up }),
            ..Port::default()
        }
    }
}
