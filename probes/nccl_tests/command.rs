//! What a command line says of nccl-tests' output: the program, and whether it runs until killed.

/// Base names of the programs, without the `_perf` behind them.
const COLLECTIVES: [(&str, &str); 11] = [
    ("all_reduce", "all_reduce_perf"),
    ("all_gather", "all_gather_perf"),
    ("reduce_scatter", "reduce_scatter_perf"),
    ("alltoall", "alltoall_perf"),
    ("alltoallv", "alltoallv_perf"),
    ("broadcast", "broadcast_perf"),
    ("reduce", "reduce_perf"),
    ("gather", "gather_perf"),
    ("scatter", "scatter_perf"),
    ("sendrecv", "sendrecv_perf"),
    ("hypercube", "hypercube_perf"),
];

/// The program that a word names; packages built with MPI may add `_mpi` to the name.
pub fn program(word: &str) -> Option<&'static str> {
    let base = word.rsplit('/').next().unwrap_or(word);
    let base = base.strip_suffix("_mpi").unwrap_or(base);
    COLLECTIVES.into_iter().find(|(_, program)| *program == base).map(|(_, program)| program)
}

/// The program that measures a collective, by the name in rccl's reports: `AllReduce`.
pub fn of_collective(name: &str) -> Option<&'static str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', ' ', '-'], "");
    let name = plain(name);
    COLLECTIVES.into_iter().find(|(known, _)| plain(known) == name).map(|(_, program)| program)
}

/// The program of a command. Launchers before it are skipped. None if no word names one.
pub fn tool(cmdline: &str) -> Option<&'static str> {
    words(cmdline).find_map(program)
}

/// Whether the command repeats its sweep until it is killed: `-N 0`.
pub fn is_endless(cmdline: &str) -> bool {
    let mut words = words(cmdline).skip_while(|word| program(word).is_none()).skip(1);
    while let Some(word) = words.next() {
        if ["&", "&&", "|", "||", ";"].contains(&word) || word.starts_with('#') {
            return false;
        }
        let value = if word == "-N" || word == "--run_cycles" {
            words.next()
        } else {
            word.strip_prefix("--run_cycles=").or_else(|| word.strip_prefix("-N"))
        };
        if value == Some("0") {
            return true;
        }
    }
    false
}

fn words(cmdline: &str) -> impl Iterator<Item = &str> {
    cmdline.split_whitespace().map(|word| word.trim_matches(['"', '\'', '(', ')', ',', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_behind_its_launchers() {
        let table = [
            ("all_reduce_perf -b 8", Some("all_reduce_perf")),
            ("mpirun -np 16 -x NCCL_DEBUG=INFO ./build/alltoall_perf -g 1", Some("alltoall_perf")),
            ("srun bash -c '/opt/sendrecv_perf_mpi -b 1G'", Some("sendrecv_perf")),
            ("ib_write_bw -a", None),
            ("cat all_reduce_perf.log", None),
            ("", None),
        ];
        for (line, want) in table {
            assert_eq!(tool(line), want, "{line}");
        }
        for (name, want) in
            [("AllReduce", Some("all_reduce_perf")), ("AlltoAllv", Some("alltoallv_perf")), ("Foo", None)]
        {
            assert_eq!(of_collective(name), want, "{name}");
        }
    }

    #[test]
    fn a_command_without_end_is_known() {
        for (line, want) in [
            ("mpirun -N 0 all_reduce_perf -N 1", false),
            ("all_reduce_perf -b 8 -N 0", true),
            ("all_reduce_perf -N0", true),
            ("all_reduce_perf --run_cycles=0", true),
            ("all_reduce_perf --run_cycles 2", false),
            ("all_reduce_perf & x -N 0", false),
        ] {
            assert_eq!(is_endless(line), want, "{line}");
        }
    }
}
