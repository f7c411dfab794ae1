//! The theme of an interface: colors, fonts and lengths, each of which is the value of a CSS declaration.
//!
//! INVARIANT: no value can escape from its declaration, whether in a property, an attribute or a style sheet. First,
//! only the necessary characters are allowed, which excludes escapes, comments, braces, semicolons and markup. Second,
//! each value is parsed with a semicolon after it, so that an unclosed construct is detected by its consuming the
//! semicolon. Third, the grammar accepts only colors, family names and lengths, which excludes `url()`, `var()` and
//! `expression()`.

use super::{
    ProblemKind,
    problem::{Problems, member_path},
};
use cssparser::{Delimiter, ParseError, Parser, Token};
use cssparser_color::Color;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The maximum length of a theme value, in bytes.
const MAX_VALUE_BYTES: usize = 256;
/// The maximum border radius, in CSS pixels.
const MAX_LENGTH_PX: f32 = 64.0;
/// The size of an `em` in CSS pixels; browsers have this default.
const EM_PX: f32 = 16.0;
/// The maximum number of font families in a list; `MAX_FAMILY_BYTES` limits each name.
const MAX_FAMILIES: usize = 10;
const MAX_FAMILY_BYTES: usize = 64;

/// The theme of an interface. The portal's defaults apply to values that the theme omits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Theme {
    #[serde(skip_serializing_if = "Option::is_none")]
    accent_color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    background_color: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    font_family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    border_radius: Option<String>,
}

impl Theme {
    /// The CSS variables that the theme sets, each with its value.
    pub fn css_variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let variables = [
            ("--svc-accent", &self.accent_color),
            ("--svc-bg", &self.background_color),
            ("--svc-font", &self.font_family),
            ("--svc-radius", &self.border_radius),
        ];
        variables.into_iter().filter_map(|(name, value)| value.as_deref().map(|value| (name, value)))
    }

    /// The estimated heap memory of the theme, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let texts = [&self.accent_color, &self.background_color, &self.font_family, &self.border_radius];
        texts.into_iter().flatten().map(String::len).sum()
    }
}

pub(super) fn parse(value: &Value, path: &str, findings: &mut Problems) -> Option<Theme> {
    const KNOWN: &[&str] = &["accent_color", "background_color", "font_family", "border_radius"];
    let members = findings.read_object(value, path, KNOWN)?;
    let mut property = |name: &str, is_valid: fn(&str) -> bool, kind: ProblemKind| {
        let path = member_path(path, name);
        let value = findings.read_optional(members, name)?;
        let text = findings.read_text(&path, value)?;
        findings.check(&path, text.len() <= MAX_VALUE_BYTES && is_valid(text), kind).then(|| text.to_owned())
    };
    Some(Theme {
        accent_color: property("accent_color", is_color, ProblemKind::Color),
        background_color: property("background_color", is_color, ProblemKind::Color),
        font_family: property("font_family", is_font_list, ProblemKind::FontFamily),
        border_radius: property("border_radius", is_length, ProblemKind::Length),
    })
}

/// Whether a text is a CSS Color 4 color: a name, a hexadecimal notation, or a function with plain numbers.
fn is_color(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"#(),.%/+- ".contains(&byte);
    // Both characters are allowed, but together they would start a comment.
    text.bytes().all(is_allowed)
        && !text.contains("/*")
        && is_declaration_value(text, |value| Color::parse(value).map(|_| ()))
}

/// Whether a text is a list of font families (CSS Fonts 4); their names may be quoted or unquoted.
fn is_font_list(text: &str) -> bool {
    let is_allowed = |character: char| character.is_alphanumeric() || " ,-_.+'\"".contains(character);
    text.chars().all(is_allowed) && is_declaration_value(text, parse_font_list)
}

fn parse_font_list(value: &mut Parser<'_>) -> Result<(), ParseError<()>> {
    let families = value.parse_comma_separated(parse_font_family)?;
    if families.len() <= MAX_FAMILIES { Ok(()) } else { Err(ParseError::unexpected_token()) }
}

fn parse_font_family(value: &mut Parser<'_>) -> Result<(), ParseError<()>> {
    let name = match value.try_parse(Parser::expect_string_cloned) {
        Ok(quoted) => quoted.to_string(),
        Err(_) => {
            let mut words = vec![parse_family_word(value)?];
            while !value.is_exhausted() {
                words.push(parse_family_word(value)?);
            }
            words.join(" ")
        }
    };
    let is_valid = !name.trim().is_empty() && name.len() <= MAX_FAMILY_BYTES;
    if is_valid { Ok(()) } else { Err(ParseError::unexpected_token()) }
}

/// Parses a word of an unquoted family name. It must be a custom identifier (CSS Values 4), which excludes the keywords
/// that every CSS property accepts.
fn parse_family_word(value: &mut Parser<'_>) -> Result<String, ParseError<()>> {
    const RESERVED: [&str; 6] = ["inherit", "initial", "unset", "revert", "revert-layer", "default"];
    let word = value.expect_ident()?.to_string();
    let is_reserved = RESERVED.iter().any(|reserved| word.eq_ignore_ascii_case(reserved));
    if is_reserved { Err(ParseError::unexpected_token()) } else { Ok(word) }
}

/// Whether a text is a length of 0 to 64 px in pixels, points or ems. Zero needs no unit.
fn is_length(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".+- ".contains(&byte);
    text.bytes().all(is_allowed) && is_declaration_value(text, parse_length)
}

