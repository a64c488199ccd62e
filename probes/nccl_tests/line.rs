//! One line of nccl-tests' text: a column header, a row, a rank, the footer, the start line.
//!
//! Columns are found by their labels, since releases and options add and drop some, and never by
//! their place in the line. Which half a column belongs to is in the title line above.

use super::run::{Half, Layout, Rank, Row, Step};
use crate::read::cell::Cell;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Size,
    Count,
    Kind,
    Redop,
    Root,
    /// A figure of one of the halves.
    Of(Place, Figure),
    Algo,
    Proto,
    Channels,
    Other,
}

/// Which of the two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Out,
    In,
}

/// A figure of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Time,
    EventTime,
    Algbw,
    Busbw,
    Wrong,
    Deviation,
}

/// Sizes of elements in bytes, by the names that nccl-tests and rccl-tests print.
const TYPES: [(&str, u8); 16] = [
    ("int8", 1),
    ("uint8", 1),
    ("char", 1),
    ("int32", 4),
    ("uint32", 4),
    ("int", 4),
    ("int64", 8),
    ("uint64", 8),
    ("half", 2),
    ("bfloat16", 2),
    ("float", 4),
    ("double", 8),
    ("f8e4m3", 1),
    ("f8e5m2", 1),
    ("fp8_e4m3", 1),
    ("fp8_e5m2", 1),
];

/// Bytes of an element.
pub(super) fn element_size(kind: &str) -> Option<u8> {
    TYPES.iter().find(|(name, _)| *name == kind).map(|(_, size)| *size)
}

/// The halves that a title line names, in its order; none if it is no such line.
pub(super) fn title(line: &str) -> Option<Vec<Place>> {
    let mut places = Vec::new();
    for word in line.strip_prefix('#')?.split_whitespace() {
        match word {
            "out-of-place" => places.push(Place::Out),
            "in-place" => places.push(Place::In),
            _ => return None,
        }
    }
    (!places.is_empty()).then_some(places)
}

/// The columns of a header line, and what its last columns are.
pub(super) fn header(line: &str, places: &[Place]) -> Option<(Vec<Column>, Option<Layout>)> {
    let labels: Vec<&str> = line.strip_prefix('#')?.split_whitespace().collect();
    let has = |label: &str| labels.contains(&label);
    if !(has("size") && has("count") && has("time") && has("busbw")) {
        return None;
    }
    let places = if places.is_empty() { &[Place::Out, Place::In] } else { places };
    let mut halves = places.iter();
    let (mut place, mut layout, mut columns) = (None, None, Vec::new());
    for label in labels {
        if label == "time" {
            place = halves.next();
        }
        let of = |figure| place.map_or(Column::Other, |place| Column::Of(*place, figure));
        columns.push(match label {
            "size" => Column::Size,
            "count" => Column::Count,
            "type" => Column::Kind,
            "redop" => Column::Redop,
            "root" => Column::Root,
            "time" => of(Figure::Time),
            "algbw" => of(Figure::Algbw),
            "busbw" => of(Figure::Busbw),
            "#wrong" => {
                layout = Some(Layout::New);
                of(Figure::Wrong)
            }
            "error" => {
                layout = Some(Layout::Old);
                of(Figure::Deviation)
            }
            "algo" => Column::Algo,
            "proto" => Column::Proto,
            "nchannels" => Column::Channels,
            // Its two words are taken out of every row.
            "timestamp" => continue,
            _ if label.starts_with("hip") => of(Figure::EventTime),
            _ => Column::Other,
        });
    }
    Some((columns, layout))
}

/// Whether a line looks like a row: two counts and a type.
pub(super) fn is_row_like(line: &str) -> bool {
    let mut words = words(line).into_iter();
    let mut count = || words.next().and_then(Cell::new).is_some_and(|cell| cell.integer().is_some());
    count() && count() && words.next().is_some_and(|kind| element_size(kind).is_some())
}

