//! What an installed perftest can do, from what it prints of itself: `--help` lists only the
//! options that it was built with.

/// The options of GPU memory that are used here, without their dashes.
const GPU_OPTIONS: [&str; 5] =
    ["use_cuda", "use_cuda_bus_id", "use_cuda_dmabuf", "use_rocm", "use_rocm_dmabuf"];

/// The options of GPU memory that `ib_write_bw --help` lists.
pub fn gpu_options(help: &str) -> Vec<String> {
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let names = options.filter_map(|option| option.split(['=', ' ', '\t', '[']).next());
    names.filter(|name| GPU_OPTIONS.contains(name)).map(str::to_string).collect()
}

/// The version that `ib_write_bw --version` prints.
pub fn version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
    line.split_whitespace().next().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that builds for GPUs add, as they are printed.
    const ROCM: &str = include_str!("../testdata/rdma/help-rocm.txt");
    const CUDA: &str = include_str!("../testdata/rdma/help-cuda.txt");
    const PLAIN: &str = include_str!("../testdata/rdma/help-6.06.txt");

    #[test]
    fn options_of_gpu_memory_are_those_that_the_build_has() {
        let old = "      --use_rocm=<rocm device id> Use selected ROCm device for GPUDirect RDMA testing\n";
        let table: [(&str, &[&str]); 4] = [
            (PLAIN, &[]),
            (ROCM, &["use_rocm", "use_rocm_dmabuf"]),
            (CUDA, &["use_cuda", "use_cuda_bus_id", "use_cuda_dmabuf"]),
            (old, &["use_rocm"]),
        ];
        for (help, want) in table {
            assert_eq!(gpu_options(help), want);
        }
    }

    #[test]
    fn the_version_is_what_it_calls_itself() {
        let table = [("Version: 6.06\n", Some("6.06")), ("Version: \n", None), ("", None), (PLAIN, None)];
        for (text, want) in table {
            assert_eq!(version(text).as_deref(), want, "{text:?}");
        }
    }
}
