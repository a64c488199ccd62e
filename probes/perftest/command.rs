//! What a perftest command line says of its output: units, directions, and how it ends.

/// The options of a command that change what its output means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// `ib_write_bw` ..
    pub tool: String,
    /// `--report_gbits`
    pub gigabits: bool,
    /// `-C`: latencies are CPU cycles, whatever the label says.
    pub cycles: bool,
    /// `-b`
    pub bidirectional: bool,
    /// `-D`
    pub duration: bool,
    /// `--run_infinitely`: it ends only by being killed.
    pub infinite: bool,
    /// `--report-both`
    pub both: bool,
    /// `--use_cuda`, `--use_rocm` ..: the memory is a GPU's.
    pub gpu: bool,
    /// `--output`: one bare number a line.
    pub output: Option<Output>,
}

/// What the bare numbers of `--output` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// `bandwidth`
    Bandwidth,
    /// `message_rate`
    MessageRate,
    /// `latency`
    Latency,
}

/// Base names of the programs.
const TOOLS: [&str; 14] = [
    "ib_write_bw",
    "ib_read_bw",
    "ib_send_bw",
    "ib_atomic_bw",
    "ib_write_lat",
    "ib_read_lat",
    "ib_send_lat",
    "ib_atomic_lat",
    "raw_ethernet_bw",
    "raw_ethernet_lat",
    "raw_ethernet_send_bw",
    "raw_ethernet_send_lat",
    "raw_ethernet_burst_lat",
    "raw_ethernet_fs_rate",
];

/// Short options that take a value, from the usage page.
const WITH_VALUE: &str = "wypdimsntuSxcqIoMrQAlDfBTLEJjKkXW";

/// Words that end a command in a shell.
const SEPARATORS: [&str; 8] = ["&", "&&", "|", "||", ";", "/", "+", "vs"];

/// The program that a word names.
pub fn tool(word: &str) -> Option<&'static str> {
    let base = word.rsplit('/').next().unwrap_or(word);
    TOOLS.into_iter().find(|tool| *tool == base)
}

impl Command {
    /// Reads a command from its words. Launchers before the program and remarks after it are
    /// skipped. None if no word is a program of perftest.
    pub fn of(words: &[String]) -> Option<Command> {
        let mut words = words.iter().map(|word| word.trim_matches(['"', '\'', '(', ')', ',']));
        let tool = words.by_ref().find_map(tool)?;
        let mut command = Command { tool: tool.into(), ..Command::default() };
        while let Some(word) = words.next() {
            if SEPARATORS.contains(&word) || word.starts_with(['#', '>', '<']) || self::tool(word).is_some() {
                break;
            }
            if let Some(long) = word.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(n, v)| (n, Some(v)));
                if let Some(output) = command.long(name, value)
                    && output
                {
                    command.output = words.next().and_then(Output::new);
                }
            } else if let Some(short) = word.strip_prefix('-')
                && command.short(short)
            {
                words.next();
            }
        }
        Some(command)
    }

    /// Reads a command from a line, as a shell would split it into words.
    pub fn line(text: &str) -> Option<Command> {
        let spaced = text.replace(';', " ; ").replace('&', " & ");
        Command::of(&spaced.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    }

    /// A long option, which may be abbreviated. Some(true) if it is `--output` and its value is the
    /// next word.
    fn long(&mut self, name: &str, value: Option<&str>) -> Option<bool> {
        let is = |full: &str, shortest: &str| name.starts_with(shortest) && full.starts_with(name);
        self.gigabits |= is("report_gbits", "report_");
        self.cycles |= is("report-cycles", "report-cy");
        self.bidirectional |= is("bidirectional", "bi");
        self.duration |= is("duration", "dur");
        self.infinite |= is("run_infinitely", "ru");
        self.both |= is("report-both", "report-b");
        self.gpu |= ["use_cuda", "use_rocm", "use_musa", "use_neuron", "use_hl", "use_mlu"]
            .iter()
            .any(|gpu| name.starts_with(gpu));
        if !is("output", "outp") {
            return None;
        }
        self.output = value.and_then(Output::new);
        Some(value.is_none())
    }

    /// Letters after one dash. True if the last one's value is the next word.
    fn short(&mut self, letters: &str) -> bool {
        for (at, letter) in letters.char_indices() {
            match letter {
                'b' => self.bidirectional = true,
                'C' => self.cycles = true,
                'D' => self.duration = true,
                _ => {}
            }
            if WITH_VALUE.contains(letter) {
                return at + letter.len_utf8() == letters.len();
            }
        }
        false
    }
}

impl Output {
    fn new(word: &str) -> Option<Output> {
        match word {
            "bandwidth" => Some(Output::Bandwidth),
            "message_rate" => Some(Output::MessageRate),
            "latency" => Some(Output::Latency),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        Command { tool: "ib_write_bw".into(), ..Command::default() }
    }

    #[test]
    fn options_are_read_as_the_program_reads_them() {
        let table = [
            ("ib_write_bw -d mlx5_0", command()),
            ("sudo taskset -c 3 /usr/bin/ib_write_bw --report_gbit", Command { gigabits: true, ..command() }),
            ("mpirun -n 2 -b x ib_write_bw -aF", command()),
            ("ib_write_bw -D10 -x b", Command { duration: true, ..command() }),
            ("ib_write_bw -Fb -x3", Command { bidirectional: true, ..command() }),
            ("ib_write_bw -d -C -C", Command { cycles: true, ..command() }),
            ("ib_write_bw -d -C", command()),
            ("ib_write_bw --report-c -x 3", command()),
            ("ib_write_bw --run_inf --duration=5", Command { infinite: true, duration: true, ..command() }),
            ("ib_write_bw -b --report-both", Command { bidirectional: true, both: true, ..command() }),
            ("ib_write_bw --output=bandwidth", Command { output: Some(Output::Bandwidth), ..command() }),
            ("ib_write_bw --output latency -b", {
                Command { output: Some(Output::Latency), bidirectional: true, ..command() }
            }),
            ("ib_write_bw (server) / ib_write_bw --report_gbits (client)", command()),
            ("ib_write_bw & ib_write_bw -b", command()),
            ("ib_write_bw; ls -C", command()),
            ("ib_write_bw # with -C", command()),
            ("ssh node-a 'ib_write_bw -C'", Command { cycles: true, ..command() }),
            ("ib_write_bw --use_cuda=0 --use_cuda_dmabuf", Command { gpu: true, ..command() }),
        ];
        for (line, want) in table {
            assert_eq!(Command::line(line), Some(want), "{line}");
        }
        for line in ["", "all_reduce_perf -b 8", "xib_write_bw -C"] {
            assert_eq!(Command::line(line), None, "{line}");
        }
    }
}