/// The words of a row without a timestamp, which is two of them.
fn words(line: &str) -> Vec<&str> {
    let date = |word: &str| shape(word, "dddd-dd-dd");
    let time = |word: &str| shape(word.get(..8).unwrap_or(word), "dd:dd:dd");
    let mut words = Vec::new();
    let mut all = line.split_whitespace().peekable();
    while let Some(word) = all.next() {
        if date(word) && all.peek().is_some_and(|next| time(next)) {
            all.next();
        } else {
            words.push(word);
        }
    }
    words
}

/// Whether a word has a digit for each `d`, and else the same signs.
fn shape(word: &str, want: &str) -> bool {
    let same = |(got, want): (u8, u8)| if want == b'd' { got.is_ascii_digit() } else { got == want };
    word.len() == want.len() && word.bytes().zip(want.bytes()).all(same)
}

/// Reads a row. Without columns it must be of the common shape of 13 words. `cut` says that the input
/// ends in it, so that its last number may be a part of one.
pub(super) fn row(line: &str, columns: Option<&[Column]>, cut: bool) -> Option<(Row, Option<Layout>)> {
    let words = words(line);
    let guessed;
    let (columns, layout) = match columns {
        Some(columns) => (columns, None),
        None => {
            let (columns, layout) = without_header(&words)?;
            guessed = columns;
            (guessed.as_slice(), Some(layout))
        }
    };
    let columns = without_blanks(columns, &words)?;
    let mut row = Row::default();
    let last = words.len() - 1;
    for (at, (column, word)) in columns.iter().zip(&words).enumerate() {
        let cell = Cell::new(word.trim_end_matches('*'));
        match column {
            Column::Size => row.size = Some(cell?.integer()?),
            Column::Count => row.count = Some(cell?.integer()?),
            Column::Kind => {
                if cell.is_some() {
                    return None;
                }
                row.kind = Some((*word).into());
            }
            Column::Redop => row.redop = Some((*word).into()),
            Column::Root => row.root = Some(cell?.integer()?),
            Column::Of(place, figure) => {
                let half = match place {
                    Place::Out => &mut row.out_of_place,
                    Place::In => &mut row.in_place,
                };
                let whole = !cut || at < last || is_whole(word, *figure);
                if !set(half, *figure, cell?, whole) {
                    return None;
                }
            }
            Column::Algo => row.algo = present(word),
            Column::Proto => row.proto = present(word),
            Column::Channels => row.channels = cell.and_then(Cell::integer).filter(|_| !cut || at < last),
            Column::Other => {}
        }
    }
    row.size.is_some().then_some((row, layout))
}

fn present(word: &str) -> Option<String> {
    (word != "N/A").then(|| word.to_string())
}

/// Puts a figure in its place. False if it can't be one.
fn set(half: &mut Half, figure: Figure, cell: Cell<'_>, whole: bool) -> bool {
    let number = cell.number();
    match figure {
        Figure::Time => half.time = number,
        Figure::EventTime => half.event_time = number,
        Figure::Algbw => half.algbw = number,
        Figure::Busbw => half.busbw = number,
        // A part of a count of wrong elements is still one above 0.
        Figure::Wrong => {
            half.wrong = cell.integer();
            return half.wrong.is_some() || number.is_none();
        }
        Figure::Deviation => half.deviation = number.filter(|_| whole),
    }
    true
}

/// Whether a number at the end of the input is surely printed to its end.
fn is_whole(word: &str, figure: Figure) -> bool {
    match figure {
        Figure::Deviation => word.split_once('e').is_some_and(|(_, power)| power.len() >= 3),
        Figure::Time | Figure::EventTime | Figure::Algbw | Figure::Busbw | Figure::Wrong => true,
    }
}

