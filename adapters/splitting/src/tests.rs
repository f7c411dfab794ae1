use super::*;

fn split(strategy: ChunkStrategy, chunk_tokens: u32, text: &str) -> Vec<(u32, &str)> {
    let pieces = Splitting.split(text, Chunking { strategy, chunk_tokens });
    // Whatever the strategy: in order, without overlap, and nothing but what is blank is left out.
    let mut behind = 0;
    for piece in &pieces {
        assert!(piece.start >= behind && piece.start < piece.end, "{piece:?} of {pieces:?}");
        assert!(text[behind..piece.start].trim().is_empty(), "{:?} is lost", &text[behind..piece.start]);
        assert!(piece.tokens > 0 && piece.tokens <= chunk_tokens, "{piece:?}");
        behind = piece.end;
    }
    assert!(text[behind..].trim().is_empty());
    pieces.iter().map(|piece| (piece.tokens, &text[piece.start..piece.end])).collect()
}

#[test]
fn a_token_is_one_of_a_known_vocabulary() {
    assert!(VOCABULARY.is_some());
    assert_eq!(tokens("hello world"), 2);
    assert_eq!(tokens(""), 0);
}

#[test]
fn fixed_pieces_are_as_long_as_they_may_be() {
    let text = " one two three four five six seven ";
    assert_eq!(split(ChunkStrategy::Fixed, 3, text), [(3, "one two three"), (3, "four five six"), (1, "seven")]);
    assert_eq!(split(ChunkStrategy::Fixed, 100, text), [(7, "one two three four five six seven")]);
}

#[test]
fn sentences_stay_whole() {
    let text = "The cat sat on the mat. The dog lay under the table. Both slept.";
    let pieces = split(ChunkStrategy::Sentence, 8, text);
    let said: Vec<&str> = pieces.iter().map(|(_, said)| *said).collect();
    assert_eq!(said, ["The cat sat on the mat.", "The dog lay under the table.", "Both slept."]);
}

#[test]
fn headings_begin_pieces() {
    let text = "# Leave\n\nThirty days a year.\n\n# Travel\n\nBook early, by train.\n";
    let pieces = split(ChunkStrategy::Heading, 12, text);
    let said: Vec<&str> = pieces.iter().map(|(_, said)| *said).collect();
    assert_eq!(said, ["# Leave\n\nThirty days a year.", "# Travel\n\nBook early, by train."]);
}

#[test]
fn what_has_no_words_is_cut_all_the_same() {
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
