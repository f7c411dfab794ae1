use super::*;

fn split(strategy: ChunkStrategy, chunk_tokens: u32, text: &str) -> Vec<(u32, &str)> {
    let pieces = TextSplitter.split(text, Chunking { strategy, chunk_tokens });
    // With every strategy, chunks are in order and disjoint, and together omit only whitespace.
    let mut end_of_last = 0;
    for piece in &pieces {
        assert!(piece.start >= end_of_last && piece.start < piece.end, "{piece:?} of {pieces:?}");
        assert!(text[end_of_last..piece.start].trim().is_empty(), "{:?} is lost", &text[end_of_last..piece.start]);
        assert!(piece.tokens > 0 && piece.tokens <= chunk_tokens, "{piece:?}");
        end_of_last = piece.end;
    }
    assert!(text[end_of_last..].trim().is_empty(), "{:?} is lost", &text[end_of_last..]);
    pieces.iter().map(|piece| (piece.tokens, &text[piece.start..piece.end])).collect()
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
    let pieces = split(ChunkStrategy::Sentence, 8, text);
    let texts: Vec<&str> = pieces.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, ["The cat sat on the mat.", "The dog lay under the table.", "Both slept."]);
}

#[test]
fn chunks_begin_at_headings() {
    let text = "# Leave\n\nThirty days a year.\n\n# Travel\n\nBook early, by train.\n";
    let pieces = split(ChunkStrategy::Heading, 12, text);
    let texts: Vec<&str> = pieces.iter().map(|(_, text)| *text).collect();
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
    let nothing = " \n\t ";
    for strategy in ChunkStrategy::ALL {
        for text in [&*long, &*emoji] {
            assert!(split(strategy, 16, text).len() > 3, "{strategy:?}");
        }
        assert_eq!(split(strategy, 16, nothing), []);
        assert_eq!(split(strategy, 16, ""), []);
    }
}

/// The time must be linear in the text length for any content, so that a few documents cannot occupy a processor.
#[test]
fn time_is_linear_in_text_length() {
    let took = |text: &str, chunk_tokens: u32| {
        let at = std::time::Instant::now();
        for strategy in ChunkStrategy::ALL {
            assert!(!TextSplitter.split(text, Chunking { strategy, chunk_tokens }).is_empty());
        }
        at.elapsed()
    };
    let times = |unit: &str, bytes: usize| unit.repeat(bytes / unit.len());
    for unit in ["one two three four. ", "x", "aB1!é日", "# a\n", "a.b?", "- a\n", "> ", "```\n", "\u{301}", "*_["] {
        for chunk_tokens in [16, 512] {
            let (short, long) = (times(unit, 4_000) + " x", times(unit, 32_000) + " x");
            let (short, long) = (took(&short, chunk_tokens), took(&long, chunk_tokens));
            // The long text has eight times the length, so quadratic time would be 64 times as long.
            let most = short * 30 + std::time::Duration::from_millis(800);
            assert!(long < most, "{unit:?} {chunk_tokens}: {short:?}, then {long:?}");
        }
    }
}
