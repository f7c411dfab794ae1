//! Starlark, which has no clocks, randomness or I/O. A script's result is the value of its global variable
//! `result`.

use crate::output::Output;
use fairway_domain::execution::script::{ScriptFailure, ScriptResult};
use serde_json::Value;
use starlark::{
    Error, ErrorKind, PrintHandler,
    environment::{Globals, LibraryExtension, Module},
    eval::Evaluator,
    syntax::{AstModule, Dialect},
};

/// Maximum depth of nested calls.
const MAX_CALL_DEPTH: usize = 200;

/// The extensions of the standard library that scripts can use.
const LIBRARY: [LibraryExtension; 9] = [
    LibraryExtension::StructType,
    LibraryExtension::RecordType,
    LibraryExtension::EnumType,
    LibraryExtension::SetType,
    LibraryExtension::Map,
    LibraryExtension::Filter,
    LibraryExtension::Partial,
    LibraryExtension::Print,
    LibraryExtension::Json,
];

/// The global functions of scripts. They are created before the script arrives, because this takes longer than most
/// scripts.
pub(crate) struct Engine {
    globals: Globals,
}

impl Engine {
    /// Creates the engine, and triggers the interpreter's lazy initialization.
    pub(crate) fn new() -> Self {
        let engine = Self { globals: Globals::extended_by(&LIBRARY) };
        let _ignored = evaluate(&engine.globals, "result = None".to_owned(), &Output::with_limit(0));
        engine
    }

    /// Runs a script with an output limit in bytes.
    pub(crate) fn run(self, code: String, output: usize) -> ScriptResult {
        let output = Output::with_limit(output);
        let result = evaluate(&self.globals, code, &output);
        let result = if output.is_exceeded() { Err(ScriptFailure::TooMuchOutput) } else { result };
        ScriptResult { result, stdout: output.take() }
    }
}

fn evaluate(globals: &Globals, code: String, output: &Output) -> Result<Value, ScriptFailure> {
    let dialect = Dialect { enable_load: false, enable_f_strings: true, ..Dialect::Extended };
    let syntax_tree = AstModule::parse("script", code, &dialect).map_err(|error| report_error(&error, output))?;
    let print_handler = PrintCapture(output);
    let module = Module::new();
    {
        // The interpreter has no memory limit of its own; the limit of the process applies.
        let mut evaluator = Evaluator::new(&module);
        evaluator.set_max_callstack_size(MAX_CALL_DEPTH).map_err(|_| ScriptFailure::Stopped)?;
        evaluator.set_print_handler(&print_handler);
        evaluator.eval_module(syntax_tree, globals).map_err(|error| report_error(&error, output))?;
    }
    match module.get("result") {
        None => Ok(Value::Null),
        Some(result) => result.to_json_value().map_err(|_| ScriptFailure::ResultNotJson),
    }
}

/// Classifies an error, and writes it to the output in the form in which an interpreter prints it on a terminal.
fn report_error(error: &Error, output: &Output) -> ScriptFailure {
    let is_too_deep = matches!(error.kind(), ErrorKind::StackOverflow(_));
    let failure = if is_too_deep { ScriptFailure::Memory } else { ScriptFailure::Error };
    output.append_error(&error.to_string());
    failure
}

struct PrintCapture<'s>(&'s Output);

impl PrintHandler for PrintCapture<'_> {
    fn println(&self, text: &str) -> starlark::Result<()> {
        self.0.append_line(text).map_err(|_| Error::new_other(std::fmt::Error))
    }
}
