//! JavaScript by QuickJS, without clocks and randomness. A script's result is the value of its last expression; if
//! this is a promise, it is awaited.

use crate::output::Output;
use fairway_domain::execution::script::{ScriptFailure, ScriptLimits, ScriptResult};
use rquickjs::{
    CatchResultExt as _, CaughtError, Context, Ctx, Error, Exception, Function, Object, Runtime, Value as JsValue,
    context::{EvalOptions, intrinsic},
    function::Rest,
    promise::MaybePromise,
};
use serde_json::Value;
use std::rc::Rc;

/// Maximum stack of the engine, in bytes.
const STACK: usize = 1 << 20;

/// The built-in objects that scripts can use. `Date`, `performance` and observers of garbage collection are left
/// out, so that scripts are deterministic.
type Intrinsics = (
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// An engine that is ready for a script.
pub(crate) struct Engine {
    context: Context,
    output: Rc<Output>,
    max_memory: usize,
}

impl Engine {
    /// Creates an engine with these limits.
    pub(crate) fn new(limits: &ScriptLimits) -> Result<Self, ScriptFailure> {
        let engine = Runtime::new().map_err(|_| ScriptFailure::Memory)?;
        engine.set_memory_limit(limits.memory_bytes);
        engine.set_max_stack_size(STACK);
        let context = Context::custom::<Intrinsics>(&engine).map_err(|_| ScriptFailure::Memory)?;
        let output = Rc::new(Output::with_limit(limits.output_bytes));
        context.with(|ctx| install_output(&ctx, &output)).map_err(|_| ScriptFailure::Memory)?;
        Ok(Self { context, output, max_memory: limits.memory_bytes })
    }

    /// Runs a script and returns its result with its output.
    pub(crate) fn run(self, code: &str) -> ScriptResult {
        let result = self.evaluate(code);
        let result = if self.output.is_exceeded() { Err(ScriptFailure::TooMuchOutput) } else { result };
        ScriptResult { result, stdout: self.output.take() }
    }

    fn evaluate(&self, code: &str) -> Result<Value, ScriptFailure> {
        let outcome = self.context.with(|ctx| {
            let engine_errors = EngineErrors::take_from(&ctx).map_err(|_| Thrown::Known(ScriptFailure::Memory))?;
            let output = &self.output;
            let result = result(&ctx, code)
                .catch(&ctx)
                .map_err(|error| report_error(&error, Phase::Run, &engine_errors, output))?;
            let text = text_of(&ctx, result)
                .catch(&ctx)
                .map_err(|error| report_error(&error, Phase::Serialize, &engine_errors, output))?;
            match text {
                Some(text) => serde_json::from_str(&text).map_err(|_| Thrown::Known(ScriptFailure::ResultNotJson)),
                None => Err(Thrown::Known(ScriptFailure::ResultNotJson)),
            }
        });
        outcome.map_err(|thrown| match thrown {
            Thrown::Known(failure) => failure,
            Thrown::Null if self.is_almost_full() => ScriptFailure::Memory,
            Thrown::Null => ScriptFailure::Error,
        })
    }

    fn is_almost_full(&self) -> bool {
        let allocated_bytes = self.context.runtime().memory_usage().malloc_size;
        // The engine throws null when it has no memory for an error object. Memory counts as exhausted above three
        // quarters of the limit.
        usize::try_from(allocated_bytes).is_ok_and(|allocated_bytes| allocated_bytes > self.max_memory / 4 * 3)
    }
}

/// The prototype of the error type that the engine throws when memory is exhausted. Scripts cannot create errors of
/// this type, because they cannot access its constructor.
struct EngineErrors<'js>(Object<'js>);

impl<'js> EngineErrors<'js> {
    const NAME: &'static str = "InternalError";

    /// Removes the error type from the global scope before the script runs.
    fn take_from(ctx: &Ctx<'js>) -> Result<Self, Error> {
        let globals = ctx.globals();
        let prototype: Object<'js> = globals.get::<_, Object<'js>>(Self::NAME)?.get("prototype")?;
        globals.remove(Self::NAME)?;
        prototype.remove("constructor")?;
        Ok(Self(prototype))
    }

    fn contains(&self, exception: &Exception<'js>) -> bool {
        exception.as_object().get_prototype().as_ref() == Some(&self.0)
    }
}

