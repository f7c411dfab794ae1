//! Cuts texts into pieces: by length, at the ends of sentences, or at headings.
//!
//! Tokens are those of `cl100k_base`, whose vocabulary is a part of the program: nothing is downloaded. Other models count
//! a little differently, and a length need not be exact to be useful.

use fairway_domain::knowledge::{
    ChunkStrategy, Chunking,
    ports::{Piece, Splitter},
};
use std::sync::LazyLock;
use text_splitter::{ChunkConfig, ChunkSizer, MarkdownSplitter, TextSplitter};
use tiktoken_rs::{CoreBPE, cl100k_base};

/// Read when the first text is cut: most processes never cut one.
static VOCABULARY: LazyLock<Option<CoreBPE>> = LazyLock::new(|| cl100k_base().ok());

/// Bytes of a token where there is no vocabulary, about what English has.
const BYTES_PER_TOKEN: usize = 4;

/// How many tokens a text has.
fn tokens(text: &str) -> usize {
    match &*VOCABULARY {
        Some(vocabulary) => vocabulary.count_ordinary(text),
        None => text.len().div_ceil(BYTES_PER_TOKEN),
    }
}

/// Counts tokens for those who cut.
#[derive(Clone, Copy, Debug)]
struct Tokens;

impl ChunkSizer for Tokens {
    fn size(&self, chunk: &str) -> usize {
        tokens(chunk)
    }
}

/// Cuts texts into pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Splitting;

impl Splitter for Splitting {
    fn split(&self, text: &str, how: Chunking) -> Vec<Piece> {
        let most = usize::try_from(how.chunk_tokens).unwrap_or(usize::MAX).max(1);
        let spans: Vec<(usize, &str)> = match how.strategy {
            ChunkStrategy::Fixed => fixed(text, most),
            ChunkStrategy::Sentence => TextSplitter::new(config(most)).chunk_indices(text).collect(),
            ChunkStrategy::Heading => MarkdownSplitter::new(config(most)).chunk_indices(text).collect(),
        };
        let piece = |(start, said): (usize, &str)| Piece {
            start,
            end: start.saturating_add(said.len()),
            tokens: u32::try_from(tokens(said)).unwrap_or(u32::MAX),
        };
        spans.into_iter().filter(|(_, said)| !said.trim().is_empty()).map(piece).collect()
    }
}

fn config(most: usize) -> ChunkConfig<Tokens> {
    ChunkConfig::new(most).with_sizer(Tokens)
}

/// As many words as fit, one piece after the other; a word that is longer than a piece is cut.
fn fixed(text: &str, most: usize) -> Vec<(usize, &str)> {
    let mut pieces: Vec<(usize, &str)> = Vec::new();
    let (mut start, mut end, mut size) = (0, 0, 0_usize);
    for (from, to) in words(text) {
        let Some(word) = text.get(from..to) else { continue };
        let more = tokens(word);
        if size > 0 && size.saturating_add(more) > most {
            pieces.extend(text.get(start..end).map(|said| (start, said)));
            size = 0;
        }
        if more > most {
            let parts = TextSplitter::new(config(most));
            let parts = parts.chunk_indices(word).map(|(at, part)| (from.saturating_add(at), part));
            pieces.extend(parts.collect::<Vec<_>>());
            continue;
        }
        if size == 0 {
            start = from.saturating_add(word.len().saturating_sub(word.trim_start().len()));
        }
        end = to;
        size = size.saturating_add(more);
    }
    if size > 0 {
        pieces.extend(text.get(start..end).map(|said| (start, said)));
    }
    pieces
}

/// Where words begin and end, each with what is blank before it: that is how tokens lie.
fn words(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let ends = text.char_indices().filter(|(_, character)| !character.is_whitespace()).filter_map(|(at, character)| {
        let end = at.saturating_add(character.len_utf8());
        let next = text.get(end..)?.chars().next();
        next.is_none_or(char::is_whitespace).then_some(end)
    });
    ends.scan(0, |from, end| Some((std::mem::replace(from, end), end)))
}

#[cfg(test)]
mod tests;
