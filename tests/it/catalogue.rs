//! The rules of this tree that no compiler knows. Each message names the line to add or to move.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use probes::{MetricKind, PROBES};

use crate::agent::Machine;

/// What may be at the top, dot folders and what builds leave aside.
const TOP: [&str; 6] = ["alerts", "dashboards", "deploy", "probes", "src", "tests"];
/// Lines above which a file holds a second noun.
const LINES: usize = 800;
/// Licences that may be linked into what we ship, as in deny.toml.
const LICENCES: [&str; 6] = ["Apache-2.0", "BSD-3-Clause", "ISC", "MIT", "Unicode-3.0", "Zlib"];
/// Crates that the program is built from on Linux, our own and those of builds and tests
/// included. A new one that needs more: say in the commit why it is worth its share.
const CRATES: usize = 160;
/// Units that are not base units: a reader would have to know the factor.
const NOT_BASE: [&str; 24] = [
    "ms",
    "us",
    "ns",
    "millis",
    "micros",
    "nanos",
    "minutes",
    "hours",
    "days",
    "kb",
    "kib",
    "mb",
    "mib",
    "gb",
    "gib",
    "gbps",
    "mbps",
    "gts",
    "mhz",
    "ghz",
    "percent",
    "bits",
    "milliwatts",
    "tflops",
];
/// Base units, which end a name.
const BASE: [&str; 9] =
    ["bytes", "seconds", "ratio", "second", "flops", "celsius", "watts", "lanes", "hertz"];

/// A Rust file of the tree.
struct Source {
    /// From the top of the tree.
    path: String,
    text: String,
}

impl Source {
    /// The lines that are in the shipped program, with their numbers. Tests are at the end of a
    /// file by convention.
    fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        lines.take_while(|(_, line)| line.trim() != "#[cfg(test)]")
    }

    /// Files that only tests are built from.
    fn is_test(&self) -> bool {
        (self.path.ends_with("tests.rs") && !self.path.ends_with("nccl_tests.rs"))
            || [
                "probes/sample.rs",
                "src/worker/compute/headers.rs",
                "src/worker/healthy.rs",
                "src/worker/recorded.rs",
            ]
            .contains(&self.path.as_str())
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    let path = top().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folders: &[&str]) -> Vec<Source> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| top().join(folder)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                let name = path.strip_prefix(top()).unwrap().display().to_string();
                sources.push(Source { text: fs::read_to_string(&path).unwrap(), path: name });
            }
        }
    }
    assert!(!sources.is_empty(), "no sources in {folders:?}");
    sources
}