/// The phase of the evaluation in which an error was thrown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Running the script.
    Run,
    /// Converting its result to JSON.
    Serialize,
}

/// The error that ended a script.
enum Thrown {
    /// A classified failure.
    Known(ScriptFailure),
    /// The value null: thrown by the script, or by the engine if it had no memory for an error object.
    Null,
}

/// Evaluates a script, and awaits its result if that is a promise.
fn result<'js>(ctx: &Ctx<'js>, code: &str) -> Result<JsValue<'js>, Error> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some("script".to_owned());
    let result: MaybePromise<'js> = ctx.eval_with_options(code, options)?;
    result.finish()
}

/// Converts a result to JSON; `None` if JSON cannot represent it.
fn text_of<'js>(ctx: &Ctx<'js>, result: JsValue<'js>) -> Result<Option<String>, Error> {
    if result.is_undefined() {
        return Ok(Some("null".to_owned()));
    }
    ctx.json_stringify(result)?.map(|text| text.to_string()).transpose()
}

/// Adds `print` and `console`, and removes `Math.random`.
fn install_output<'js>(ctx: &Ctx<'js>, output: &Rc<Output>) -> Result<(), Error> {
    let globals = ctx.globals();
    globals.get::<_, Object<'_>>("Math")?.remove("random")?;
    let log = || {
        let output = Rc::clone(output);
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, arguments: Rest<JsValue<'js>>| {
            write_line(&ctx, &output, arguments.0)
        })
    };
    let console = Object::new(ctx.clone())?;
    for name in ["log", "info", "warn", "error", "debug"] {
        console.set(name, log()?)?;
    }
    globals.set("console", console)?;
    globals.set("print", log()?)
}

fn write_line<'js>(ctx: &Ctx<'js>, output: &Output, arguments: Vec<JsValue<'js>>) -> Result<(), Error> {
    let mut line = String::new();
    for (index, argument) in arguments.into_iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        line.push_str(&text_of_argument(ctx, argument)?);
    }
    output.append_line(&line).map_err(|_| Exception::throw_range(ctx, "the output limit is exceeded"))
}

/// The text of an argument: objects and arrays as JSON, all other values as `String()` converts them.
fn text_of_argument<'js>(ctx: &Ctx<'js>, argument: JsValue<'js>) -> Result<String, Error> {
    if !argument.is_object() || argument.is_function() || argument.is_error() {
        let name: Function<'js> = ctx.globals().get("String")?;
        return name.call((argument,));
    }
    Ok(ctx.json_stringify(argument)?.map(|text| text.to_string()).transpose()?.unwrap_or_default())
}

/// Classifies an error, and writes it to the output in the form in which an interpreter prints it on a terminal.
fn report_error<'js>(
    error: &CaughtError<'js>,
    phase: Phase,
    engine_errors: &EngineErrors<'js>,
    output: &Output,
) -> Thrown {
    let (message, line) = match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let name = exception.as_object().get::<_, Option<String>>("name").ok().flatten();
            let stack = exception.stack().unwrap_or_default();
            let line = format!("{}: {message}\n{}", name.as_deref().unwrap_or("Error"), stack.trim_end());
            (message, line)
        }
        // The engine's own text of such a value is not used, because it contains memory addresses of the process.
        CaughtError::Value(value) => {
            let text = text_of_argument(value.ctx(), value.clone()).unwrap_or_default();
            (String::new(), format!("Uncaught {text}"))
        }
        CaughtError::Error(_) => (String::new(), error.to_string()),
    };
    output.append_error(line.trim_end());
    if matches!(error, CaughtError::Value(value) if value.is_null()) {
        return Thrown::Null;
    }
    let is_engine_error = matches!(error, CaughtError::Exception(exception) if engine_errors.contains(exception));
    Thrown::Known(match message.as_str() {
        // A script may throw an error with the same message, but not an error of the engine's own type.
        "out of memory" if is_engine_error => ScriptFailure::Memory,
        "Maximum call stack size exceeded" | "stack overflow" => ScriptFailure::Memory,
        "circular reference" | "BigInt are forbidden in JSON.stringify" if phase == Phase::Serialize => {
            ScriptFailure::ResultNotJson
        }
        _ => ScriptFailure::Error,
    })
}
