use super::*;

fn split(strategy: ChunkStrategy, chunk_tokens: u32, text: &str) -> Vec<(u32, &str)> {
    let chunks = TextSplitter.split(text, ChunkingSettings { strategy, chunk_tokens });
    // With every strategy, chunks are in order and disjoint, and together omit only whitespace.
    let mut last_end = 0;
    for chunk in &chunks {
        assert!(chunk.start >= last_end && chunk.start < chunk.end, "{chunk:?} of {chunks:?}");
        assert!(text[last_end..chunk.start].trim().is_empty(), "{:?} is lost", &text[last_end..chunk.start]);
        assert!(chunk.tokens > 0 && chunk.tokens <= chunk_tokens, "{chunk:?}");
        last_end = chunk.end;
    }
    assert!(text[last_end..].trim().is_empty(), "{:?} is lost", &text[last_end..]);
    chunks.iter().map(|chunk| (chunk.tokens, &text[chunk.start..chunk.end])).collect()
}

#[test]
fn counts_tokens_of_the_embedded_vocabulary() {
    assert!(TOKENIZER.is_some());
    assert_eq!(count_tokens("hello world"), 2);
    assert_eq!(count_tokens(""), 0);
}

#[test]
fn fixed_chunks_have_the_maximum_length() {
    let text = " one two three four five six seven ";
    assert_eq!(split(ChunkStrategy::Fixed, 3, text), [(3, "one two three"), (3, "four five six"), (1, "seven")]);
    assert_eq!(split(ChunkStrategy::Fixed, 100, text), [(7, "one two three four five six seven")]);
}

#[test]
fn keeps_sentences_whole() {
    let text = "The cat sat on the mat. The dog lay under the table. Both slept.";
    let chunks = split(ChunkStrategy::Sentence, 8, text);
    let texts: Vec<&str> = chunks.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, ["The cat sat on the mat.", "The dog lay under the table.", "Both slept."]);
}

#[test]
fn chunks_begin_at_headings() {
    let text = "# Leave\n\nThirty days a year.\n\n# Travel\n\nBook early, by train.\n";
    let chunks = split(ChunkStrategy::Heading, 12, text);
    let texts: Vec<&str> = chunks.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, ["# Leave\n\nThirty days a year.", "# Travel\n\nBook early, by train."]);
}

#[test]
fn detects_headings_by_markdown_rules() {
    let text = "Before.\n\n```sh\n# no heading\n```\n\nTitle\n=====\n\nText. # Not one either.\n\n## Next\n";
    let texts: Vec<&str> = split(ChunkStrategy::Heading, 64, text).iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, ["Before.\n\n```sh\n# no heading\n```", "Title\n=====\n\nText. # Not one either.", "## Next"]);
    let long = format!("# Long\n\n{}", "Seven words are in each of these. ".repeat(4));
    let texts = split(ChunkStrategy::Heading, 16, &long);
    assert!(texts.len() > 2 && texts[0].1.starts_with("# Long"), "{texts:?}");
}

#[test]
fn cuts_texts_without_word_boundaries() {
    let long = "x".repeat(1_000);
    let emoji = "🦀👩‍👩‍👧‍👦é日本語のテキスト".repeat(20);
    let whitespace = " \n\t ";
    for strategy in ChunkStrategy::ALL {
        for text in [&*long, &*emoji] {
            assert!(split(strategy, 16, text).len() > 3, "{strategy:?}");
        }
        assert_eq!(split(strategy, 16, whitespace), []);
        assert_eq!(split(strategy, 16, ""), []);
    }
}

/// The time must be linear in the text length for any content, so that a few documents cannot occupy a processor.
#[test]
fn time_is_linear_in_text_length() {
    let duration_of = |text: &str, chunk_tokens: u32| {
        let start = std::time::Instant::now();
        for strategy in ChunkStrategy::ALL {
            assert!(!TextSplitter.split(text, ChunkingSettings { strategy, chunk_tokens }).is_empty());
        }
        start.elapsed()
    };
    let times = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    for unit in ["one two three four. ", "x", "aB1!é日", "# a\n", "a.b?", "- a\n", "> ", "```\n", "\u{301}", "*_["] {
        for chunk_tokens in [16, 512] {
            let (short, long) = (times(unit, 4_000) + " x", times(unit, 32_000) + " x");
            let (short, long) = (duration_of(&short, chunk_tokens), duration_of(&long, chunk_tokens));
            // The long text has eight times the length, so quadratic time would be 64 times as long.
            let max_duration = short * 30 + std::time::Duration::from_millis(800);
            assert!(long < max_duration, "{unit:?} {chunk_tokens}: {short:?}, then {long:?}");
        }
    }
}
