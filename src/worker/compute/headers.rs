//! The tests of the tables: each declaration against its Rust types here, and against the vendors' headers by a C compiler.

use std::{
    collections::BTreeSet,
    ffi::c_int,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use super::{functions::symbol, gemm::lt, nccl, runtime};

/// Declarations, each with its arguments and its result in Rust.
type Signatures = &'static [(&'static str, &'static [&'static str], &'static str)];

/// A C file that is compiled against a vendor's header.
struct Unit {
    /// Its name.
    name: &'static str,
    /// Any of these headers, the first that is there.
    headers: &'static [&'static str],
    /// What the header needs before it or lacks after it.
    before: &'static str,
    after: &'static str,
    /// What `%` and `$` stand for.
    prefix: &'static str,
    second: &'static str,
    /// The header is C++ only.
    cpp: bool,
    /// Each with the condition under which the header has it.
    tables: Vec<(&'static str, Signatures)>,
    /// Names as C has them.
    constants: Vec<(String, c_int)>,
}

/// What HIP's headers want to be told, the last by those before 6.0.
const HIP: &str = "#define __HIP_PLATFORM_AMD__ 1\n#define __HIP_PLATFORM_HCC__ 1\n";

fn units() -> Vec<Unit> {
    let runtime = |prefix: &str| {
        runtime::CONSTANTS.iter().map(|(name, number)| (format!("{prefix}{name}"), *number)).collect()
    };
    vec![
        Unit {
            name: "hip",
            headers: &["hip/hip_runtime_api.h"],
            before: HIP,
            after: "",
            prefix: "hip",
            second: "",
            cpp: false,
            tables: vec![("1", runtime::Functions::SIGNATURES), ("1", runtime::HipHost::SIGNATURES)],
            constants: runtime("hip"),
        },
        Unit {
            name: "cuda",
            headers: &["cuda_runtime_api.h"],
            before: "",
            after: "typedef enum cudaMemcpyKind cudaMemcpyKind;\n",
            prefix: "cuda",
            second: "",
            cpp: false,
            tables: vec![("1", runtime::Functions::SIGNATURES), ("1", runtime::CudaHost::SIGNATURES)],
            constants: runtime("cuda"),
        },
        Unit {
            name: "nccl",
            headers: &["nccl.h"],
            before: "",
            after: "",
            prefix: "cuda",
            second: "",
            cpp: false,
            tables: vec![
                ("1", nccl::Version::SIGNATURES),
                ("1", nccl::Functions::SIGNATURES),
                ("NCCL_VERSION_CODE >= 21300", nccl::LastError::SIGNATURES),
                ("NCCL_VERSION_CODE >= 22800", nccl::NcclAllToAll::SIGNATURES),
            ],
            constants: named(nccl::CONSTANTS),
        },
        Unit {
            name: "rccl",
            headers: &["rccl/rccl.h", "rccl.h"],
            before: HIP,
            after: "",
            prefix: "hip",
            second: "",
            cpp: false,
            tables: vec![
                ("1", nccl::Version::SIGNATURES),
                ("1", nccl::Functions::SIGNATURES),
                ("NCCL_VERSION_CODE >= 21300", nccl::LastError::SIGNATURES),
                ("1", nccl::RcclAllToAll::SIGNATURES),
            ],
            constants: named(nccl::CONSTANTS),
        },
        Unit {
            name: "cublaslt",
            headers: &["cublasLt.h"],
            before: "",
            after: "",
            prefix: "cublas",
            second: "cuda",
            cpp: false,
            tables: vec![("1", lt::Functions::SIGNATURES), ("1", lt::CublasVersion::SIGNATURES)],
            constants: named(lt::CUBLAS_CONSTANTS),
        },
        Unit {
            name: "hipblaslt",
            headers: &["hipblaslt/hipblaslt.h"],
            before: HIP,
            after: "#define _Static_assert static_assert\n",
            prefix: "hipblas",
            second: "hip",
            cpp: true,
            tables: vec![("1", lt::Functions::SIGNATURES), ("1", lt::HipblasVersion::SIGNATURES)],
            constants: named(lt::HIPBLAS_CONSTANTS),
        },
    ]
}

/// Constants whose names are whole.
fn named(constants: &[(&str, c_int)]) -> Vec<(String, c_int)> {
    constants.iter().map(|(name, number)| ((*name).to_string(), *number)).collect()
}

/// How Rust calls what C calls so, without a space before `*`. None for a type that no table has.
fn rust(c: &str) -> Option<&'static str> {
    Some(match c {
        "int"
        | "%MemcpyKind"
        | "ncclDataType_t"
        | "ncclRedOp_t"
        | "%ComputeType_t"
        | "$DataType"
        | "%LtMatmulDescAttributes_t"
        | "%LtMatmulPreferenceAttributes_t" => "c_int",
        "unsigned int" => "c_uint",
        "size_t" => "usize",
        "int*" => "*mut c_int",
        "const int*" => "*const c_int",
        "float*" => "*mut c_float",
        "char*" => "*mut c_char",
        "const char*" => "*const c_char",
        "void*" => "*mut c_void",
        "const void*" | "const %LtMatmulAlgo_t*" => "*const c_void",
        "%LtMatmulHeuristicResult_t*" => "*mut c_void",
        "uint64_t" => "u64",
        "int64_t" => "i64",
        "void**" => "*mut *mut c_void",
        "%Error_t" | "cudaError_t" | "hipError_t" | "ncclResult_t" | "%Status_t" | "hipblasStatus_t" => {
            "Status"
        }
        "ncclResult_t*" => "*mut Status",
        "%Stream_t"
        | "$Stream_t"
        | "%Event_t"
        | "ncclComm_t"
        | "%LtHandle_t"
        | "hipblasLtHandle_t"
        | "%LtMatmulDesc_t"
        | "%LtMatrixLayout_t"
        | "%LtMatmulPreference_t" => "Handle",
        "%Stream_t*"
        | "%Event_t*"
        | "ncclComm_t*"
        | "%LtHandle_t*"
        | "%LtMatmulDesc_t*"
        | "%LtMatrixLayout_t*"
        | "%LtMatmulPreference_t*" => "*mut Handle",
        _ => return None,
    })
}

