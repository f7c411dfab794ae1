//! The tokens of a prompt template, which are scanned in one pass from left to right.
//!
//! After `@asset-ref:`, `!command:` and `$arg:`, a complete token must follow. The scanner also refuses text that
//! readers could mistake for a token: with other case, confusable letters, or invisible characters. Otherwise such text
//! would reach the model as literal text.

use super::{IncludedAsset, PromptRefusal};
use crate::slug::Slug;
use std::iter;
use unicode_normalization::char::is_combining_mark;
use unicode_security::skeleton;

/// The maximum number of tokens in one template.
pub const MAX_TEMPLATE_TOKENS: usize = 10_000;
/// The maximum length of a variable name, in characters.
pub const MAX_VARIABLE_NAME_CHARS: usize = 63;
/// The maximum length of a version label, in characters.
const MAX_LABEL_CHARS: usize = 64;

/// A segment of a template: literal text or a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TemplateSegment {
    /// Text that is rendered unchanged.
    Literal(String),
    /// A reference to an asset, written `@asset-ref:slug` or `@asset-ref:slug@label`.
    Asset {
        /// The referenced asset.
        reference: IncludedAsset,
        /// The start of the token, in bytes.
        offset: usize,
    },
    /// A command, written `!command:slug`.
    Command {
        /// The slug of the command.
        slug: Slug,
        /// The start of the token, in bytes.
        offset: usize,
    },
    /// An argument, written `$arg:name`.
    Argument {
        /// The name of the variable.
        name: String,
        /// The start of the token, in bytes.
        offset: usize,
    },
    /// An argument in the legacy form, written `{{name}}`.
    Placeholder {
        /// The name of the variable.
        name: String,
        /// The start of the token, in bytes.
        offset: usize,
    },
}

/// The result of scanning at a character with which a token may start.
enum TokenScan {
    /// No token starts here, so the character is literal text.
    Literal,
    /// A token, with the byte offset of its end.
    Token(TemplateSegment, usize),
}

/// Splits the text of a template into segments.
///
/// # Errors
/// Returns a refusal when a token is malformed, or the template has too many tokens.
pub fn scan(text: &str) -> Result<Vec<TemplateSegment>, PromptRefusal> {
    let mut segments = Vec::new();
    let mut tokens = 0_usize;
    let mut literal = String::new();
    let mut offset = 0;
    while let Some(rest) = text.get(offset..) {
        let Some(gap) = rest.find(['@', '!', '$', '{']) else {
            literal.push_str(rest);
            break;
        };
        literal.push_str(rest.get(..gap).unwrap_or_default());
        offset += gap;
        match scan_token(text, offset)? {
            TokenScan::Literal => {
                literal.push_str(text.get(offset..=offset).unwrap_or_default());
                offset += 1;
            }
            TokenScan::Token(segment, end) => {
                tokens += 1;
                if tokens > MAX_TEMPLATE_TOKENS {
                    return Err(PromptRefusal::TooLarge { offset });
                }
                if !literal.is_empty() {
                    segments.push(TemplateSegment::Literal(std::mem::take(&mut literal)));
                }
                segments.push(segment);
                offset = end;
            }
        }
    }
    if !literal.is_empty() {
        segments.push(TemplateSegment::Literal(literal));
    }
    Ok(segments)
}

/// Whether a text contains the start of an asset reference, even a disguised or malformed one.
#[must_use]
pub fn contains_asset_reference(text: &str) -> bool {
    text.match_indices('@').any(|(offset, _)| match scan_keyword(text, offset + 1, "asset-ref:") {
        Keyword::Exact(_) | Keyword::Confusable => true,
        Keyword::Absent => false,
    })
}

fn scan_token(text: &str, offset: usize) -> Result<TokenScan, PromptRefusal> {
    let malformed = || PromptRefusal::MalformedToken { offset };
    let (keyword, sigil) = match text.as_bytes().get(offset) {
        Some(b'@') => ("asset-ref:", '@'),
        Some(b'!') => ("command:", '!'),
        Some(b'$') => ("arg:", '$'),
        _ => return scan_placeholder(text, offset),
    };
    let start = match scan_keyword(text, offset + 1, keyword) {
        Keyword::Absent => return Ok(TokenScan::Literal),
        Keyword::Confusable => return Err(malformed()),
        Keyword::Exact(end) => end,
    };
    let scanned = match sigil {
        '@' => scan_asset(text, offset, start),
        '!' => scan_slug(text, start).map(|(slug, end)| (TemplateSegment::Command { slug, offset }, end)),
        _ => scan_name(text, start).map(|(name, end)| (TemplateSegment::Argument { name, offset }, end)),
    };
    let (segment, end) = scanned.ok_or_else(malformed)?;
    if is_token_end(text, end) { Ok(TokenScan::Token(segment, end)) } else { Err(malformed()) }
}