/// Lines of the shipped program that say something outside the files that may.
fn trespasses(says: impl Fn(&str) -> bool, may: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut allowed = 0;
    for source in sources(&["src", "probes"]).iter().filter(|source| !source.is_test()) {
        for (number, line) in source.shipped().filter(|(_, line)| says(line)) {
            if may(&source.path) {
                allowed += 1;
            } else {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert!(allowed > 0, "the rule looks for something that is not said anywhere");
    found
}

#[test]
fn the_top_level_is_what_it_was_agreed_to_be() {
    for entry in fs::read_dir(top()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name().into_string().unwrap();
        assert!(
            name.starts_with('.') || name == "target" || TOP.contains(&name.as_str()),
            "{name}/ has no place at the top: move it below one of {TOP:?}"
        );
    }
}

#[test]
fn no_file_is_too_long() {
    for source in sources(&["src", "probes", "tests"]) {
        let lines = source.text.lines().count();
        assert!(lines <= LINES, "{} has {lines} lines: split it by its second noun", source.path);
    }
}

#[test]
fn only_the_runner_starts_processes() {
    // limits starts nothing: it becomes what the runner has started.
    let may = |path: &str| ["src/runner.rs", "src/worker/limits.rs"].contains(&path);
    let found = trespasses(|line| line.contains("Command::new("), may);
    assert!(found.is_empty(), "a step of a Plan, which src/runner.rs runs, does this: {found:#?}");
}

#[test]
fn nobody_but_the_configuration_knows_where_the_kernels_files_are() {
    // pcid has no configuration: it is told by a flag. What probes/ says of files is for people to type.
    let may = |path: &str| path == "src/worker/pcid.rs" || path.starts_with("probes/");
    let found = trespasses(|line| line.contains("\"/sys"), may);
    assert!(found.is_empty(), "the root is given by [roots]; readers live in src/sysfs/: {found:#?}");
}

#[test]
fn only_metrics_names_the_prefix() {
    // The headers of files in the state directory are keys, not metrics.
    let header =
        |line: &str| ["fabricpulse_journal", "fabricpulse_baseline"].iter().any(|key| line.contains(key));
    let says = |line: &str| line.contains("fabricpulse_") && !header(line);
    let prefix = |line: &str| says(line) || line.contains("PREFIX: &str");
    let found = trespasses(prefix, |path| path == "src/metrics.rs");
    assert!(found.is_empty(), "use metrics::PREFIX: {found:#?}");
}

#[test]
fn unsafe_is_in_one_place() {
    let says = |line: &str| {
        ["unsafe fn", "unsafe {", "unsafe impl", "unsafe extern"].iter().any(|word| line.contains(word))
    };
    let found = trespasses(says, |path| path == "src/sysfs.rs" || path.starts_with("src/worker/"));
    assert!(found.is_empty(), "move it to src/worker/: {found:#?}");
    let sysfs = sources(&["src"]).into_iter().find(|source| source.path == "src/sysfs.rs").unwrap();
    assert_eq!(sysfs.shipped().filter(|(_, line)| says(line)).count(), 1, "sysfs-class's trait demands one");
}

#[test]
fn the_catalogue_depends_on_nothing_that_can_act() {
    let manifest = read("probes/Cargo.toml");
    let section = manifest.split_once("[dependencies]\n").expect("[dependencies]").1;
    let names: Vec<_> = section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim()))
        .collect();
    assert_eq!(names, ["serde", "serde_json", "thiserror"], "probes/Cargo.toml");
    assert!(read("probes/lib.rs").contains("#![forbid(unsafe_code)]"), "probes/lib.rs");
}

#[test]
fn every_probe_has_its_section_its_recording_and_its_row() {
    let defaults = read("src/config/default.toml");
    let golden = read("tests/golden/metrics-mi300x.txt");
    for probe in PROBES {
        let name = probe.name();
        assert!(
            defaults.contains(&format!("[probe.{name}]\n")),
            "src/config/default.toml: add [probe.{name}]"
        );
        let recorded = top().join("probes/testdata").join(name).is_dir();
        let measured =
            probe.metrics().iter().any(|metric| golden.contains(&format!("\nfabricpulse_{}", metric.name)));
        assert!(
            recorded || measured,
            "add what its program prints as probes/testdata/{name}/, or what it reads to tests/fixtures/mi300x.tree"
        );
    }
    let names: BTreeSet<_> = PROBES.iter().map(|probe| probe.name()).collect();
    assert_eq!(names.len(), PROBES.len(), "two probes of one name");
}

#[test]
fn documents_hold_what_is_generated() {
    let machine = Machine::empty();
    for entry in fs::read_dir(top()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for (_, rest) in text.match_indices("<!-- generate ").map(|(at, mark)| text.split_at(at + mark.len()))
        {
            let (what, rest) = rest.split_once(" -->").expect("a comment ends");
            let (held, _) = rest.split_once("<!-- end -->").unwrap_or_else(|| {
                panic!("{}: no <!-- end --> behind <!-- generate {what} -->", path.display())
            });
            let output = machine.run(&["generate", what]);
            assert!(output.status.success(), "{output:?}");
            assert_eq!(
                held.trim(),
                String::from_utf8_lossy(&output.stdout).trim(),
                "{}: renew it by `fabricpulse generate {what}`",
                path.display()
            );
        }
    }
    let readme = read("README.md");
    for probe in PROBES {
        let row = format!("| `{}` |", probe.name());
        assert!(readme.contains(&row), "README.md: add a row {row} to the table of probes");
    }
}

#[test]
fn metrics_are_named_once_and_in_base_units() {
    let mut names = BTreeMap::new();
    for probe in PROBES {
        for metric in probe.metrics() {
            let name = metric.name;
            // Two probes may yield one metric, but then it is the very same.
            let known = names.insert(name, *metric);
            assert!(
                known.is_none_or(|known| std::ptr::eq(known, *metric)),
                "{name} is the name of two metrics"
            );
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'),
                "{name}: lower case and underscores"
            );
            let words: Vec<_> = name.split('_').collect();
            for word in &words {
                assert!(!NOT_BASE.contains(word), "{name}: {word} is no base unit");
            }
            for word in &words[..words.len() - 1] {
                let per = *word == "bytes" && name.ends_with("_per_second");
                assert!(!BASE.contains(word) || per, "{name}: the unit {word} ends the name");
            }
            for suffix in ["_total", "_info"] {
                assert!(!name.ends_with(suffix), "{name}: {suffix} is added by its kind");
            }
            assert!(
                metric.help.ends_with('.') && metric.help.contains(' '),
                "{name}: its help is a sentence"
            );
            match metric.kind {
                MetricKind::Gauge | MetricKind::Counter => {}
                MetricKind::Info => assert!(!metric.labels.is_empty(), "{name} informs of nothing"),
            }
        }
    }
}

