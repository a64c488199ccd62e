//! The committed trees of whole nodes are what their generator prints.

use std::{path::Path, process::Command};

#[test]
fn the_trees_of_whole_nodes_are_what_make_node_prints() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for kind in ["mi300x", "h200"] {
        #[expect(clippy::disallowed_methods, reason = "the generator is a test tool, not a step of a run")]
        let output =
            Command::new(folder.join("make-node")).arg(kind).output().expect("python3 runs make-node");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let committed = std::fs::read(folder.join(format!("{kind}.tree"))).expect("the tree can be read");
        assert!(
            output.stdout == committed,
            "renew it: tests/fixtures/make-node {kind} > tests/fixtures/{kind}.tree"
        );
    }
}
