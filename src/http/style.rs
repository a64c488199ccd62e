//! How the pages look and how things are written in them: the style sheet, escaping, the signs of
//! the verdicts, units and times for people.

use std::fmt;

use humantime_serde::re::humantime;
use probes::Verdict;
pub(crate) use probes::passive::span;

/// Text of any origin, made harmless for HTML text and attributes.
pub(crate) struct Esc<'a>(pub(crate) &'a str);

impl fmt::Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => write!(f, "{other}")?,
            }
        }
        Ok(())
    }
}

/// The sign of a verdict: shape, colour and word, since nobody should need to see colours.
pub(crate) fn sign(verdict: Verdict) -> String {
    format!("<span class=\"v {0}\">{1}{0}</span>", verdict.word(), glyph(verdict))
}

/// The shape alone, for where the word stands beside it.
pub(crate) fn glyph(verdict: Verdict) -> String {
    let shape = match verdict {
        Verdict::Pass => {
            "<circle cx=\"6\" cy=\"6\" r=\"5.5\"/><path class=\"k\" d=\"M3.4 6.2l1.8 1.8 3.4-3.8\"/>"
        }
        Verdict::Degraded => "<path d=\"M6 .5L11.8 11H.2z\"/><path class=\"k\" d=\"M6 4v3.4M6 9v.4\"/>",
        Verdict::Fail => {
            "<path d=\"M3.6 .5h4.8l3.1 3.1v4.8l-3.1 3.1H3.6L.5 8.4V3.6z\"/><path class=\"k\" d=\"M4 4l4 4M8 4l-4 4\"/>"
        }
        Verdict::Unknown => "<circle class=\"o\" cx=\"6\" cy=\"6\" r=\"4.8\"/>",
    };
    format!("<svg class=\"g {}\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">{shape}</svg>", verdict.word())
}

/// A value with the unit that its metric's name ends in, at three significant digits.
pub(crate) fn human(metric: &str, value: f64) -> String {
    let units: [(&str, &str); 7] = [
        ("_transfers_per_second", "T/s"),
        ("_bytes_per_second", "B/s"),
        ("_hertz", "Hz"),
        ("_watts", "W"),
        ("_flops", "FLOP/s"),
        ("_celsius", "°C"),
        ("_bytes", "B"),
    ];
    if metric.ends_with("_ratio") {
        return format!("{} %", digits(value * 100.0));
    }
    if metric.ends_with("_timestamp_seconds") {
        return date(value);
    }
    if metric.ends_with("_seconds") {
        return match value.abs() {
            small if small > 0.0 && small < 1e-3 => format!("{} µs", digits(value * 1e6)),
            small if small > 0.0 && small < 1.0 => format!("{} ms", digits(value * 1e3)),
            _ => format!("{} s", digits(value)),
        };
    }
    match units.iter().find(|(end, _)| metric.ends_with(end)) {
        // Message sizes are powers of two; memory and rates are told in powers of ten.
        Some((_, "B")) if value < 65536.0 => format!("{value} B"),
        Some((_, unit)) => scaled(value, unit),
        None => digits(value),
    }
}

fn scaled(value: f64, unit: &str) -> String {
    let steps = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match steps.iter().find(|(step, _)| value.abs() >= *step) {
        Some((step, prefix)) => format!("{} {prefix}{unit}", digits(value / step)),
        None => format!("{} {unit}", digits(value)),
    }
}

/// Whole numbers whole, others with three significant digits.
pub(crate) fn digits(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return value.to_string();
    }
    let places = match value.abs() {
        large if large >= 100.0 => 0,
        large if large >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.places$}")
}

/// `2026-11-30 23:41:15 UTC`
pub(crate) fn date(seconds: f64) -> String {
    let since = std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default();
    match std::time::SystemTime::UNIX_EPOCH.checked_add(since) {
        // The formatter knows the years up to 9999.
        Some(time) if seconds < 253_402_300_800.0 => {
            let text = humantime::format_rfc3339_seconds(time).to_string();
            format!("{} UTC", text.replace('T', " ").trim_end_matches('Z'))
        }
        Some(_) | None => format!("{seconds} s"),
    }
}

/// `40 s ago`, `in 3 h`
pub(crate) fn ago(now: f64, then: f64) -> String {
    match now - then {
        age if age.abs() < 1.0 => "just now".to_string(),
        age if age < 0.0 => format!("in {}", span(-age)),
        age => format!("{} ago", span(age)),
    }
}

/// `one check`, `3 checks`
pub(crate) fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("one {one}") } else { format!("{number} {many}") }
}

/// A whole page around its content.
pub(crate) fn frame(title: &str, crumbs: &str, content: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\"><title>{}</title><style>{SHEET}</style></head>\
         <body><main><nav class=\"top\">{crumbs}</nav>{content}</main></body></html>\n",
        Esc(title)
    )
}

const SHEET: &str = include_str!("style.css");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_can_become_markup() {
        let text = Esc("<script>alert('x & \"y\"')</script>").to_string();
        assert_eq!(text, "&lt;script&gt;alert(&#39;x &amp; &quot;y&quot;&#39;)&lt;/script&gt;");
    }

    #[test]
    fn values_are_written_with_their_unit() {
        let table = [
            ("pcie_link_speed_transfers_per_second", 32e9, "32 GT/s"),
            ("pcie_path_bandwidth_bytes_per_second", 63.015e9, "63.0 GB/s"),
            ("pcie_max_read_request_bytes", 4096.0, "4096 B"),
            ("gpu_memory_bytes", 205_992_198_144.0, "206 GB"),
            ("gpu_busy_ratio", 0.25, "25 %"),
            ("rdma_write_latency_seconds", 1.834e-6, "1.83 µs"),
            ("pcie_link_width_lanes", 16.0, "16"),
            ("gemm_flops", 1.3074e15, "1.31 PFLOP/s"),
            ("last_run_timestamp_seconds", 1_796_082_075.0, "2026-11-30 23:41:15 UTC"),
            ("last_run_timestamp_seconds", f64::INFINITY, "inf s"),
        ];
        for (metric, value, expected) in table {
            assert_eq!(human(metric, value), expected);
        }
    }

    #[test]
    fn times_are_told_from_now() {
        let table = [
            (0.2, "just now"),
            (40.0, "40 s ago"),
            (-600.0, "in 10 min"),
            (7200.0, "2 h ago"),
            (864_000.0, "10 days ago"),
        ];
        for (age, expected) in table {
            assert_eq!(ago(1e6, 1e6 - age), expected);
        }
    }
}
