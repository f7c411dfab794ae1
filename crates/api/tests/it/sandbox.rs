//! The embedded sandbox as the server starts it: permitted scripts, and escape attempts that must end in a defined
//! failure.

use fairway_domain::execution::script::{
    GatewayFailure, Language, MAX_DURATION, MAX_OUTPUT_BYTES, Script,
    ScriptFailure::{self, Error, Memory, ResultNotJson, TimedOut, TooMuchOutput},
    ScriptGateway as _, ScriptLimits, ScriptRequest, ScriptResult,
};
use fairway_sandbox::EmbeddedGateway;
use fairway_testkit::TestApp;
use serde_json::{Value, json};
use std::{sync::Arc, time::Instant};
use uuid::Uuid;

use Language::{JavaScript as JS, Starlark as SL};

fn embedded_gateway() -> EmbeddedGateway {
    EmbeddedGateway::with_program(env!("CARGO_BIN_EXE_fairway-server").into())
}

async fn run_script(language: Language, code: &str) -> ScriptResult {
    let script = Script { language, code: code.to_owned() };
    let request = ScriptRequest { execution_id: Uuid::now_v7().into(), script: &script, limits: ScriptLimits::MAXIMUM };
    embedded_gateway().prepare(language, ScriptLimits::MAXIMUM).run(request).await.unwrap()
}

#[tokio::test]
async fn scripts_return_results_and_output() {
    for (language, code, result, stdout) in [
        (SL, "print('hi')\nresult = 1 + 1", json!(2), "hi\n"),
        (SL, "result = {'a': [1, 2.5, None, True, 'é']}", json!({ "a": [1, 2.5, null, true, "é"] }), ""),
        (
            SL,
            "def f(n):\n  return 1 if n < 2 else n * f(n - 1)\nresult = [f(n) for n in range(5)]",
            json!([1, 1, 2, 6, 24]),
            "",
        ),
        (SL, "result = json.decode('[1]') + [struct(a = 1).a]", json!([1, 1]), ""),
        (SL, "print('a', 1, [2])", Value::Null, "a 1 [2]\n"),
        (SL, "", Value::Null, ""),
        (
            JS,
            "console.log('hi', { a: 1 }, [2], 3, null, undefined); 1 + 1",
            json!(2),
            "hi {\"a\":1} [2] 3 null undefined\n",
        ),
        (JS, "print('hi'); ({ a: [1, 2.5, null, true, 'é'] })", json!({ "a": [1, 2.5, null, true, "é"] }), "hi\n"),
        (JS, "const f = async () => 5; f()", json!(5), ""),
        (JS, "[...'héllo'].map((c) => c.codePointAt(0) > 255).filter(Boolean)", json!([]), ""),
        (JS, "/(\\d+)/.exec('a12')[1]", json!("12"), ""),
        (JS, "let x = 1;", Value::Null, ""),
        (JS, "", Value::Null, ""),
    ] {
        assert_eq!(
            run_script(language, code).await,
            ScriptResult { result: Ok(result), stdout: stdout.to_owned() },
            "{code}"
        );
    }
}