/// The columns of a row that has no header.
fn without_header(words: &[&str]) -> Option<(Vec<Column>, Layout)> {
    if words.len() != 13 || element_size(words[2]).is_none() || Cell::new(words[3]).is_some() {
        return None;
    }
    // A count has no exponent below 5.
    let deviation = |word: &str| word.contains("e-") || word.ends_with("e+00");
    let old = [words[8], words[12]].into_iter().any(deviation);
    let (last, layout) = if old { (Figure::Deviation, Layout::Old) } else { (Figure::Wrong, Layout::New) };
    let mut columns = vec![Column::Size, Column::Count, Column::Kind, Column::Redop, Column::Root];
    for place in [Place::Out, Place::In] {
        columns.extend([Figure::Time, Figure::Algbw, Figure::Busbw, last].map(|f| Column::Of(place, f)));
    }
    Some((columns, layout))
}

/// The columns that a row has words for: a collective without a reduction or a root may leave its
/// place blank.
fn without_blanks(columns: &[Column], words: &[&str]) -> Option<Vec<Column>> {
    let missing = columns.len().checked_sub(words.len())?;
    let has = |column| columns.contains(&column);
    let first = columns.iter().position(|column| matches!(column, Column::Redop | Column::Root));
    let word = |skip: usize| first.and_then(|at| words.get(at + skip)).copied().unwrap_or_default();
    let reduces = Cell::new(word(0)).is_none();
    // In place of a root there is a time, unless the row is cut off: from 10 ms on it has no point.
    let is_root = |word: &str| word.parse().is_ok_and(|root: i64| root < 10_000);
    let blank: &[Column] = match missing {
        0 => &[],
        1 if has(Column::Redop) && !reduces => &[Column::Redop],
        1 if has(Column::Root) && !is_root(word(usize::from(reduces))) => &[Column::Root],
        2 if has(Column::Redop) && has(Column::Root) && !reduces && !is_root(word(0)) => {
            &[Column::Redop, Column::Root]
        }
        _ => return None,
    };
    Some(columns.iter().copied().filter(|column| !blank.contains(column)).collect())
}

/// `#  Rank  0 Group  0 Pid  41200 on     node-a device  0 [0000:05:00] AMD Instinct MI300X`
pub(super) fn rank(line: &str) -> Option<Rank> {
    let rest = line.strip_prefix('#')?.trim_start();
    let mut rest = rest.strip_prefix("Rank")?;
    let mut word = || {
        let text = rest.trim_start();
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        rest = &text[end..];
        (end > 0).then_some(&text[..end])
    };
    let mut rank = Rank { rank: word()?.parse().ok()?, ..Rank::default() };
    loop {
        match word()? {
            "Group" => drop(word()?),
            "Pid" => rank.pid = Some(word()?.parse().ok()?),
            "on" => rank.host = word()?.to_string(),
            "device" => break,
            _ => return None,
        }
    }
    rank.device = Some(word()?.parse().ok()?);
    let rest = rest.trim();
    if let Some((bus, name)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        rank.bus = Some(bus.to_string());
        rank.name = Some(name.trim().to_string()).filter(|name| !name.is_empty());
    }
    (!rank.host.is_empty()).then_some(rank)
}

/// `# Out of bounds values : 0 OK`: failed checks, and whether that is said to be well.
pub(super) fn out_of_bounds(line: &str) -> Option<(u64, bool)> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("Out of bounds values")?;
    let mut words = rest.trim_start().strip_prefix(':')?.split_whitespace();
    let count = words.next()?.parse().ok()?;
    match words.next()? {
        "OK" => Some((count, true)),
        "FAILED" => Some((count, false)),
        _ => None,
    }
}

/// `# Avg bus bandwidth    : 261.757 OK`: the mean, and whether a limit was missed.
pub(super) fn average(line: &str) -> Option<(Option<f64>, bool)> {
    let rest = line.strip_prefix('#')?.trim_start().strip_prefix("Avg bus bandwidth")?;
    let mut words = rest.trim_start().strip_prefix(':')?.split_whitespace();
    let mean = words.next().and_then(Cell::new).and_then(Cell::number);
    Some((mean, words.next() == Some("FAILED")))
}

