//! Pieces of the sentences that the formats have in common.

/// How the shell's number says it ended.
pub(super) fn ending(code: Option<i32>) -> String {
    match code {
        Some(124) => "ended by its deadline (exit 124)".into(),
        Some(137) => "killed (exit 137, SIGKILL)".into(),
        Some(143) => "ended from outside (exit 143, SIGTERM)".into(),
        Some(code) => format!("ended with exit {code}"),
        None => "ended".into(),
    }
}

/// Two decimals, none where they are 0, and more for what would be 0.
pub(super) fn short(value: f64) -> String {
    if value.abs() < 0.1 {
        return format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_string();
    }
    let text = format!("{value:.2}");
    text.strip_suffix(".00").unwrap_or(&text).to_string()
}

/// A text of bounded length.
pub(super) fn clip_to(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        Some((at, _)) => format!("{}..", &text[..at]),
        None => text.to_string(),
    }
}