/// Scripts that attempt forbidden access or exceed a limit. Each must end with one of the listed failures.
#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn scripts_cannot_escape_the_sandbox() {
    let brackets = "[".repeat(100_000);
    let lists = format!("result = {}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let negations = format!("result = {}1", "not ".repeat(100_000));
    let calls = format!("{}1{}", "f(".repeat(100_000), ")".repeat(100_000));
    let any_limit: &[ScriptFailure] = &[Memory, TimedOut];
    let cases: Vec<(Language, &str, &[ScriptFailure])> = vec![
        // Access to files, sockets, programs, modules, clocks and randomness.
        (SL, "open('/etc/passwd')", &[Error]),
        (SL, "load('/etc/passwd', 'root')", &[Error]),
        (SL, "load('//x:y.bzl', 'z')", &[Error]),
        (SL, "import os", &[Error]),
        (SL, "result = time.now()", &[Error]),
        (SL, "breakpoint()", &[Error]),
        (SL, "result = getattr(print, '__globals__')", &[Error]),
        (JS, "require('fs')", &[Error]),
        (JS, "import('fs')", &[Error]),
        (JS, "import * as std from 'std'; std.open('/etc/passwd')", &[Error]),
        (JS, "std.loadFile('/etc/passwd')", &[Error]),
        (JS, "os.exec(['sh'])", &[Error]),
        (JS, "process.env", &[Error]),
        (JS, "Deno.readTextFileSync('/etc/passwd')", &[Error]),
        (JS, "fetch('http://169.254.169.254/')", &[Error]),
        (JS, "new XMLHttpRequest()", &[Error]),
        (JS, "new WebSocket('ws://127.0.0.1')", &[Error]),
        (JS, "new Worker('x')", &[Error]),
        (JS, "Date.now()", &[Error]),
        (JS, "new Date()", &[Error]),
        (JS, "performance.now()", &[Error]),
        (JS, "Math.random()", &[Error]),
        (JS, "crypto.getRandomValues(new Uint8Array(4))", &[Error]),
        (JS, "new WeakRef({})", &[Error]),
        (JS, "new FinalizationRegistry(() => {})", &[Error]),
        (JS, "setTimeout(() => {}, 1)", &[Error]),
        (JS, "(function(){}).constructor('return process')()", &[Error]),
        (JS, "[].constructor.constructor('return this.std.open')()", &[Error]),
        (JS, "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1000)", &[Error]),
        // Scripts that fail by errors of their own.
        (SL, "result = 1 / 0", &[Error]),
        (SL, "def f(", &[Error]),
        (JS, "throw new Error('no')", &[Error]),
        (JS, "throw 1", &[Error]),
        (JS, "throw undefined", &[Error]),
        (JS, "throw null", &[Error]),
        // Scripts that throw errors with the texts of the engine's own errors.
        (JS, "throw new Error('out of memory')", &[Error]),
        (JS, "throw new InternalError('out of memory')", &[Error]),
        (JS, "try { 'x'.padEnd(1e9) } catch (e) { throw new e.constructor(e.message) }", &[Error]),
        (JS, "JSON.parse(JSON.stringify(1n))", &[Error]),
        (JS, "throw new TypeError('circular reference')", &[Error]),
        (JS, "{", &[Error]),
        (JS, "Promise.reject(new Error('no'))", &[Error]),
        (JS, "new Promise(() => {})", &[Error]),
        // Scripts that change built-in objects.
        (JS, "Object.prototype.toJSON = () => { throw new Error('no') }; ({})", &[Error]),
        (
            JS,
            "Array.prototype.map = null; String.prototype.toString = null; JSON.stringify = null; throw new TypeError('x')",
            &[Error],
        ),
        (JS, "String = () => { throw 1 }; console.log(1)", &[Error]),
        (JS, "({ get a() { throw new Error('no') } })", &[Error]),
        (JS, "Object.defineProperty(Error.prototype, 'name', { get() { throw 1 } }); null.x", &[Error]),
        // Scripts that allocate excessive memory.
        (SL, "result = 'a' * (1 << 40)", &[Error]),
        (SL, "result = 'a' * 2000000000", any_limit),
        (SL, "x = ['a']\nfor i in range(100): x = x + x", any_limit),
        (SL, "x = {i: str(i) * 100 for i in range(100000000)}", any_limit),
        (SL, "result = list(range(2000000000))", any_limit),
        (SL, "x = 'ab'\nfor i in range(100): x = x.replace('a', x)", any_limit),
        (JS, "let a = []; while (true) a.push(new Array(1000).fill(1))", any_limit),
        (JS, "let s = 'a'; while (true) s += s", &[Error, Memory, TimedOut]),
        (JS, "new ArrayBuffer(1e9)", &[Error, Memory]),
        (JS, "new Array(1e9).fill(0)", any_limit),
        (JS, "'x'.padEnd(1e9)", any_limit),
        (JS, "2n ** 100000000n", &[Error, Memory, TimedOut]),
        (JS, "let m = new Map(); for (let i = 0; ; i++) m.set(i, 'x' + i)", any_limit),
        // Scripts with excessive recursion or nesting.
        (SL, "def f(): return f()\nf()", &[Memory, Error]),
        (SL, &lists, &[Memory, Error, TimedOut]),
        (SL, &negations, &[Memory, Error, TimedOut]),
        (SL, "x = []\nfor i in range(20000): x = [x]\nresult = x", &[ResultNotJson, Memory, TimedOut]),
        (SL, "x = []\nx.append(x)\nresult = x", &[ResultNotJson]),
        (JS, "function f() { return f() + 1 } f()", &[Memory]),
        (JS, &brackets, &[Memory, Error]),
        (JS, &calls, &[Memory, Error]),
        (JS, "let o = {}; for (let i = 0; i < 100000; i++) o = { o }; o", &[Memory, ResultNotJson]),
        (JS, "let o = 1; for (let i = 0; i < 64; i++) o = [o]; o", &[ResultNotJson]),
        (JS, "let o = {}; o.o = o; o", &[ResultNotJson]),
        (JS, "JSON.parse('['.repeat(1000000))", &[Memory, Error]),
        (JS, "new RegExp('('.repeat(100000))", &[Memory, Error]),
        // Scripts whose result has no JSON form or is too large.
        (SL, "result = lambda x: x", &[ResultNotJson]),
        (SL, "result = 'a' * 70000", &[TooMuchOutput]),
        (JS, "() => 1", &[ResultNotJson]),
        (JS, "Symbol('x')", &[ResultNotJson]),
        (JS, "1n", &[ResultNotJson]),
        (JS, "({ deep: [1n] })", &[ResultNotJson]),
        (JS, "'a\\u0000b'", &[ResultNotJson]),
        (JS, "'x'.repeat(70000)", &[TooMuchOutput]),
        // Scripts that print excessive output.
        (SL, "[print('x' * 1000) for i in range(1000)]", &[TooMuchOutput]),
        (JS, "while (true) console.log('x'.repeat(1000))", &[TooMuchOutput]),
        (JS, "try { while (true) print('x'.repeat(1000)) } catch (e) {} 1", &[TooMuchOutput]),
    ];
    let mut escapes = Vec::new();
    for (language, code, allowed) in cases {
        let ScriptResult { result, stdout } = run_script(language, code).await;
        let is_allowed = result.as_ref().is_err_and(|failure| allowed.contains(failure));
        if !is_allowed || stdout.len() > MAX_OUTPUT_BYTES || stdout.contains("root:") {
            escapes.push(format!("{code:.100}: {result:?}, {stdout:.200}"));
        }
    }
    assert!(escapes.is_empty(), "{escapes:#?}");
}

