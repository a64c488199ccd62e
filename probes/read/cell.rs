//! A cell of a table: a number as it was printed, or a sign that there is none.

/// A cell: a number as printed, or a sign for "no value".
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cell<'a> {
    text: &'a str,
    number: Option<f64>,
}

impl Cell<'_> {
    /// None if it is neither.
    pub(crate) fn new(text: &str) -> Option<Cell<'_>> {
        let absent = ["N/A", "n/a", "NA", "nan", "-nan", "NaN", "inf", "-inf"].contains(&text);
        let number = text.parse().ok().filter(|number: &f64| number.is_finite() && !absent);
        let numeric = number.is_some() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
        (absent || numeric).then_some(Cell { text, number })
    }

    /// As printed.
    pub(crate) fn text(&self) -> &str {
        self.text
    }

    /// None where there is no value.
    pub(crate) fn number(self) -> Option<f64> {
        self.number
    }

    /// A count, also where `%g` wrote it.
    pub(crate) fn integer(self) -> Option<i128> {
        let whole = |number: f64| number.fract() == 0.0 && number.abs() < 2_f64.powi(64);
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and below 2^64")]
        self.text.parse().ok().or_else(|| self.number.filter(|n| whole(*n)).map(|n| n as i128))
    }

    /// Digits behind the point.
    pub(crate) fn decimals(self) -> usize {
        self.text.split_once('.').map_or(0, |(_, digits)| digits.len())
    }
}
