//! The independent decision model: `tools/access/permission_model.py` with the tables of `docs/permissions.md`.
//!
//! INVARIANT: this file depends on `serde_json` only, because the tests of the API include it too.

use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// Environment variable with the Python interpreter, set by `cargo xtask test`.
const PYTHON_VARIABLE: &str = "FAIRWAY_TEST_RECEIVERS_PYTHON";
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// The document with the permission tables that the model applies.
pub(crate) const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/permissions.md");

/// A running process of the model, which answers all questions.
pub(crate) struct DecisionModel {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl DecisionModel {
    /// Starts the model with the tables of a document and the parent of each scope.
    pub(crate) fn start(document: &Path, parents: &BTreeMap<String, String>) -> Self {
        let python = std::env::var_os(PYTHON_VARIABLE).unwrap();
        let mut command = Command::new(python);
        command.arg(format!("{ROOT}/tools/access/permission_model.py")).arg(document);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut model = Self { process, input, output: BufReader::new(output) };
        assert_eq!(model.answer(&[json!({ "parents": parents })]), ["known"]);
        model
    }

    /// Sends the questions to the model, and returns its verdicts in the same order.
    pub(crate) fn answer(&mut self, questions: &[Value]) -> Vec<String> {
        let lines: Vec<String> = questions.iter().map(Value::to_string).collect();
        let text = lines.join("\n") + "\n\n";
        let (input, output) = (&mut self.input, &mut self.output);
        // The model answers while it still receives questions, and pipes have small buffers. A separate thread writes
        // the questions, so that neither process blocks.
        std::thread::scope(|scope| {
            scope.spawn(move || input.write_all(text.as_bytes()).and_then(|()| input.flush()).unwrap());
            let mut verdicts = Vec::new();
            for question in questions {
                let mut verdict = String::new();
                assert!(output.read_line(&mut verdict).unwrap() > 0, "the model ended at {question}");
                verdicts.push(verdict.trim_end().to_owned());
            }
            verdicts
        })
    }
}

impl Drop for DecisionModel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
