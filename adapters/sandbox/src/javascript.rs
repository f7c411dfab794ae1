//! JavaScript by QuickJS, without its clocks and its chance. The result is the last expression, and where that is a promise,
//! what it comes to.

use crate::said::Said;
use fairway_domain::execution::code::{CodeResult, MEMORY, ScriptFailure};
use rquickjs::{
    CatchResultExt as _, CaughtError, Context, Ctx, Error, Exception, Function, Object, Runtime, Value as JsValue,
    context::{EvalOptions, intrinsic},
    function::Rest,
    promise::MaybePromise,
};
use serde_json::Value;
use std::rc::Rc;

/// Stack of the engine, in bytes.
const STACK: usize = 1 << 20;

/// The language without `Date`, `performance` and what tells when memory is freed.
type Plain = (
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// Runs a script.
pub(crate) fn run(code: &str) -> CodeResult {
    let said = Rc::new(Said::default());
    let result = evaluated(code, &said);
    let result = if said.is_too_much() { Err(ScriptFailure::TooMuchOutput) } else { result };
    CodeResult { result, stdout: said.take() }
}

fn evaluated(code: &str, said: &Rc<Said>) -> Result<Value, ScriptFailure> {
    let engine = Runtime::new().map_err(|_| ScriptFailure::Memory)?;
    engine.set_memory_limit(MEMORY);
    engine.set_max_stack_size(STACK);
    let context = Context::custom::<Plain>(&engine).map_err(|_| ScriptFailure::Memory)?;
    let came = context.with(|ctx| {
        furnish(&ctx, said).map_err(|_| Thrown::Known(ScriptFailure::Memory))?;
        let text = text_of_result(&ctx, code).catch(&ctx).map_err(|error| told(&error, said))?;
        match text {
            Some(text) => serde_json::from_str(&text).map_err(|_| Thrown::Known(ScriptFailure::NoJson)),
            None => Err(Thrown::Known(ScriptFailure::NoJson)),
        }
    });
    came.map_err(|thrown| match thrown {
        Thrown::Known(failure) => failure,
        Thrown::Null if usize::try_from(engine.memory_usage().malloc_size).is_ok_and(|taken| taken > MOSTLY) => {
            ScriptFailure::Memory
        }
        Thrown::Null => ScriptFailure::Error,
    })
}

/// What a script ended with.
enum Thrown {
    /// Something that says what it is.
    Known(ScriptFailure),
    /// Null: the script's own, or the engine's, where it has no memory left for an error.
    Null,
}

/// Memory beyond which an engine that throws null is out of it, in bytes.
const MOSTLY: usize = MEMORY / 4 * 3;

/// The result as JSON; `None` where it is nothing that JSON knows.
fn text_of_result(ctx: &Ctx<'_>, code: &str) -> Result<Option<String>, Error> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some("script".to_owned());
    let result: MaybePromise<'_> = ctx.eval_with_options(code, options)?;
    let result: JsValue<'_> = result.finish()?;
    if result.is_undefined() {
        return Ok(Some("null".to_owned()));
    }
    ctx.json_stringify(result)?.map(|text| text.to_string()).transpose()
}

/// Puts in what scripts speak with, and takes out chance.
fn furnish<'js>(ctx: &Ctx<'js>, said: &Rc<Said>) -> Result<(), Error> {
    let globals = ctx.globals();
    globals.get::<_, Object<'_>>("Math")?.remove("random")?;
    let log = || {
        let said = Rc::clone(said);
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, words: Rest<JsValue<'js>>| speak(&ctx, &said, words.0))
    };
    let console = Object::new(ctx.clone())?;
    for name in ["log", "info", "warn", "error", "debug"] {
        console.set(name, log()?)?;
    }
    globals.set("console", console)?;
    globals.set("print", log()?)
}

fn speak<'js>(ctx: &Ctx<'js>, said: &Said, words: Vec<JsValue<'js>>) -> Result<(), Error> {
    let mut line = String::new();
    for (index, word) in words.into_iter().enumerate() {
        if index > 0 {
            line.push(' ');
        }
        line.push_str(&spelled(ctx, word)?);
    }
    said.line(&line).map_err(|_| Exception::throw_range(ctx, "more was said than may be"))
}

/// Texts as they are, errors as they say, what JSON knows as JSON, and everything else as the language spells it.
fn spelled<'js>(ctx: &Ctx<'js>, word: JsValue<'js>) -> Result<String, Error> {
    if !word.is_object() || word.is_function() || word.is_error() {
        let name: Function<'js> = ctx.globals().get("String")?;
        return name.call((word,));
    }
    Ok(ctx.json_stringify(word)?.map(|text| text.to_string()).transpose()?.unwrap_or_default())
}

/// What went wrong, said as an interpreter says it on a terminal.
fn told(error: &CaughtError<'_>, said: &Said) -> Thrown {
    let (message, line) = match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let name = exception.as_object().get::<_, Option<String>>("name").ok().flatten();
            let stack = exception.stack().unwrap_or_default();
            let line = format!("{}: {message}\n{}", name.as_deref().unwrap_or("Error"), stack.trim_end());
            (message, line)
        }
        CaughtError::Value(_) | CaughtError::Error(_) => (String::new(), error.to_string()),
    };
    let _cut = said.line(line.trim_end());
    if matches!(error, CaughtError::Value(value) if value.is_null()) {
        return Thrown::Null;
    }
    Thrown::Known(match message.as_str() {
        "out of memory" | "Maximum call stack size exceeded" | "stack overflow" => ScriptFailure::Memory,
        _ => ScriptFailure::Error,
    })
}
