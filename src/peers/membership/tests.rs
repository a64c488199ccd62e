//! The tests of `src/peers/membership.rs`.

use std::error::Error as _;

use super::*;

fn entries(entries: &[&str]) -> Result<Membership, MembershipError> {
    let entries: Vec<String> = entries.iter().map(|entry| (*entry).to_string()).collect();
    let mut builder = Builder::default();
    builder.entries("peers.members", &entries)?;
    builder.build()
}

fn file_sd(text: &str) -> Result<Membership, MembershipError> {
    let mut builder = Builder::default();
    builder.file_sd(Path::new("nodes.json"), text)?;
    builder.build()
}

fn listed(membership: &Membership) -> Vec<(&str, &str)> {
    membership.members().iter().map(|member| (&*member.name, &*member.host)).collect()
}

#[test]
fn entries_name_a_node_and_where_it_is_if_that_differs() {
    let membership =
        entries(&["node-c=fd00::3", "node-a", "node_b.rack-1 = [FD00:0::2]", "node-a", "node-d=10.0.0.4"]);
    let expected =
        [("node-a", "node-a"), ("node-c", "fd00::3"), ("node-d", "10.0.0.4"), ("node_b.rack-1", "fd00::2")];
    assert_eq!(listed(&membership.unwrap()), expected);
}

#[test]
fn file_sd_names_nodes_by_label_or_by_host() {
    let membership = file_sd(
        r#"[{"targets": ["10.0.0.2:10950"], "labels": {"node": "node-b", "rack": "7", "__meta": "x"}},
            {"targets": ["node-c:10950", "node-d", "node-e.example:9100"]},
            {"targets": ["[fd00::6]:10950"], "labels": {"node": "node-f"}, "source": "ours"},
            {"targets": ["fd00::7"], "labels": {"node": "node-g"}},
            {"targets": [], "labels": {}}]"#,
    );
    let expected = [
        ("node-b", "10.0.0.2"),
        ("node-c", "node-c"),
        ("node-d", "node-d"),
        ("node-e.example", "node-e.example"),
        ("node-f", "fd00::6"),
        ("node-g", "fd00::7"),
    ];
    assert_eq!(listed(&membership.unwrap()), expected);
    assert_eq!(listed(&file_sd("[]").unwrap()), []);
}

#[test]
fn a_mistake_is_told_with_its_place() {
    let twice = r#"[{"targets": ["10.0.0.2"], "labels": {"node": "b"}}, {"targets": ["10.0.0.3"], "labels": {"node": "b"}}]"#;
    let table = [
        (file_sd("{}"), "nodes.json: not a file_sd list of targets and labels, at ."),
        (
            file_sd(r#"[{"targets": []}, {"target": "a"}]"#),
            "nodes.json: not a file_sd list of targets and labels, at [1]",
        ),
        (
            file_sd(r#"[{"targets": [7]}]"#),
            "nodes.json: not a file_sd list of targets and labels, at [0].targets[0]",
        ),
        (
            file_sd(r#"[{"targets": [], "labels": {"node": 7}}]"#),
            "nodes.json: not a file_sd list of targets and labels, at [0].labels.node",
        ),
        (file_sd("[] []"), "nodes.json: not a file_sd list of targets and labels, at the end"),
        (
            file_sd(r#"[{"targets": ["10.0.0.2:10950"]}]"#),
            "nodes.json [0]: 10.0.0.2 is an address and the node has no name: add the label node with the name in its certificate",
        ),
        (
            file_sd(r#"[{"targets": ["http://node-b"], "labels": {"node": "node-b"}}]"#),
            "nodes.json [0]: \"http://node-b\" is no host name and no IP address; write it without a port",
        ),
        (
            file_sd(twice),
            "nodes.json [1]: b is at 10.0.0.3 here and at 10.0.0.2 in nodes.json [0]; take one of them out",
        ),
        (
            entries(&["node-a", "node b"]),
            "peers.members [1]: \"node b\" is no name that a certificate can have: letters, digits, dots, - and _, and not only digits at the end",
        ),
        (
            entries(&["b=10.0.0.2:10950"]),
            "peers.members [0]: \"10.0.0.2:10950\" is no host name and no IP address; write it without a port",
        ),
        (
            entries(&[""]),
            "peers.members [0]: \"\" is no name that a certificate can have: letters, digits, dots, - and _, and not only digits at the end",
        ),
    ];
    for (result, expected) in table {
        assert_eq!(result.unwrap_err().to_string(), expected);
    }
    let shape = file_sd(r#"[{"target": "a"}]"#).unwrap_err();
    assert!(shape.source().unwrap().to_string().contains("missing field `targets`"), "{shape:?}");
}

#[test]
fn a_list_is_bounded() {
    let text = format!("[{}]", " ".repeat(LARGEST_FILE as usize));
    assert!(matches!(file_sd(&text), Err(MembershipError::Size { .. })));
    let many: Vec<String> = (0..=MOST).map(|node| format!("n{node}")).collect();
    let mut builder = Builder::default();
    builder.entries("peers.members", &many[..MOST]).unwrap();
    builder.entries("peers.members", &many[..10]).unwrap();
    assert_eq!(builder.build().unwrap().members().len(), MOST);
    let mut builder = Builder::default();
    builder.entries("peers.members", &many).unwrap();
    assert!(matches!(builder.build(), Err(MembershipError::Many(count)) if count == MOST + 1));
}

#[test]
fn members_are_found_by_name_and_the_digest_tells_lists_apart() {
    let (one, same) = (entries(&["a", "b", "c=10.0.0.3"]).unwrap(), entries(&["c", "b", "a"]).unwrap());
    assert_eq!(one.get("c").map(|member| &*member.host), Some("10.0.0.3"));
    assert_eq!(one.get("d"), None);
    assert_eq!(one.digest(), same.digest());
    for other in [&["a", "b"][..], &["a", "b", "c", "d"], &["a", "b", "d"], &[]] {
        assert_ne!(one.digest(), entries(other).unwrap().digest(), "{other:?}");
    }
}
