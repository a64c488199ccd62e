//! One line of perftest's text: a title, a column header, a row, an address, a fact of the block.
//!
//! Columns are found by their label, since forks and options add some, and never by their place in
//! the line, since harnesses change white space.

use crate::read::cell::Cell;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Size,
    Iterations,
    Peak,
    Average,
    Minimum,
    Rate,
    TimeMin,
    TimeMax,
    Typical,
    TimeAverage,
    Deviation,
    P99,
    P999,
    Transactions,
    CpuUtil,
    Other,
}

/// Columns without a header, by how many numbers a row has.
const BANDWIDTH: [Column; 5] =
    [Column::Size, Column::Iterations, Column::Peak, Column::Average, Column::Rate];
const LATENCY: [Column; 9] = [
    Column::Size,
    Column::Iterations,
    Column::TimeMin,
    Column::TimeMax,
    Column::Typical,
    Column::TimeAverage,
    Column::Deviation,
    Column::P99,
    Column::P999,
];

const LATENCY_DURATION: [Column; 4] =
    [Column::Size, Column::Iterations, Column::TimeAverage, Column::Transactions];

/// A rule has this many dashes in every version, and is cut off if it has fewer.
pub(super) const RULE: usize = 87;

/// What stands between two tables.
pub(super) fn is_rule(line: &str) -> bool {
    line.len() >= RULE && line.bytes().all(|byte| byte == b'-')
}

/// `RDMA_Write Bidirectional BW Test`: the program, and whether both directions are measured.
pub(super) fn title(line: &str) -> Option<(&'static str, bool)> {
    // A blank in the text, an underscore in JSON.
    let mut words = line.split([' ', '_']).filter(|word| !word.is_empty());
    let first = words.next()?;
    let verb = match first {
        "Send" => "send",
        "Atomic" => "atomic",
        "RDMA" => match words.next()? {
            "Write" => "write",
            "Read" => "read",
            _ => return None,
        },
        _ => return None,
    };
    let (mut kind, mut both, mut last) = (None, false, "");
    for word in words {
        match word {
            "BW" => kind = Some(true),
            "Latency" => kind = Some(false),
            "Bidirectional" => both = true,
            _ => {}
        }
        last = word;
    }
    if last != "Test" {
        return None;
    }
    let name = match (verb, kind?) {
        ("send", true) => "ib_send_bw",
        ("send", false) => "ib_send_lat",
        ("atomic", true) => "ib_atomic_bw",
        ("atomic", false) => "ib_atomic_lat",
        ("write", true) => "ib_write_bw",
        ("write", false) => "ib_write_lat",
        ("read", true) => "ib_read_bw",
        (_, true) => return None,
        (_, false) => "ib_read_lat",
    };
    Some((name, both))
}

/// A column header: its columns, and the unit in its labels.
pub(super) fn header(line: &str) -> Option<(Vec<Column>, Option<&'static str>)> {
    if !line.starts_with("#bytes") {
        return None;
    }
    let mut labels: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let low = word.to_ascii_lowercase();
        let goes_on = ["peak", "average", "avg", "min", "max", "port", "percentile", "["]
            .iter()
            .any(|part| low.starts_with(part));
        match labels.last_mut() {
            Some(label) if goes_on => {
                label.push(' ');
                label.push_str(&low);
            }
            _ => labels.push(low),
        }
    }
    let columns: Vec<Column> = labels.iter().map(|label| column(label)).collect();
    let low = line.to_ascii_lowercase();
    let unit = if low.contains("[gb/s") {
        Some("Gb/s")
    } else if low.contains("[mb/s") || low.contains("[mib/s") {
        Some("MiB/s")
    } else if low.contains("[usec") {
        Some("us")
    } else {
        None
    };
    Some((columns, unit))
}

fn column(label: &str) -> Column {
    let name = label.split('[').next().unwrap_or(label).trim();
    match name {
        "#bytes" => Column::Size,
        "#iterations" => Column::Iterations,
        "msgrate" => Column::Rate,
        "t_min" => Column::TimeMin,
        "t_max" => Column::TimeMax,
        "t_typical" => Column::Typical,
        "t_avg" => Column::TimeAverage,
        "t_stdev" => Column::Deviation,
        "tps average" => Column::Transactions,
        "cpu_util" => Column::CpuUtil,
        _ if name.contains("port") => Column::Other,
        _ if name.starts_with("99.9%") => Column::P999,
        _ if name.starts_with("99%") => Column::P99,
        _ if name.starts_with("bw") && name.contains("peak") => Column::Peak,
        _ if name.starts_with("bw") && name.contains("min") => Column::Minimum,
        _ if name.starts_with("bw") && (name.contains("average") || name.contains("avg")) => Column::Average,
        _ => Column::Other,
    }
}

/// The numbers with which a line begins, and the text behind them.
pub(super) fn cells(line: &str) -> (Vec<Cell<'_>>, &str) {
    let mut cells = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let Some(cell) = Cell::new(&rest[..end]) else { break };
        cells.push(cell);
        rest = rest[end..].trim_start();
    }
    (cells, rest)
}