/// Types of C that are enums in the headers and 32 bits in the tables.
fn is_enum(c: &str) -> bool {
    matches!(rust(c), Some("c_int" | "Status")) && c != "int"
}

/// The types of a declaration: of its result and of its arguments.
fn types(declaration: &str) -> (String, Vec<String>) {
    let (before, arguments) = declaration.trim_end_matches(')').split_once('(').unwrap();
    let tidy = |text: &str| text.trim().replace(" *", "*");
    let result = tidy(before.strip_suffix(symbol(declaration)).unwrap());
    let arguments = arguments.split(',').map(tidy).filter(|argument| argument != "void");
    (result, arguments.collect())
}

fn write(unit: &Unit) -> String {
    let spell = |text: &str| text.replace('%', unit.prefix).replace('$', unit.second);
    let mut c = unit.before.to_string();
    for (at, header) in unit.headers.iter().enumerate() {
        let word = if at == 0 { "if" } else { "elif" };
        let _ = writeln!(c, "#{word} __has_include(<{header}>)\n#include <{header}>");
    }
    let _ = writeln!(c, "#else\n#error \"none of {}\"\n#endif\n{}", unit.headers.join(", "), unit.after);
    let mut enums = BTreeSet::new();
    for (condition, table) in &unit.tables {
        let _ = writeln!(c, "#if {condition}");
        for (declaration, _, _) in *table {
            let (result, arguments) = types(declaration);
            enums.extend(arguments.iter().chain([&result]).filter(|c| is_enum(c)).map(|c| spell(c)));
            let (name, result) = (spell(symbol(declaration)), spell(&result));
            let arguments = spell(&if arguments.is_empty() { "void".into() } else { arguments.join(", ") });
            let _ = writeln!(c, "#ifdef {name}\n#error \"{name} has another name in the library\"\n#endif");
            let _ = writeln!(c, "{result} (*const check_{name})({arguments}) = {name};");
        }
        let _ = writeln!(c, "#endif");
    }
    for name in enums {
        let _ = writeln!(c, "_Static_assert(sizeof({name}) == sizeof(int), \"{name}\");");
    }
    for (name, number) in &unit.constants {
        let _ = writeln!(c, "_Static_assert({name} == {number}, \"{name}\");");
    }
    c
}

/// Writes the C files, once, to where `tests/headers/check` finds them.
fn write_all() -> &'static Path {
    static SCRIPT: OnceLock<PathBuf> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = root.join("target/headers");
        fs::create_dir_all(&folder).unwrap();
        for unit in units() {
            // Under its name as a whole: another process may read it.
            let new = folder.join(format!("{}.{}", unit.name, std::process::id()));
            fs::write(&new, write(&unit)).unwrap();
            let kind = if unit.cpp { "cc" } else { "c" };
            fs::rename(new, folder.join(format!("{}.{kind}", unit.name))).unwrap();
        }
        root.join("tests/headers/check")
    })
}

#[expect(clippy::disallowed_methods, reason = "a test starts a compiler")]
fn check(folder: &Path) -> (bool, String) {
    let script = write_all();
    let checked = Command::new(script).arg(folder).output().unwrap();
    let words = [checked.stdout, checked.stderr].concat();
    (checked.status.success(), String::from_utf8(words).unwrap())
}

#[test]
fn every_declaration_has_the_rust_types_of_its_c_types() {
    for unit in units() {
        for (declaration, arguments, result) in unit.tables.iter().flat_map(|(_, table)| *table) {
            let (c_result, c_arguments) = types(declaration);
            let c: Vec<_> = c_arguments.iter().chain([&c_result]).map(|c| rust(c)).collect();
            let rust: Vec<_> = arguments.iter().chain([result]).map(|rust| Some(*rust)).collect();
            assert_eq!(c, rust, "{declaration}");
        }
    }
}

#[test]
fn the_tables_agree_with_the_headers_of_hip_as_debian_has_them() {
    let (agrees, words) = check(Path::new("/usr/include"));
    assert!(agrees, "{words}");
    assert!(words.lines().any(|line| line.starts_with("hip: agrees")), "{words}");
}

#[test]
fn a_header_that_says_something_else_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let header = folder.path().join("hip/hip_runtime_api.h");
    fs::create_dir(header.parent().unwrap()).unwrap();
    let real = "#include_next <hip/hip_runtime_api.h>\n";
    let wrong = [
        ("", None),
        ("#define hipMalloc(to, bytes) 0", Some("hipMalloc")),
        ("#define hipMemcpyHostToDevice 7", Some("hipMemcpyHostToDevice")),
        ("hipError_t other(void **, int);\n#define hipFree other", Some("hipFree")),
        ("#define hipStream_t void **", Some("hipStream")),
    ];
    for (line, at) in wrong {
        fs::write(&header, format!("{real}{line}\n")).unwrap();
        let (agrees, words) = check(folder.path());
        assert_eq!(agrees, at.is_none(), "{line}: {words}");
        assert!(words.contains(at.unwrap_or("hip: agrees")), "{line}: {words}");
    }
}

#[test]
fn a_folder_without_headers_is_no_agreement() {
    let folder = tempfile::tempdir().unwrap();
    let (agrees, words) = check(folder.path());
    assert!(!agrees && words.contains("no header of a vendor"), "{words}");
}
