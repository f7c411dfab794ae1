//! Explains why the CEL parser refuses a source. The messages of the parser contain parts of the source, so only their
//! fixed parts are compared.

use super::{MAX_TOKENS, is_end_token};
use cel::parser::pratt_parser::{Lexer, Token, TokenKind};

/// Each kind of bracket, as the tokens that open and close it.
const BRACKETS: [(TokenKind, TokenKind); 3] = [
    (TokenKind::TokLeftParen, TokenKind::TokRightParen),
    (TokenKind::TokLeftBracket, TokenKind::TokRightBracket),
    (TokenKind::TokLeftBrace, TokenKind::TokRightBrace),
];

/// The ends of messages of the parser, each with its explanation.
const EXPLANATIONS: [(&str, &str); 8] = [
    ("unterminated string literal", "a text has no closing quote"),
    ("unexpected single '&', expected '&&'", "the operator is written `&&`"),
    ("unexpected single '|', expected '||'", "the operator is written `||`"),
    ("unexpected character", "CEL does not use this character"),
    ("expected identifier after '.'", "a name is expected after `.`"),
    ("expected ':' in conditional expression", "a conditional has `:` after `?`"),
    ("expecting <EOF>", "an operator such as `&&` or `==` is expected here"),
    ("expecting expression", "an expression is expected here"),
];

/// The explanation of a parser error; `None` if neither the message nor the source shows the cause. The position is a
/// line and a column in bytes, both from 1.
pub(super) fn explain(source: &str, (line, column): (usize, usize), message: &str) -> Option<String> {
    let tokens = tokens(source);
    let line_offset: usize = source.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let offset = line_offset.saturating_add(column.saturating_sub(1));
    if tokens.iter().any(|token| token.kind == TokenKind::TokEqual && token.start == offset) {
        return Some("a comparison is written `==`".to_owned());
    }
    // The tokens end at a lexical error, so brackets before it would seem unclosed.
    let is_complete = tokens.last().is_some_and(|token| token.kind == TokenKind::TokEnd);
    let unbalanced = if is_complete { unbalanced_bracket(source, &tokens) } else { None };
    let find_explanation = || EXPLANATIONS.iter().find(|(end, _)| message.ends_with(*end));
    unbalanced.or_else(|| find_explanation().map(|(_, explanation)| (*explanation).to_owned()))
}

/// The tokens of a source, up to its end or the first lexical error.
fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer::new(source);
    let mut tokens = Vec::new();
    for _ in 0..MAX_TOKENS {
        let token = lexer.lex();
        tokens.push(token);
        if is_end_token(token.kind) {
            break;
        }
    }
    tokens
}

/// Describes the first bracket that is not closed, or that closes no other bracket.
fn unbalanced_bracket(source: &str, tokens: &[Token]) -> Option<String> {
    let mut open: Vec<(&Token, TokenKind)> = Vec::new();
    for token in tokens {
        if let Some((_, closing)) = BRACKETS.iter().find(|(opening, _)| *opening == token.kind) {
            open.push((token, *closing));
        } else if let Some((opening, closing)) = BRACKETS.iter().find(|(_, closing)| *closing == token.kind) {
            match open.pop() {
                Some((_, expected)) if expected == *closing => {}
                Some((unclosed, expected)) => return Some(unclosed_bracket(source, unclosed, expected)),
                None => return Some(format!("a `{}` has no `{}`", closing.as_str(), opening.as_str())),
            }
        }
    }
    open.last().map(|(unclosed, expected)| unclosed_bracket(source, unclosed, *expected))
}

fn unclosed_bracket(source: &str, unclosed: &Token, expected: TokenKind) -> String {
    let before = source.get(..unclosed.start).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    let (opening, closing) = (unclosed.kind.as_str(), expected.as_str());
    format!("the `{opening}` at line {line}, column {column} has no `{closing}`")
}