/// What cargo knows of the crates that we are built from.
fn packages() -> Vec<serde_json::Value> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    #[expect(clippy::disallowed_methods, reason = "cargo knows the licences")]
    let output = std::process::Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", &platform])
        .current_dir(top())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let serde_json::Value::Array(packages) = all["packages"].take() else { panic!("no packages") };
    packages
}

#[test]
fn every_crate_has_a_licence_that_may_be_shipped() {
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        let words = licence.replace('(', " ( ").replace(')', " ) ");
        let words: Vec<_> = words.split_whitespace().collect();
        assert!(
            !words.is_empty() && any(&mut words.iter().copied().peekable()),
            "{} is under {licence:?}: take another crate, or allow it here and in deny.toml",
            package["name"]
        );
    }
    let deny = read("deny.toml");
    for licence in LICENCES {
        assert!(deny.contains(&format!("\"{licence}\"")), "deny.toml: allow {licence}");
    }
}

#[test]
fn the_program_is_built_from_few_crates() {
    let packages = packages();
    assert!(packages.len() <= CRATES, "{} crates, at most {CRATES}", packages.len());
}

type Words<'a> = std::iter::Peekable<std::iter::Copied<std::slice::Iter<'a, &'a str>>>;

/// Whether one side of the `OR`s may be shipped.
fn any(words: &mut Words<'_>) -> bool {
    let mut good = both(words);
    while words.next_if_eq(&"OR").is_some() {
        good |= both(words);
    }
    good
}

/// Whether all sides of the `AND`s may.
fn both(words: &mut Words<'_>) -> bool {
    let mut good = one(words);
    while words.next_if_eq(&"AND").is_some() {
        good &= one(words);
    }
    good
}

fn one(words: &mut Words<'_>) -> bool {
    match words.next() {
        Some("(") => {
            let good = any(words);
            words.next() == Some(")") && good
        }
        Some(licence) => {
            let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
            LICENCES.contains(&licence) && exception.is_none_or(|name| name == "LLVM-exception")
        }
        None => false,
    }
}

#[test]
fn licences_are_read_as_they_are_written() {
    let table = [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only OR MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("( MIT OR GPL-3.0-only ) AND ISC", true),
        ("( MIT AND GPL-3.0-only ) OR Zlib", true),
        ("GPL-2.0-only WITH Classpath-exception-2.0", false),
        ("Apache-2.0 WITH LLVM-exception", true),
    ];
    for (text, expected) in table {
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(any(&mut words.iter().copied().peekable()), expected, "{text}");
    }
}

#[test]
fn the_code_map_names_every_file_and_no_other() {
    let map = read("ARCHITECTURE.md");
    let named: BTreeSet<String> = map
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .map(|(file, _)| file.to_string())
        .filter(|file| file.ends_with(".rs"))
        .collect();
    let there: BTreeSet<String> = sources(&["src", "probes"]).into_iter().map(|source| source.path).collect();
    let missing: Vec<_> = there.difference(&named).collect();
    let gone: Vec<_> = named.difference(&there).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "ARCHITECTURE.md, code map: add {missing:?}, take out {gone:?}"
    );
}