/// What the start line tells of the sweep.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Start {
    pub threads: Option<u64>,
    pub gpus: Option<u64>,
    pub min: Option<u64>,
    pub max: Option<u64>,
    pub step: Option<Step>,
    pub validation: Option<bool>,
}

/// `# nThread 1 nGpus 8 minBytes 8 maxBytes 128 step: 2(factor) warmup iters: 5 .. validation: 1`
pub(super) fn start(line: &str) -> Option<Start> {
    let rest = line.strip_prefix('#')?.trim_start();
    let words: Vec<&str> = rest.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1).copied()
    };
    let number = |name: &str| after(name)?.parse().ok();
    if words.first() != Some(&"nThread") {
        return None;
    }
    let step = after("step:").and_then(|step| {
        let (number, unit) = step.split_once('(')?;
        let number = number.parse().ok()?;
        match unit {
            "factor)" => Some(Step::Factor(number)),
            "bytes)" => Some(Step::Bytes(number)),
            _ => None,
        }
    });
    Some(Start {
        threads: number("nThread"),
        gpus: number("nGpus"),
        min: number("minBytes"),
        max: number("maxBytes"),
        step,
        validation: number("validation:").map(|on| on != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong";

    fn columns(header: &str, places: &[Place]) -> Vec<Column> {
        super::header(header, places).unwrap().0
    }

    #[test]
    fn rows_are_read_by_the_labels_of_their_header() {
        let both = [Place::Out, Place::In];
        let new = columns(NEW, &both);
        let (row, _) = super::row(
            " 2097152 524288 float sum -1 141.10 14.86 26.01 0 140.60 14.92 26.10 1.31072e+06",
            Some(&new),
            false,
        )
        .unwrap();
        assert_eq!((row.size, row.count, row.root), (Some(2_097_152), Some(524_288), Some(-1)));
        assert_eq!((row.out_of_place.busbw, row.in_place.wrong), (Some(26.01), Some(1_310_720)));
        // No reduction, no root, neither.
        for (line, redop, root) in [
            ("8 2 float -1 1 2 3 0 4 5 6 N/A", None, Some(-1)),
            ("8 2 float none 1.00 2 3 0 4 5 6 N/A", Some("none"), None),
            ("8 2 float 1.00 2 3 0 4 5 6 N/A", None, None),
        ] {
            let (row, _) = super::row(line, Some(&new), false).unwrap();
            assert_eq!((row.redop.as_deref(), row.root), (redop, root), "{line}");
            assert_eq!((row.out_of_place.time, row.in_place.wrong), (Some(1.0), None), "{line}");
        }
        for line in [
            "8 2 float sum -1 1 2 3 0 4 5 6",
            "8 2 float -1 1 2 3 0 4 5 6",
            "8 2 float sum -1 1 2 3 0 4 5 6 0 7",
            "8 x float",
            "",
        ] {
            assert_eq!(super::row(line, Some(&new), false), None, "{line}");
        }
    }

    #[test]
    fn options_add_columns_and_drop_halves() {
        let line =
            "#  size  count  type  redop  root  time  hipevt  algbw  busbw  #wrong  algo  proto  nchannels";
        let one = columns(line, &title("#     in-place   ").unwrap());
        let (row, _) =
            super::row("8 2 float sum -1 5.0 4.5 0.1 0.2 0 Ring LL128 32", Some(&one), false).unwrap();
        assert_eq!((row.in_place.event_time, row.out_of_place.time), (Some(4.5), None));
        assert_eq!((row.algo.as_deref(), row.channels), (Some("Ring"), Some(32)));
        let stamped = columns(&format!("{NEW}  timestamp"), &[]);
        let line = "8 2 float sum -1 1 2 3 0 4 5 6 0 2026-01-14 10:02:11";
        assert_eq!(super::row(line, Some(&stamped), false).unwrap().0.in_place.wrong, Some(0));
        let spread = columns(
            "# size count type redop root time algbw busbw #wrong i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%",
            &[],
        );
        let line = "8 2 float sum -1 1 2 3 0 1 1 1 1 4 5 6 7 1 1 1 1";
        assert_eq!(super::row(line, Some(&spread), false).unwrap().0.in_place.wrong, Some(7));
        assert_eq!(title("#  out-of-place and more"), None);
        assert_eq!(header("# size of it", &[]), None);
    }

    #[test]
    fn a_row_without_header_is_known_by_its_shape() {
        let (row, layout) = super::row("8 2 float sum -1 1 2 3 4e-07 4 5 6 0e+00", None, false).unwrap();
        assert_eq!((layout, row.out_of_place.deviation), (Some(Layout::Old), Some(4e-7)));
        assert_eq!((row.out_of_place.wrong, row.in_place.wrong), (None, None));
        let (row, layout) = super::row("8 2 float sum -1 1 2 3 0 4 5 6 N/A", None, false).unwrap();
        assert_eq!((layout, row.out_of_place.wrong), (Some(Layout::New), Some(0)));
        let (row, _) = super::row("8 2 float sum -1 1 2 3 0e+00 4 5 6 0e+00", None, false).unwrap();
        assert_eq!((row.out_of_place.wrong, row.out_of_place.deviation), (None, Some(0.0)));
        // The input ends in it.
        let (row, _) = super::row("8 2 float sum -1 1 2 3 4e-07 4 5 6 4e-0", None, true).unwrap();
        assert_eq!(row.in_place.deviation, None);
        assert_eq!(super::row("8 2 words sum -1 1 2 3 0 4 5 6 0", None, false), None);
        assert!(is_row_like("8 2 float su") && !is_row_like("8 bytes of float"));
    }

    #[test]
    fn lines_of_the_header_and_the_footer_are_read() {
        let new =
            rank("#  Rank 10 Group  0 Pid 1880412 on     node-b device  2 [0000:53:00] AMD Instinct MI300X");
        let want = Rank {
            rank: 10,
            pid: Some(1_880_412),
            host: "node-b".into(),
            device: Some(2),
            bus: Some("0000:53:00".into()),
            name: Some("AMD Instinct MI300X".into()),
        };
        assert_eq!(new, Some(want));
        let old = rank("#   Rank  0 Pid  14926 on     node-a device  0 [0x00] Tesla V100").unwrap();
        assert_eq!((old.rank, old.host.as_str(), old.bus.as_deref()), (0, "node-a", Some("0x00")));
        for line in ["#  Rank  0 Group  0 Pid  41200 on", "#  Rank", "#  Ranking 3", "# Rank 0 device 1"] {
            assert_eq!(rank(line), None, "{line}");
        }
        for (line, want) in [
            ("# Out of bounds values : 2 FAILED", Some((2, false))),
            ("# Out of bounds values : 0 OK", Some((0, true))),
            ("# Out of bounds values : 12 FA", None),
            ("# Out of bounds values : 1", None),
        ] {
            assert_eq!(out_of_bounds(line), want, "{line}");
        }
        assert_eq!(average("# Avg bus bandwidth    : 19.6 FAILED"), Some((Some(19.6), true)));
        assert_eq!(average("# Avg bus bandwidth    : nan "), Some((None, false)));
        let start = start("# nThread 1 nGpus 8 minBytes 8 maxBytes 64 step: 4(bytes) warmup iters: 5 iters: 20 validation: 0 ").unwrap();
        assert_eq!((start.gpus, start.step, start.validation), (Some(8), Some(Step::Bytes(4)), Some(false)));
    }
}