/// The columns of a row that has no header: only shapes that no other tool prints. `known` says
/// that this is perftest's text anyhow, `latency` that its title is one of a latency test.
pub(super) fn shape(cells: &[Cell<'_>], known: bool, latency: bool) -> Option<&'static [Column]> {
    let places = |want: &[&[usize]]| {
        cells[2..].iter().enumerate().all(|(at, cell)| {
            cell.number().is_none() || want.iter().any(|want| want[at.min(want.len() - 1)] == cell.decimals())
        })
    };
    let counts = cells.len() >= 4 && cells[..2].iter().all(|cell| cell.integer().is_some());
    match cells.len() {
        5 if counts && (known || places(&[&[2, 2, 6], &[6, 6, 6]])) => Some(&BANDWIDTH),
        4 if counts && latency && places(&[&[2]]) => Some(&LATENCY_DURATION),
        9 if counts && (known || places(&[&[2]])) => Some(&LATENCY),
        _ => None,
    }
}

/// Whether the last number was printed to its end: the input may end inside it.
pub(super) fn whole(columns: &[Column], cells: &[Cell<'_>]) -> bool {
    let Some((cell, column)) = cells.last().zip(columns.get(cells.len() - 1)) else { return false };
    let decimals = if *column == Column::Rate { 6 } else { 2 };
    cell.number().is_none() || cell.decimals() >= decimals
}

/// ` Mtu             : 4096[B]`: the word after a name of the block.
pub(super) fn fact<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (before, rest) = line.split_once(name)?;
    // Not the end of another name: `Rx Device` is none of ours.
    if !before.is_empty() && !before.ends_with([' ', '\t']) {
        return None;
    }
    rest.trim_start().strip_prefix(':')?.split_whitespace().next()
}

/// ` GID: 00:00:..:255:255:192:00:02:11`: 16 bytes in decimal.
pub(super) fn gid(line: &str) -> Option<[u8; 16]> {
    let mut gid = [0; 16];
    let mut parts = line.strip_prefix("GID:")?.trim().split(':');
    for byte in &mut gid {
        *byte = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(gid)
}

/// A number after a word: `LID 0x02`, `QPN 0x0a10`.
pub(super) fn hex_after(line: &str, word: &str) -> Option<u32> {
    let mut words = line.split_whitespace();
    words.find(|found| *found == word)?;
    let text = words.next()?;
    u32::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_name_the_program() {
        let table = [
            ("RDMA_Write BW Test", Some(("ib_write_bw", false))),
            ("RDMA_Write_imm BW Test", Some(("ib_write_bw", false))),
            ("RDMA_Write Bidirectional Post List BW Test", Some(("ib_write_bw", true))),
            ("RDMA_Write_Bidirectional_BW_Test", Some(("ib_write_bw", true))),
            ("RDMA_Read Latency Test", Some(("ib_read_lat", false))),
            ("Send BW Test", Some(("ib_send_bw", false))),
            ("Atomic FETCH_AND_ADD BW Test", Some(("ib_atomic_bw", false))),
            ("Send BW Tes", None),
            ("Send us a Test", None),
            ("", None),
        ];
        for (line, want) in table {
            assert_eq!(title(line), want, "{line}");
        }
    }

    #[test]
    fn columns_are_found_by_their_labels() {
        let table = [
            (
                "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]    CPU_Util[%]",
                vec![
                    Column::Size,
                    Column::Iterations,
                    Column::Peak,
                    Column::Average,
                    Column::Rate,
                    Column::CpuUtil,
                ],
                Some("MiB/s"),
            ),
            (
                "#bytes #sl #iterations BW min[Gb/sec] BW peak[Gb/sec] BW-average[Gb/sec] MsgRate[Mpps] BW Port1[Gb/sec] MsgRate Port1[Mpps]",
                vec![
                    Column::Size,
                    Column::Other,
                    Column::Iterations,
                    Column::Minimum,
                    Column::Peak,
                    Column::Average,
                    Column::Rate,
                    Column::Other,
                    Column::Other,
                ],
                Some("Gb/s"),
            ),
            (
                "#bytes #iterations t_min[usec] t_max[usec] t_typical[usec] t_avg[usec] t_stdev[usec] 99% percentile[usec] 99.9% percentile[usec]",
                LATENCY.to_vec(),
                Some("us"),
            ),
            (
                "#bytes        #iterations       t_avg[usec]    tps average",
                vec![Column::Size, Column::Iterations, Column::TimeAverage, Column::Transactions],
                Some("us"),
            ),
        ];
        for (line, columns, unit) in table {
            assert_eq!(header(line), Some((columns, unit)), "{line}");
        }
        assert_eq!(header("# size count"), None);
    }

    #[test]
    fn numbers_are_read_as_printed() {
        let (cells, rest) = cells(" 65536  1.31072e+06 N/A -nan -41.03\t0.1 Completion with error");
        assert_eq!(rest, "Completion with error");
        assert_eq!(cells[0].integer(), Some(65536));
        assert_eq!(cells[1].integer(), Some(1_310_720));
        assert_eq!((cells[2].number(), cells[3].number(), cells[2].integer()), (None, None, None));
        assert_eq!(cells[4].number(), Some(-41.03));
        assert_eq!(super::cells("12ab 3").0, []);
        assert_eq!(super::cells("infinity 3").0, []);
        assert_eq!(super::cells("18446744072105378983").0[0].integer(), Some(18_446_744_072_105_378_983));
    }

    #[test]
    fn addresses_are_read() {
        let want = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 192, 0, 2, 11];
        assert_eq!(gid("GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:11"), Some(want));
        for line in ["GID: 1:2", "GID: 00:00:00:00:00:00:00:00:00:00:256:255:192:00:02:11", "GID:"] {
            assert_eq!(gid(line), None, "{line}");
        }
        assert_eq!(hex_after("local address: LID 0x02 QPN 0x0a10 PSN 0x1", "QPN"), Some(0xa10));
        assert_eq!(fact(" Dual-port : OFF\t\tDevice         : mlx5_0", "Device"), Some("mlx5_0"));
        assert_eq!(fact("rdma_cm QPs\t : ON", "rdma_cm QPs"), Some("ON"));
        assert_eq!(fact("XDevice : a", "Device"), None);
    }
}
