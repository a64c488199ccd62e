//! `fabricpulse read <format> FILE..`: saved output of a tool, and what it means.
//!
//! It starts nothing, reads no configuration, and looks only at its arguments. The object goes to
//! standard output, and the exit status says whether there is one, never what it says.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    process::ExitCode,
};

use probes::read::{Expectation, FILE_BYTES, Input, Known, Report, nccl_tests, pcie, perftest};

/// The status of wrong usage.
const USAGE: u8 = 2;

/// Options of `fabricpulse read`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the files are: perftest (of `ib_write_bw` and its relatives), nccl-tests or rccl-tests (of
    /// `all_reduce_perf` and its relatives), or pcie (`lspci -xxxx`).
    format: String,
    /// The exit status that the shell gave the tool; 124 for a deadline, 128 + n for signal n.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    exit_code: Option<i32>,
    /// The command that was run.
    #[arg(long, value_name = "TEXT")]
    cmdline: Option<String>,
    /// What a healthy run gives, with its unit: 400Gb/s, 50GB/s, 2.5us. Of nccl-tests it is busbw.
    #[arg(long, value_name = "VALUE", value_parser = expectation)]
    expect: Option<Expectation>,
    /// Files of one run; - is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

/// What is read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    NcclTests,
    Perftest,
    Pcie,
}

impl Format {
    /// A format by any of its names.
    fn named(name: &str) -> Option<Format> {
        match name {
            "nccl-tests" | "rccl-tests" => Some(Format::NcclTests),
            "perftest" => Some(Format::Perftest),
            "pcie" => Some(Format::Pcie),
            _ => None,
        }
    }

    /// The name in the object.
    fn name(self) -> &'static str {
        match self {
            Format::NcclTests => "nccl-tests",
            Format::Perftest => "perftest",
            Format::Pcie => "pcie",
        }
    }
}

/// Prints the object, or says on one line why there is none.
pub(crate) fn main(args: &Args) -> ExitCode {
    let Some(format) = Format::named(&args.format) else {
        let formats = "the formats are nccl-tests, rccl-tests, perftest and pcie";
        return complain(USAGE, &format!("unknown format {:?}: {formats}", args.format));
    };
    let mut inputs = Vec::new();
    for name in &args.files {
        match input(name) {
            Ok(input) => inputs.push(input),
            Err(error) => return complain(1, &format!("{name}: {error}")),
        }
    }
    let known = Known { exit_code: args.exit_code, cmdline: args.cmdline.clone(), expect: args.expect };
    let report: Report = match format {
        Format::NcclTests => nccl_tests::read(&inputs, &known),
        Format::Perftest => perftest::read(&inputs, &known),
        // A dump is the same whatever became of lspci, so the options say nothing of it.
        Format::Pcie => pcie::read(&inputs),
    };
    let names: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    let object = report.object(format.name(), &names, args.exit_code);
    match writeln!(io::stdout().lock(), "{object}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(1, &format!("standard output: {error}")),
    }
}

fn complain(status: u8, why: &str) -> ExitCode {
    eprintln!("fabricpulse read: {why}");
    ExitCode::from(status)
}

fn input(name: &str) -> io::Result<Input> {
    let limit = FILE_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if name == "-" {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        File::open(name)?.take(limit).read_to_end(&mut bytes)?;
    }
    let truncated = bytes.len() > FILE_BYTES;
    bytes.truncate(FILE_BYTES);
    let base = Path::new(name).file_name().map_or(name.into(), |base| base.to_string_lossy());
    Ok(Input { name: base.into_owned(), text: String::from_utf8_lossy(&bytes).into_owned(), truncated })
}

/// A number with its unit.
fn expectation(text: &str) -> Result<Expectation, String> {
    let units = [
        ("Gb/s", Expectation::Bandwidth as fn(f64) -> Expectation, 1e9),
        ("GB/s", Expectation::Bandwidth, 8e9),
        ("us", Expectation::Latency, 1e-6),
    ];
    let parsed = units.iter().find_map(|(unit, kind, scale)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        (number.is_finite() && number > 0.0).then(|| kind(number * scale))
    });
    parsed.ok_or_else(|| format!("{text:?} is not a number with its unit, such as 400Gb/s, 50GB/s or 2.5us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expectation_is_a_number_with_its_unit() {
        let table = [
            ("400Gb/s", Some(Expectation::Bandwidth(400e9))),
            ("50GB/s", Some(Expectation::Bandwidth(400e9))),
            ("2.5us", Some(Expectation::Latency(2.5e-6))),
            ("400", None),
            ("Gb/s", None),
            ("-1Gb/s", None),
            ("nanus", None),
            ("400 mph", None),
        ];
        for (text, want) in table {
            match (expectation(text), want) {
                (Ok(Expectation::Bandwidth(got)), Some(Expectation::Bandwidth(want)))
                | (Ok(Expectation::Latency(got)), Some(Expectation::Latency(want))) => {
                    assert!((got / want - 1.0).abs() < 1e-9, "{text}: {got}");
                }
                (got, want) => assert!(got.is_err() && want.is_none(), "{text}: {got:?} {want:?}"),
            }
        }
    }

    #[test]
    fn a_file_is_read_to_its_limit_and_a_folder_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name).display().to_string();
        std::fs::write(path("odd"), b"a\xffb").unwrap();
        let odd = input(&path("odd")).unwrap();
        assert_eq!((odd.name.as_str(), odd.text.as_str(), odd.truncated), ("odd", "a\u{fffd}b", false));
        for (size, truncated) in [(FILE_BYTES, false), (FILE_BYTES + 1, true)] {
            std::fs::write(path("large"), vec![b'x'; size]).unwrap();
            let large = input(&path("large")).unwrap();
            assert_eq!((large.text.len(), large.truncated), (FILE_BYTES, truncated));
        }
        assert!(input(&path("")).is_err());
        assert!(input(&path("missing")).is_err());
    }
}
