//! Finds perftest's programs.

use std::{
    fs::{self, Metadata},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use probes::{
    inventory::Perftest,
    lines::Problem,
    rdma::{FOLDERS, PROGRAMS},
};

use super::super::each_part;

/// What a problem with its folder is about.
const PART: &str = "perftest";

/// The perftest of `folder`, or of the first usual folder that has it where none is named. What it
/// can do is found out by running it, which is not for a worker.
pub(super) fn find(folder: &Path, problems: &mut Vec<Problem>) -> Option<Perftest> {
    let folders: Vec<PathBuf> = if folder.as_os_str().is_empty() {
        FOLDERS.iter().map(PathBuf::from).collect()
    } else {
        vec![folder.to_path_buf()]
    };
    // The folder can be on a file server that does not answer.
    let (found, unread) = each_part(vec![PART.to_string()], move |_, progress| {
        let look = |folder: &PathBuf| {
            progress.at(folder);
            installed(folder)
        };
        Ok(folders.iter().find_map(look))
    });
    problems.extend(unread);
    found.into_iter().flatten().next()
}

fn installed(folder: &Path) -> Option<Perftest> {
    let first = program(folder, PROGRAMS[0])?;
    let modified = first.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH).ok();
    let programs = PROGRAMS.iter().filter(|name| program(folder, name).is_some());
    Some(Perftest {
        directory: folder.display().to_string(),
        programs: programs.map(ToString::to_string).collect(),
        modified: modified.map(|since| since.as_secs()),
        version: None,
        gpu_options: Vec::new(),
    })
}

fn program(folder: &Path, name: &str) -> Option<Metadata> {
    let metadata = fs::metadata(folder.join(name)).ok()?;
    (metadata.is_file() && metadata.permissions().mode() & 0o111 != 0).then_some(metadata)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use super::*;

    #[test]
    fn what_can_be_run_is_found_in_the_folder_that_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut problems = Vec::new();
        let write = |name: &str, mode: u32| {
            fs::write(folder.path().join(name), "").unwrap();
            fs::set_permissions(folder.path().join(name), Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(find(folder.path(), &mut problems), None);
        write("ib_write_bw", 0o644);
        write("ib_write_lat", 0o755);
        assert_eq!(find(folder.path(), &mut problems), None);
        write("ib_write_bw", 0o755);
        write("ib_send_bw", 0o600);
        let found = find(folder.path(), &mut problems).unwrap();
        assert_eq!(found.directory, folder.path().display().to_string());
        assert_eq!(found.programs, ["ib_write_bw", "ib_write_lat"]);
        assert!(found.modified.is_some());
        assert_eq!(problems, []);
    }
}
