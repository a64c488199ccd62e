//! The vendors' libraries as the tests have them: tests/fixtures/gpu, built once for each vendor.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// Whose libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vendor {
    Amd,
    Nvidia,
}

/// A folder with a vendor's libraries, which lives as long as the tests.
pub(crate) fn libraries(vendor: Vendor) -> &'static Path {
    static AMD: OnceLock<tempfile::TempDir> = OnceLock::new();
    static NVIDIA: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = match vendor {
        Vendor::Amd => AMD.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            build(folder.path(), "runtime.c", "libamdhip64.so.6", &["-DPREFIX=hip", "-DTEXT=\"hip\""]);
            build(folder.path(), "collectives.c", "librccl.so.1", &[]);
            let numbers =
                ["-DBLAS=hipblas", "-DIS_HIP", "-DTRANSPOSE_FIRST=0", "-DTRANSPOSED=112", "-DOTHER_FP8=28"];
            build(folder.path(), "products.c", "libhipblaslt.so.0", &numbers);
            folder
        }),
        Vendor::Nvidia => NVIDIA.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            build(folder.path(), "runtime.c", "libcudart.so.12", &["-DPREFIX=cuda", "-DTEXT=\"cuda\""]);
            build(folder.path(), "collectives.c", "libnccl.so.2", &[]);
            let numbers = ["-DBLAS=cublas", "-DTRANSPOSE_FIRST=3", "-DTRANSPOSED=1", "-DOTHER_FP8=1000"];
            build(folder.path(), "products.c", "libcublasLt.so.12", &numbers);
            folder
        }),
    };
    folder.path()
}

/// Builds one of them.
pub(crate) fn build(folder: &Path, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpu").join(source);
    let library = folder.join(name);
    #[expect(clippy::disallowed_methods, reason = "a test builds a library")]
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .args([&library, &source])
        .arg("-lm")
        .output()
        .expect("cc is in Debian's package gcc; tests/run installs it");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}
