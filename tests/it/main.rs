mod fixtures;
#[path = "../tree.rs"]
#[expect(dead_code, reason = "until the first test uses it")]
mod tree;
