//! Chunking of texts: by length, at sentence boundaries, or at headings.
//!
//! The splitter first splits a text into its smallest parts and counts the tokens of each part once. It then merges
//! consecutive parts until a chunk is full. The time is linear in the text length.
//!
//! Tokens are those of `cl100k_base`, whose vocabulary is embedded in the program. The token counts of other models
//! differ slightly, which is accurate enough for a chunk length.

use fairway_domain::knowledge::{
    ChunkStrategy, ChunkingSettings,
    ports::{ChunkSpan, Chunker},
};
use pulldown_cmark::{Event, Parser, Tag};
use std::{ops::Range, sync::LazyLock};
use tiktoken_rs::{CoreBPE, cl100k_base};
use unicode_segmentation::UnicodeSegmentation as _;

/// Loaded when the first text is split, because most processes never split a text.
static TOKENIZER: LazyLock<Option<CoreBPE>> = LazyLock::new(|| cl100k_base().ok());

/// Approximate bytes per token of English text.
const BYTES_PER_TOKEN: usize = 4;

fn count_tokens(text: &str) -> usize {
    match &*TOKENIZER {
        Some(vocabulary) => vocabulary.count_ordinary(text),
        None => text.len().div_ceil(BYTES_PER_TOKEN),
    }
}

/// Splits texts into chunks.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextSplitter;

impl Chunker for TextSplitter {
    fn split(&self, text: &str, chunking: ChunkingSettings) -> Vec<ChunkSpan> {
        let mut builder = ChunkBuilder::of(text, chunking.chunk_tokens);
        match chunking.strategy {
            ChunkStrategy::Fixed => builder.add_words(0..text.len()),
            ChunkStrategy::Sentence => builder.add_sentences(0..text.len()),
            ChunkStrategy::Heading => {
                for section in sections(text) {
                    builder.add_sentences(section);
                    builder.close();
                }
            }
        }
        builder.finish()
    }
}

/// Splits a text into sections, each of which begins at a Markdown heading.
fn sections(text: &str) -> Vec<Range<usize>> {
    let is_heading = |event: &Event<'_>| matches!(event, Event::Start(Tag::Heading { .. }));
    let headings = Parser::new(text).into_offset_iter().filter(|(event, _)| is_heading(event));
    let heading_starts = headings.map(|(_, range)| range.start);
    let mut sections = Vec::new();
    let mut section_start = 0;
    for heading_start in heading_starts.chain([text.len()]).filter(|heading_start| *heading_start > 0) {
        sections.push(section_start..heading_start);
        section_start = heading_start;
    }
    sections
}

/// Merges consecutive parts of a text into chunks.
struct ChunkBuilder<'t> {
    text: &'t str,
    max_tokens: usize,
    chunks: Vec<ChunkSpan>,
    /// The chunk in progress and the total tokens of its parts.
    current: Range<usize>,
    current_tokens: usize,
}

impl<'t> ChunkBuilder<'t> {
    fn of(text: &'t str, limit: u32) -> Self {
        let max_tokens = usize::try_from(limit).unwrap_or(usize::MAX).max(1);
        Self { text, max_tokens, chunks: Vec::new(), current: 0..0, current_tokens: 0 }
    }

    fn text_of(&self, range: &Range<usize>) -> &'t str {
        self.text.get(range.clone()).unwrap_or_default()
    }

    /// Adds sentences, with the boundaries of Unicode (UAX 29). A sentence longer than a chunk is split into words.
    fn add_sentences(&mut self, range: Range<usize>) {
        for (offset, sentence) in self.text_of(&range).split_sentence_bound_indices() {
            let start = range.start.saturating_add(offset);
            let sentence = start..start.saturating_add(sentence.len());
            let size = count_tokens(self.text_of(&sentence));
            if size > self.max_tokens {
                self.close();
                self.add_words(sentence);
                self.close();
            } else {
                self.add(sentence, size);
            }
        }
    }

    /// Adds words with their preceding whitespace, because tokens include it. A word longer than a chunk is split.
    fn add_words(&mut self, range: Range<usize>) {
        let (mut start, mut in_word) = (range.start, false);
        for (offset, character) in self.text_of(&range).char_indices() {
            let offset = range.start.saturating_add(offset);
            if character.is_whitespace() && in_word {
                self.add_word(start..offset);
                start = offset;
            }
            in_word = !character.is_whitespace();
        }
        self.add_word(start..range.end);
    }

    fn add_word(&mut self, range: Range<usize>) {
        let size = count_tokens(self.text_of(&range));
        if size <= self.max_tokens {
            self.add(range, size);
            return;
        }
        self.close();
        let mut start = range.start;
        while start < range.end {
            let mut length = self.max_tokens.saturating_mul(BYTES_PER_TOKEN);
            let part = loop {
                let remaining = self.text_of(&(start..range.end));
                let end = remaining.ceil_char_boundary(length.max(1).min(remaining.len()));
                let part = start..start.saturating_add(end);
                if length <= 1 || count_tokens(self.text_of(&part)) <= self.max_tokens {
                    break part;
                }
                length /= 2;
            };
            start = part.end;
            let size = count_tokens(self.text_of(&part));
            self.add(part, size);
            self.close();
        }
    }

    /// Adds a part of `size` tokens to the chunk. The sum of the parts' tokens is an upper bound of the tokens of
    /// the merged text, because each part begins at a token boundary.
    fn add(&mut self, range: Range<usize>, size: usize) {
        if self.current_tokens > 0 && self.current_tokens.saturating_add(size) > self.max_tokens {
            self.close();
        }
        if self.current_tokens == 0 {
            self.current = range.start..range.start;
        }
        self.current.end = range.end;
        self.current_tokens = self.current_tokens.saturating_add(size);
    }

    /// Closes the current chunk and trims its surrounding whitespace.
    fn close(&mut self) {
        self.current_tokens = 0;
        let text = self.text_of(&self.current);
        let start = self.current.start.saturating_add(text.len().saturating_sub(text.trim_start().len()));
        let trimmed = text.trim();
        self.current = 0..0;
        if !trimmed.is_empty() {
            let tokens = u32::try_from(count_tokens(trimmed)).unwrap_or(u32::MAX);
            self.chunks.push(ChunkSpan { start, end: start.saturating_add(trimmed.len()), tokens });
        }
    }

    fn finish(mut self) -> Vec<ChunkSpan> {
        self.close();
        self.chunks
    }
}

#[cfg(test)]
mod tests;