/// An interpreter may quote a long source line in its error message. The quotation does not count as output of the
/// script.
#[tokio::test]
async fn errors_about_long_lines_are_truncated() {
    let message = "x".repeat(70_000);
    for (language, code) in [
        (JS, format!("let {message} {message}")),
        (JS, format!("throw new Error('{message}')")),
        (JS, format!("'{message}' {message}")),
        (SL, format!("fail('{message}')")),
        (SL, format!("def {message} {message}")),
    ] {
        let ScriptResult { result, stdout } = run_script(language, &code).await;
        assert_eq!(result, Err(Error), "{code:.30}");
        assert!((20..8 << 10).contains(&stdout.len()), "{code:.30}: {} bytes", stdout.len());
    }
    // Earlier output is preserved, and the error message is truncated at the output limit.
    let code = format!("print('y'.repeat({})); throw new Error('{message}')", MAX_OUTPUT_BYTES - 5);
    let ScriptResult { result, stdout } = run_script(JS, &code).await;
    assert_eq!((result, stdout.len()), (Err(Error), MAX_OUTPUT_BYTES - 4));
}

/// If a script throws a value other than an error object, the failure shows the value as JavaScript prints it. The
/// engine's own text would contain memory addresses.
#[tokio::test]
async fn reports_thrown_values_that_are_not_errors() {
    for (code, printed) in [
        ("throw 'plain'", "Uncaught plain\n"),
        ("throw { a: 1 }", "Uncaught {\"a\":1}\n"),
        ("throw Symbol('x')", "Uncaught Symbol(x)\n"),
        ("throw 7", "Uncaught 7\n"),
    ] {
        assert_eq!(
            run_script(JS, code).await,
            ScriptResult { result: Err(Error), stdout: printed.to_owned() },
            "{code}"
        );
    }
}