fn parse_length(value: &mut Parser<'_>) -> Result<(), ParseError<()>> {
    let token = value.next()?.clone();
    let pixels = if let Token::Dimension { value, unit, .. } = token {
        match unit.to_ascii_lowercase().as_str() {
            "px" => value,
            "pt" => value * 96.0 / 72.0,
            "em" | "rem" => value * EM_PX,
            _ => return Err(ParseError::unexpected_token()),
        }
    } else if matches!(token, Token::Number { value, .. } if value == 0.0) {
        0.0
    } else {
        return Err(ParseError::unexpected_token());
    };
    // Infinite values and NaN are outside of the range.
    if (0.0..=MAX_LENGTH_PX).contains(&pixels) { Ok(()) } else { Err(ParseError::unexpected_token()) }
}

/// Whether a text is exactly one value of this kind. It is parsed as in a declaration with another declaration after
/// it.
fn is_declaration_value(text: &str, value: impl FnOnce(&mut Parser<'_>) -> Result<(), ParseError<()>>) -> bool {
    let declaration = format!("{text};end");
    let mut parser = Parser::new(&declaration);
    let is_value = parser.parse_until_before(Delimiter::Semicolon, value).is_ok();
    is_value
        && parser.expect_semicolon().is_ok()
        && parser.expect_ident_matching("end").is_ok()
        && parser.expect_exhausted().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accepts_only_css_colors() {
        for text in [
            "red",
            "RebeccaPurple",
            "transparent",
            "currentcolor",
            "#0af",
            "#00aaff80",
            "rgb(1, 2, 3)",
            "rgb(1 2 3 / 50%)",
            "rgba(255,255,255,.5)",
            "hsl(120deg 100% 50%)",
            "oklch(60% 0.15 50)",
            " #fff ",
        ] {
            assert!(is_color(text), "{text}");
        }
        for text in [
            "",
            " ",
            "redd",
            "#12",
            "#ggg",
            "red blue",
            "red;",
            "red;} body{background:url(//x)",
            "red} body{background:red",
            "red!important",
            "rgb(1,2,3",
            "rgb(1,2,3))",
            "rgb(var(--x))",
            "var(--x)",
            "var(--x, url())",
            "url(//x)",
            "url(javascript:alert(1))",
            "expression(alert(1))",
            "image-set(x)",
            "env(x)",
            "attr(x)",
            "red/**/",
            "red/*",
            "/*",
            "re\\64 ",
            "\\3b",
            "red\\3b color:blue",
            "</style><script>alert(1)</script>",
            "red\0",
            "red\n",
            "red\u{200b}",
            "\u{ff52}ed",
            "inherit",
            "@import",
            "--x",
            "color-mix(in srgb, red, blue)",
        ] {
            assert!(!is_color(text), "{text:?}");
        }
        let nested = format!("rgb{}", "(".repeat(200));
        assert!(!is_color(&nested));
    }

    #[test]
    fn accepts_only_css_font_families() {
        for text in [
            "Arial",
            "system-ui, sans-serif",
            "\"Segoe UI\", 'Noto Sans', serif",
            "Times New Roman, serif",
            "\"思源黑体\"",
            "-apple-system",
            "\"inherit\", Arial",
            "inherited",
        ] {
            assert!(is_font_list(text), "{text}");
        }
        for text in [
            "",
            ",",
            "Arial,",
            "Arial,,serif",
            "inherit",
            "Initial",
            "inherit, Arial",
            "Arial, unset",
            "revert",
            "revert-layer",
            "default",
            "Arial default",
            "\"Arial",
            "'Arial\"",
            "\"\"",
            "\" \"",
            "\"a\" b",
            "\"a\" \"b\"",
            "12px",
            "Arial; color: red",
            "url(x)",
            "Arial, url(//x)",
            "local(x)",
            "\"</style><script>\"",
            "\"a\\\"; color: red; \\\"\"",
            "\"a\nb\"",
            "a/**/b",
            "var(--x)",
            "a{}",
            "@font-face",
            &"a,".repeat(20),
            &format!("{}a", "a,".repeat(10)),
            &"a".repeat(65),
        ] {
            assert!(!is_font_list(text), "{text:?}");
        }
    }

    #[test]
    fn accepts_only_bounded_css_lengths() {
        for text in ["0", "0px", "8px", "64px", "0.5rem", "4em", "12pt", "48PT", "1e1px", "+4px"] {
            assert!(is_length(text), "{text}");
        }
        for text in [
            "",
            "8",
            "65px",
            "64.5px",
            "-1px",
            "5rem",
            "50%",
            "1vw",
            "8px 8px",
            "1e400px",
            "calc(1px)",
            "8px;",
            "8px}",
            "8 px",
            "px",
            "NaNpx",
            "infinity",
            "8px/**/",
            "8p\\78",
            "8px\u{0}",
        ] {
            assert!(!is_length(text), "{text:?}");
        }
    }

    proptest! {
        /// CSS parsing rules keep each accepted value within its declaration.
        #[test]
        fn accepted_values_stay_in_their_declaration(text in "[a-z0-9#(){}<>;:,.%/*+\\\\\"' -]{0,24}") {
            for is_accepted in [is_color as fn(&str) -> bool, is_font_list, is_length] {
                if is_accepted(&text) {
                    prop_assert!(!text.contains([';', '{', '}', '<', '>', '\\', ':', '*']), "{text}");
                    let style_sheet = format!("a{{b:{text}}}c{{}}");
                    let mut parser = Parser::new(&style_sheet);
                    prop_assert!(parser.expect_ident_matching("a").is_ok());
                    prop_assert!(parser.expect_curly_bracket_block().is_ok());
                    prop_assert!(parser.expect_ident_matching("c").is_ok());
                }
            }
        }
    }
}
