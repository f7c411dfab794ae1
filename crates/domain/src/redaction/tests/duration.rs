//! Tests of the time that redaction takes.

use super::*;
use std::time::Duration;

fn assert_duration(unit: &str, bytes: usize, bound: Duration) {
    let text = unit.repeat(bytes / unit.len());
    #[expect(clippy::disallowed_methods, reason = "this test is about time")]
    let started_at = std::time::Instant::now();
    let redaction = Redactor::default().redact_text(&text);
    let elapsed = started_at.elapsed();
    assert!(elapsed < bound, "{unit:?} took {elapsed:?}");
    drop(redaction);
}

/// A quadratic search would exceed two minutes per MiB many times. A linear one stays below even in an unoptimized
/// build on a machine with sixfold load.
#[test]
fn redaction_time_is_linear() {
    for unit in ["4 ", "GB82 ", "a.", "4", "4111\t\n.- \u{2800}\u{200b}", "卡4111 "] {
        assert_duration(unit, 1 << 20, Duration::from_secs(120));
    }
}

/// Measures the other patterns, with shorter texts.
#[test]
fn redaction_lookahead_is_bounded() {
    let hostile = [
        "4",
        "4111 ",
        "4111 1111 1111 111",
        "0",
        "01 ",
        "01-",
        "+1",
        "+1 ",
        "(1) ",
        "(",
        "1.1.1.1.",
        "a:",
        ":",
        "::",
        "f:",
        "GB82 WEST ",
        "DE44",
        "@",
        "a@",
        "a@b.co.",
        "a@b.c-",
        "a.a@",
        "12345678",
        "12345678 ",
        "AB 12 ",
        "\u{a0}1",
        "\u{1f600}",
        "[email]",
        "a@b.com ",
        "\u{200b}",
        "4\u{1}",
        "4\u{ad}",
        "４",
        "4111.1111.",
        "4111 - \n\t..1111",
        "4111        ",
        "\u{2800}",
        " \t\n.-",
        "卡4111-",
        "ａ＠",
    ];
    for unit in hostile {
        assert_duration(unit, 1 << 15, Duration::from_secs(10));
    }
}