#[tokio::test]
async fn scripts_end_at_the_time_limit() {
    for (language, code) in [
        (JS, "while (true) {}"),
        (JS, "/(a+)+$/.test('a'.repeat(40) + '!')"),
        (JS, "(async () => { while (true) await null })()"),
        (SL, "def f():\n  for i in range(1 << 30):\n    for j in range(1 << 30): pass\nf()"),
    ] {
        let started_at = Instant::now();
        assert_eq!(run_script(language, code).await.result, Err(TimedOut), "{code}");
        assert!(started_at.elapsed() < MAX_DURATION * 2, "{code}");
    }
}

/// The process ids of this process's children. nextest runs each test in a separate process, so all children belong
/// to this test.
fn child_pids() -> Vec<i32> {
    let own_pid = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parent = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == own_pid))
            && !status.contains("State:\tZ")
    };
    processes.filter(parent).collect()
}

async fn wait_until_gone(child: i32) {
    let wait_for_exit = async {
        while child_pids().contains(&child) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(MAX_DURATION, wait_for_exit).await.unwrap();
}

/// A prepared child waits for its script. Dropping the handle ends the child. A child that died is replaced by a new
/// one.
#[tokio::test]
async fn ends_prepared_children_that_get_no_script() {
    let is_waiting = |pid: i32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // Before a child waits, it lowers its priority and closes inherited descriptors.
        let open_count = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        let is_waiting = state.contains("poll") || status.contains("State:\tS");
        is_waiting && open_count == 3
    };
    let gateway = embedded_gateway();
    let ready = async |language| {
        let prepared = gateway.prepare(language, ScriptLimits::MAXIMUM);
        let child = child_pids()[0];
        while !is_waiting(child) {
            tokio::task::yield_now().await;
        }
        (prepared, child)
    };
    for language in [SL, JS] {
        let (prepared, child) = ready(language).await;
        drop(prepared);
        wait_until_gone(child).await;
    }
    let (prepared, child) = ready(SL).await;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child), nix::sys::signal::Signal::SIGKILL).unwrap();
    wait_until_gone(child).await;
    let script = Script { language: SL, code: "result = 1".to_owned() };
    let request = ScriptRequest { execution_id: Uuid::now_v7().into(), script: &script, limits: ScriptLimits::MAXIMUM };
    assert_eq!(prepared.run(request).await.unwrap().result, Ok(json!(1)), "a new child runs the script");
    // A child that was prepared for another language is replaced too.
    let (prepared, child) = ready(JS).await;
    assert_eq!(prepared.run(request).await.unwrap().result, Ok(json!(1)));
    wait_until_gone(child).await;
    assert_eq!(child_pids(), Vec::<i32>::new());
}

