//! What a command line of these programs says of their output.

/// The program of a command, and what its options change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// `all_reduce_perf` ..
    pub tool: String,
    /// `-c 0`: results are not checked.
    pub unchecked: bool,
}

/// Base names of the programs.
const TOOLS: [&str; 12] = [
    "all_reduce_perf",
    "all_gather_perf",
    "reduce_scatter_perf",
    "alltoall_perf",
    "alltoallv_perf",
    "broadcast_perf",
    "reduce_perf",
    "gather_perf",
    "scatter_perf",
    "sendrecv_perf",
    "hypercube_perf",
    "all_reduce_bias_perf",
];

/// The program that a word names; `_mpi` and its like may follow.
pub(super) fn tool(word: &str) -> Option<&'static str> {
    let base = word.rsplit('/').next().unwrap_or(word);
    TOOLS.into_iter().find(|tool| {
        base.strip_prefix(tool).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.', '-']))
    })
}

/// The name by which CSV and JSON of rccl-tests call a collective.
pub(super) fn by_collective(name: &str) -> Option<&'static str> {
    let plain = |name: &str| name.to_ascii_lowercase().replace(['_', ' ', '-'], "");
    let wanted = plain(name);
    TOOLS.into_iter().find(|tool| plain(tool.trim_end_matches("_perf")) == wanted)
}

impl Command {
    /// Reads a command from a line. Launchers before the program are skipped. None if no word is one
    /// of these programs.
    pub fn line(text: &str) -> Option<Command> {
        let spaced = text.replace([';', '&', '|'], " ; ");
        let mut words = spaced.split_whitespace().map(|word| word.trim_matches(['"', '\'', '(', ')', ',']));
        let tool = words.by_ref().find_map(tool)?.to_string();
        let mut command = Command { tool, unchecked: false };
        while let Some(word) = words.next() {
            if word == ";" || word.starts_with(['#', '>', '<']) {
                break;
            }
            let value = match word {
                "-c" | "--check" => words.next(),
                _ => word.strip_prefix("--check=").or_else(|| word.strip_prefix("-c")),
            };
            command.unchecked |= value == Some("0");
        }
        Some(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_its_check_are_found() {
        let table = [
            ("mpirun -np 16 ./build/all_reduce_perf -b 8 -c 0", Some(("all_reduce_perf", true))),
            ("all_reduce_perf -b 8 -c 1 ; x -c 0", Some(("all_reduce_perf", false))),
            ("/opt/alltoall_perf_mpi --check=0", Some(("alltoall_perf", true))),
            ("sendrecv_perf -c0", Some(("sendrecv_perf", true))),
            ("ib_write_bw -c 0", None),
        ];
        for (line, expected) in table {
            let found = Command::line(line);
            let found = found.as_ref().map(|command| (command.tool.as_str(), command.unchecked));
            assert_eq!(found, expected, "{line}");
        }
        assert_eq!(by_collective("AllReduce"), Some("all_reduce_perf"));
        assert_eq!(by_collective("AlltoAll"), Some("alltoall_perf"));
        assert_eq!(by_collective("SendRecv"), Some("sendrecv_perf"));
    }
}
