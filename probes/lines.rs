//! The protocol of our own workers: JSON, one object a line, closed by a line that counts them.
//!
//! The closing line is what tells a whole answer from one that was cut: rows alone prove nothing.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{ParseError, Unsupported};

/// The part that a problem is about when it is none in particular: a listing failed, so nothing is
/// known of any part.
pub const NODE: &str = "node";

/// How much of an unexpected line is repeated in the error.
const SHOWN: usize = 200;

/// One line of a worker's answer.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Line<T> {
    /// What was asked for.
    Item(T),
    /// A file or device that could not be read. The rest of the answer stands.
    Problem(Problem),
    /// Why this node can't be measured; no item comes then.
    Unsupported {
        /// What is missing, and where it was looked for.
        reason: String,
    },
    /// The last line.
    End {
        /// How many lines came before it.
        lines: usize,
    },
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Problem {
    /// The part that it is about, by name; [`NODE`] where it is none in particular.
    pub part: String,
    /// The file, as the kernel names it.
    pub path: String,
    /// What happened.
    pub error: String,
}

impl Problem {
    /// Whether it leaves something unknown of this part. A listing that failed does so of each.
    pub fn concerns(&self, part: &str) -> bool {
        self.part == part || self.part == NODE
    }
}

/// A worker's whole answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer<T> {
    /// In the order in which they came.
    pub items: Vec<T>,
    /// What could not be read.
    pub problems: Vec<Problem>,
}

/// Reads a worker's answer.
///
/// # Errors
///
/// When a line is not of the protocol, or the closing line is missing or counts differently; and
/// when the worker says that this node can't be measured.
pub fn read<T: DeserializeOwned>(stdout: &str) -> Result<Answer<T>, ParseError> {
    let mut answer = Answer { items: Vec::new(), problems: Vec::new() };
    let mut unsupported = None;
    let mut closed = None;
    for line in stdout.lines().filter(|line| !line.trim().is_empty()) {
        let wrong = |why: String| ParseError::Line { line: line.chars().take(SHOWN).collect(), why };
        if closed.is_some() {
            return Err(wrong("it follows the closing line".into()));
        }
        match serde_json::from_str(line).map_err(|error| wrong(error.to_string()))? {
            Line::Item(item) => answer.items.push(item),
            Line::Problem(problem) => answer.problems.push(problem),
            Line::Unsupported { reason } => unsupported = Some(reason),
            Line::End { lines } => closed = Some(lines),
        }
    }
    match closed {
        None => Err(ParseError::Missing("closing line")),
        Some(lines)
            if lines != answer.items.len() + answer.problems.len() + usize::from(unsupported.is_some()) =>
        {
            Err(ParseError::Missing("part of the lines that the closing line counts"))
        }
        Some(_) => unsupported.map_or(Ok(answer), |reason| Err(Unsupported(reason).into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_answer_is_read() {
        let stdout = "{\"item\":7}\n{\"problem\":{\"part\":\"mlx5_0\",\"path\":\"/sys/x\",\"error\":\"EIO\"}}\n{\"end\":{\"lines\":2}}\n";
        let answer = read::<u32>(stdout).unwrap();
        assert_eq!(answer.items, [7]);
        assert_eq!(answer.problems[0].part, "mlx5_0");
    }

    #[test]
    fn a_worker_may_say_that_this_node_cant_be_measured() {
        let stdout = "{\"unsupported\":{\"reason\":\"no librccl.so\"}}\n{\"end\":{\"lines\":1}}\n";
        assert_eq!(read::<u32>(stdout), Err(ParseError::Unsupported(Unsupported("no librccl.so".into()))));
    }

    #[test]
    fn a_cut_answer_is_an_error_and_never_a_short_one() {
        let table = [
            ("", "no closing line in the output"),
            ("{\"item\":7}\n", "no closing line in the output"),
            (
                "{\"item\":7}\n{\"end\":{\"lines\":2}}\n",
                "no part of the lines that the closing line counts in the output",
            ),
        ];
        for (stdout, message) in table {
            assert_eq!(read::<u32>(stdout).unwrap_err().to_string(), message);
        }
        assert!(matches!(read::<u32>("{\"item\":"), Err(ParseError::Line { .. })));
        assert!(matches!(
            read::<u32>("{\"end\":{\"lines\":0}}\n{\"item\":7}\n"),
            Err(ParseError::Line { .. })
        ));
    }
}