/// A child has no environment variables and no descriptors of the server. It ends when its caller drops it.
#[tokio::test]
async fn child_is_confined_and_ends_with_its_caller() {
    assert_eq!(child_pids(), Vec::<i32>::new());
    let script = Script { language: JS, code: "while (true) {}".to_owned() };
    let request = ScriptRequest { execution_id: Uuid::now_v7().into(), script: &script, limits: ScriptLimits::MAXIMUM };
    let gateway = embedded_gateway();
    let mut running = gateway.prepare(JS, ScriptLimits::MAXIMUM).run(request);
    let child = loop {
        let waited = tokio::time::timeout(std::time::Duration::from_millis(5), &mut running).await;
        assert!(waited.is_err(), "the script does not end");
        let confined = |pid: &i32| {
            std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default().contains("Seccomp:\t2")
        };
        if let Some(pid) = child_pids().into_iter().find(confined) {
            break pid;
        }
    };
    let environment = std::fs::read(format!("/proc/{child}/environ")).unwrap();
    assert_eq!(
        environment, b"_RJEM_MALLOC_CONF=background_thread:false,retain:false,narenas:1\0",
        "the child has no variable of the server"
    );
    let status = std::fs::read_to_string(format!("/proc/{child}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let descriptors = std::fs::read_dir(format!("/proc/{child}/fd")).unwrap().flatten();
    let mut open_files: Vec<String> =
        descriptors.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    open_files.sort();
    assert_eq!(open_files, ["0", "1", "2"]);
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    let group = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().to_owned();
    assert_eq!(group, child.to_string(), "the child leads its own process group");
    let limits = std::fs::read_to_string(format!("/proc/{child}/limits")).unwrap();
    let soft_limit = |limit: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix(limit)).unwrap();
        line.split_whitespace().next().unwrap().to_owned()
    };
    for (limit, value) in [
        ("Max open files", "0"),
        ("Max processes", "0"),
        ("Max file size", "0"),
        ("Max cpu time", "6"),
        ("Max stack size", "8388608"),
    ] {
        assert_eq!(soft_limit(limit), value, "{limit}");
    }
    // The limit is the program's initial memory, the engine's 64 MiB, and a reserve.
    let data: u64 = soft_limit("Max data size").parse().unwrap();
    assert!((64 << 20..160 << 20).contains(&data), "{limits}");
    let oom_score_adj = std::fs::read_to_string(format!("/proc/{child}/oom_score_adj")).unwrap();
    assert_eq!(oom_score_adj.trim(), "1000");
    assert_eq!(stat.rsplit(')').next().unwrap().split_whitespace().nth(16), Some("19"), "lowest priority");
    drop(running);
    wait_until_gone(child).await;
}

#[tokio::test]
async fn distinguishes_unreachable_and_lost_children() {
    let script = Script { language: SL, code: String::new() };
    let request = ScriptRequest { execution_id: Uuid::now_v7().into(), script: &script, limits: ScriptLimits::MAXIMUM };
    let run = async |program: &str| {
        EmbeddedGateway::with_program(program.into()).prepare(SL, ScriptLimits::MAXIMUM).run(request).await
    };
    assert_eq!(run("/nowhere").await, Err(GatewayFailure::Unreachable));
    assert_eq!(run("/bin/echo").await, Err(GatewayFailure::Lost), "the program does not respond with JSON");
}

#[tokio::test]
async fn runs_scripts_through_the_api() {
    let app = TestApp::builder().gateway(Arc::new(embedded_gateway())).start().await;
    app.active_workload("main").await;
    let ask = |language: &str, code: &str| {
        let body = json!({ "workspace_id": crate::support::workspace_fixture::WORKSPACE, "workload_slug": "main",
            "environment": "dev", "language": language, "code": code });
        app.post("/v1/runtime/code", body)
    };
    let response = ask("starlark", "print('hello')\nresult = 'world'").await.expect(200);
    assert_eq!((&response["result"], &response["stdout"]), (&json!("world"), &json!("hello\n")));
    let response = ask("javascript", "throw new TypeError('no such thing')").await.expect(200);
    assert_eq!((&response["status"], &response["error"]["code"]), (&json!("failed"), &json!("script_error")));
    assert!(response["stdout"].as_str().unwrap().starts_with("TypeError: no such thing"), "{response}");
}