fn scan_asset(text: &str, offset: usize, start: usize) -> Option<(TemplateSegment, usize)> {
    let (slug, end) = scan_slug(text, start)?;
    if text.as_bytes().get(end) != Some(&b'@') {
        return Some((TemplateSegment::Asset { reference: IncludedAsset { slug, label: None }, offset }, end));
    }
    let run = matching_prefix(text, end + 1, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    // Full stops after a label end the sentence, so a label in a template cannot end with a full stop.
    let label = run.trim_end_matches('.');
    if label.is_empty() || label.len() > MAX_LABEL_CHARS {
        return None;
    }
    let reference = IncludedAsset { slug, label: Some(label.to_owned()) };
    let end = end + 1 + label.len();
    // A second `@` would start another version label, which is malformed.
    (text.as_bytes().get(end) != Some(&b'@')).then_some((TemplateSegment::Asset { reference, offset }, end))
}

fn scan_slug(text: &str, start: usize) -> Option<(Slug, usize)> {
    let run = matching_prefix(text, start, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let slug_text = run.trim_end_matches('-');
    Some((Slug::parse(slug_text).ok()?, start + slug_text.len()))
}

fn scan_name(text: &str, start: usize) -> Option<(String, usize)> {
    let name = matching_prefix(text, start, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_valid_start = name.as_bytes().first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    (is_valid_start && name.len() <= MAX_VARIABLE_NAME_CHARS).then(|| (name.to_owned(), start + name.len()))
}

/// Scans `{{name}}`, with optional spaces inside the braces. Double braces around any other text remain literal, for
/// compatibility with older templates. Nested placeholders, and names with invisible characters, are refused.
fn scan_placeholder(text: &str, offset: usize) -> Result<TokenScan, PromptRefusal> {
    let malformed = PromptRefusal::MalformedToken { offset };
    let Some(body) = text.get(offset..).and_then(|rest| rest.strip_prefix("{{")) else { return Ok(TokenScan::Literal) };
    let inner = body.trim_start_matches(' ');
    let start = text.len() - inner.len();
    if inner.starts_with("{{") && inner.len() < body.len() {
        return Err(malformed);
    }
    let Some((name, end)) = scan_name(text, start) else {
        return if is_disguised_placeholder(inner) { Err(malformed) } else { Ok(TokenScan::Literal) };
    };
    let tail = text.get(end..).unwrap_or_default();
    if let Some(after) = tail.trim_start_matches(' ').strip_prefix("}}") {
        return Ok(TokenScan::Token(TemplateSegment::Placeholder { name, offset }, text.len() - after.len()));
    }
    if is_disguised_placeholder(inner) { Err(malformed) } else { Ok(TokenScan::Literal) }
}

/// Whether the text is `name}}` with invisible characters in it, so that readers would mistake it for a placeholder.
fn is_disguised_placeholder(inner: &str) -> bool {
    let mut has_hidden = false;
    let mut length = 0_usize;
    for character in inner.chars() {
        match character {
            '}' => return has_hidden && length > 0,
            ' ' => {}
            _ if is_invisible(character) => has_hidden = true,
            _ if character.is_ascii_alphanumeric() || character == '_' => length += 1,
            _ => return false,
        }
        if length > MAX_VARIABLE_NAME_CHARS {
            return false;
        }
    }
    false
}

/// The result of scanning for a keyword after the first character of a token.
enum Keyword {
    /// The text starts with the keyword. The keyword ends at this offset.
    Exact(usize),
    /// The text looks like the keyword, but has other case, confusable letters, or invisible characters in between.
    Confusable,
    /// The text does not look like the keyword.
    Absent,
}

fn scan_keyword(text: &str, start: usize, keyword: &str) -> Keyword {
    let rest = text.get(start..).unwrap_or_default();
    if rest.starts_with(keyword) {
        return Keyword::Exact(start + keyword.len());
    }
    if is_confusable(rest, keyword) { Keyword::Confusable } else { Keyword::Absent }
}

/// Whether the start of a text looks like this ASCII word. The upper-case form is compared too, because some letters
/// are confusable in one case only. The comparison stops at the first difference, because it may be repeated at every
/// byte.
fn is_confusable(text: &str, keyword: &str) -> bool {
    let visible = || text.chars().filter(|character| !is_invisible(*character));
    starts_confusably(visible(), keyword) || starts_confusably(visible().flat_map(char::to_uppercase), keyword)
}

fn starts_confusably(letters: impl Iterator<Item = char>, keyword: &str) -> bool {
    let mut folded = letters.flat_map(skeleton_of).flat_map(fold_letter);
    keyword.chars().flat_map(fold_letter).all(|letter| folded.next() == Some(letter))
}

/// The letters with which a letter can be confused; Unicode Technical Standard 39 calls them its skeleton.
fn skeleton_of(letter: char) -> impl Iterator<Item = char> {
    let ascii = letter.is_ascii().then_some(letter);
    let confusable_letters =
        if letter.is_ascii() { Vec::new() } else { skeleton(letter.encode_utf8(&mut [0; 4])).collect() };
    ascii.into_iter().chain(confusable_letters)
}

/// Maps ASCII letters to lower case. Letters that can be confused with each other, such as `m` and `rn`, map to the
/// same letters.
fn fold_letter(letter: char) -> impl Iterator<Item = char> {
    let (first, second) = match letter.to_ascii_lowercase() {
        'm' => ('r', Some('n')),
        '0' => ('o', None),
        letter => (letter, None),
    };
    iter::once(first).chain(second)
}

/// Whether a token may end at this offset. Punctuation or space may follow, but no character that could belong to its
/// name.
fn is_token_end(text: &str, end: usize) -> bool {
    let next = text.get(end..).and_then(|rest| rest.chars().next());
    // A combining mark would change the last letter, so that the token names something else.
    next.is_none_or(|character| {
        !character.is_alphanumeric() && character != '_' && !is_invisible(character) && !is_combining_mark(character)
    })
}

fn matching_prefix(text: &str, start: usize, accepts: impl Fn(u8) -> bool) -> &str {
    let rest = text.get(start..).unwrap_or_default();
    let end = rest.bytes().position(|byte| !accepts(byte)).unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

/// Whether a character has no glyph and can hide between letters (Unicode: Default_Ignorable_Code_Point).
const fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_segments(text: &str) -> String {
        let mut rendered = String::new();
        for segment in scan(text).unwrap() {
            rendered.push_str(&match segment {
                TemplateSegment::Literal(text) => text,
                TemplateSegment::Asset { reference, offset } => {
                    format!("<asset {} {} {offset}>", reference.slug, reference.label.unwrap_or_default())
                }
                TemplateSegment::Command { slug, offset } => format!("<command {slug} {offset}>"),
                TemplateSegment::Argument { name, offset } => format!("<arg {name} {offset}>"),
                TemplateSegment::Placeholder { name, offset } => format!("<old {name} {offset}>"),
            });
        }
        rendered
    }

    #[test]
    fn finds_tokens() {
        let cases = [
            ("@asset-ref:tone-guide", "<asset tone-guide  0>"),
            ("(@asset-ref:tone@v1.2.)", "(<asset tone v1.2 1>.)"),
            ("@asset-ref:tone- x", "<asset tone  0>- x"),
            ("!command:go, $arg:a_1-b", "<command go 0>, <arg a_1 13>-b"),
            ("$$arg:a", "$<arg a 1>"),
            ("{{a}}{{  b  }}", "<old a 0><old b 5>"),
            ("{{{a}}}", "{<old a 1>}"),
            ("{{a b}} {{", "{{a b}} {{"),
            ("@asset !commands $argument a@b", "@asset !commands $argument a@b"),
            ("", ""),
        ];
        for (text, expected) in cases {
            assert_eq!(render_segments(text), expected, "{text}");
        }
    }

    #[test]
    fn rejects_malformed_and_confusable_tokens() {
        let cases = [
            "@asset-ref:",
            "@asset-ref: tone",
            "@asset-ref:Tone",
            "@asset-ref:toneGuide",
            "@asset-ref:tone@",
            "@asset-ref:tone@v1@v2",
            "@asset-ref:tone_x",
            "@asset-ref:docs",
            "@asset-ref:tön",
            "@asset-ref:to\u{200b}ne",
            "@as\u{200b}set-ref:tone",
            "@Asset-Ref:tone",
            "@аsset-ref:tone",
            "@asset‑ref:tone",
            "!cоmmand:go",
            "!ⅽommand:go",
            "!𝐜𝐨𝐦𝐦𝐚𝐧𝐝:go",
            "!coМмand:go",
            "$ɑrg:a",
            "!c0rnmand:go",
            "@assеｔ-ref:tone",
            "@a\u{200b}ѕset‑ref:tone",
            "!command：go",
            "$ａｒｇ:a",
            "!command:",
            "!command:../x",
            "!COMMAND:go",
            "!command:go\u{feff}",
            "!command:go\u{301}",
            "@asset-ref:tone\u{301}",
            "@asset-ref:tone\u{20dd}",
            "@asset-ref:tone@v1\u{301}",
            "$arg:n\u{301}",
            "$arg:n\u{93e}",
            "$arg:",
            "$arg:1a",
            "$arg:naïve",
            "$arg:\u{200b}a",
            "{{ {{a}} }}",
            "{{na\u{200b}me}}",
            &format!("$arg:{}", "x".repeat(64)),
            &format!("@asset-ref:{}", "x".repeat(64)),
            &format!("@asset-ref:x@{}", "x".repeat(65)),
        ];
        for text in cases {
            assert_eq!(scan(&format!("é{text}")), Err(PromptRefusal::MalformedToken { offset: 2 }), "{text}");
        }
    }

    #[test]
    fn limits_the_number_of_tokens() {
        assert!(scan(&"{{a}}".repeat(MAX_TEMPLATE_TOKENS)).is_ok());
        let refusal = scan(&"{{a}}".repeat(MAX_TEMPLATE_TOKENS + 1)).unwrap_err();
        assert_eq!(refusal, PromptRefusal::TooLarge { offset: 5 * MAX_TEMPLATE_TOKENS });
    }

    #[test]
    fn detects_references_in_bodies() {
        assert!(contains_asset_reference("a @asset-ref:b"));
        assert!(contains_asset_reference("a @asset-ref:???"));
        assert!(contains_asset_reference("a @ASSET-REF:b"));
        assert!(!contains_asset_reference("me@example.org asset-ref:b"));
    }
}
