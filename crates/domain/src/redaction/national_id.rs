//! National identifiers of persons. Each scheme has a distinctive form and, except for the first two schemes, a check
//! digit.

use super::{digit_group::SEPARATORS, match_start::Position};

/// A scheme by which a state identifies persons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NationalId {
    /// The social security number of the United States, such as `078-05-1120`. Separators are required, because
    /// the number has no check digit.
    UsSsn,
    /// The national insurance number of the United Kingdom, such as `AB 12 34 56 C`. Prefixes are restricted, and the
    /// suffix is a letter from A to D.
    UkNino,
    /// The tax identification number of Germany, such as `65 929 970 489`; its check digit follows ISO 7064, MOD 11,10.
    DeSteuerId,
    /// The social security number of France, such as `2 55 08 14 168 025 38`. The check digits are 97 minus the
    /// remainder modulo 97.
    FrInsee,
    /// The number of the Spanish identity document, such as `12345678Z`. The check letter encodes the remainder modulo
    /// 23.
    EsDni,
    /// The identity number of foreigners in Spain, such as `X1234567L`. Its check letter follows the same rule.
    EsNie,
}

impl NationalId {
    /// Every scheme, in the order of declaration.
    pub const ALL: [Self; 6] = [Self::UsSsn, Self::UkNino, Self::DeSteuerId, Self::FrInsee, Self::EsDni, Self::EsNie];

    /// The name of the scheme in settings, such as `us_ssn`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UsSsn => "us_ssn",
            Self::UkNino => "uk_nino",
            Self::DeSteuerId => "de_steuer_id",
            Self::FrInsee => "fr_insee",
            Self::EsDni => "es_dni",
            Self::EsNie => "es_nie",
        }
    }

    /// Parses the name of a scheme; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.as_str() == text)
    }

    /// The end of the identifier of this scheme that starts at this position, if any.
    pub(super) fn match_end(self, position: Position<'_>) -> Option<usize> {
        if !position.starts_word() {
            return None;
        }
        let (characters, end) = match_form(position, self.form())?;
        (position.ends_word(end) && self.is_valid(&characters)).then_some(end)
    }

    /// The form of the identifier: `d` is a digit, `l` a letter, `x` either, `-` a separator, and `_` an optional
    /// separator.
    const fn form(self) -> &'static str {
        match self {
            Self::UsSsn => "ddd-dd-dddd",
            Self::UkNino => "ll_dd_dd_dd_l",
            Self::DeSteuerId => "dd_ddd_ddd_ddd",
            Self::FrInsee => "d_dd_dd_dx_ddd_ddd_dd",
            Self::EsDni => "dddddddd_l",
            Self::EsNie => "l_ddddddd_l",
        }
    }

    /// Whether letters and digits in the form of the scheme are a valid identifier.
    fn is_valid(self, characters: &str) -> bool {
        match self {
            Self::UsSsn => is_us_ssn(characters),
            Self::UkNino => is_uk_nino(characters),
            Self::DeSteuerId => is_de_steuer_id(characters),
            Self::FrInsee => is_fr_insee(characters),
            Self::EsDni => is_es_dni(characters),
            Self::EsNie => is_es_nie(characters),
        }
    }
}

/// Matches the text at this position against a [`NationalId::form`]. Returns the letters and digits, in upper case and
/// without separators, and the end of the match.
fn match_form(position: Position<'_>, form: &str) -> Option<(String, usize)> {
    let (mut characters, mut end) = (String::with_capacity(form.len()), position.offset());
    for form_char in form.chars() {
        let next = position.char_at(end)?;
        let is_match = match form_char {
            'd' => next.is_ascii_digit(),
            'l' => next.is_ascii_alphabetic(),
            'x' => next.is_ascii_alphanumeric(),
            '-' | '_' => {
                let is_separator = SEPARATORS.contains(&next);
                if is_separator {
                    end += next.len_utf8();
                }
                if is_separator || form_char == '_' {
                    continue;
                }
                false
            }
            _ => false,
        };
        if !is_match {
            return None;
        }
        characters.push(next.to_ascii_uppercase());
        end += next.len_utf8();
    }
    Some((characters, end))
}

/// Whether a US social security number can be issued. Some areas, groups and serial numbers are never issued.
fn is_us_ssn(digits: &str) -> bool {
    let part = |start: usize, end: usize| digits.get(start..end).unwrap_or_default();
    let area = part(0, 3);
    !matches!(area, "" | "000" | "666") && !area.starts_with('9') && part(3, 5) != "00" && part(5, 9) != "0000"
}

/// Whether a UK national insurance number has a prefix that can be issued, and a valid suffix. Some letters and
/// prefixes are never issued.
fn is_uk_nino(characters: &str) -> bool {
    let Some(prefix) = characters.get(..2) else { return false };
    let is_never_issued = |letter: char| matches!(letter, 'D' | 'F' | 'I' | 'Q' | 'U' | 'V');
    !prefix.contains(is_never_issued)
        && !prefix.ends_with('O')
        && !matches!(prefix, "BG" | "GB" | "KN" | "NK" | "NT" | "TN" | "ZZ")
        && characters.ends_with(['A', 'B', 'C', 'D'])
}

/// Whether the number is valid. Among its first ten digits, one occurs two or three times, and each other at most once.
fn is_de_steuer_id(digits: &str) -> bool {
    let values: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(10)).collect();
    let [leading @ .., check] = values.as_slice() else { return false };
    let repeated: Vec<usize> = (0..10)
        .map(|digit| leading.iter().filter(|value| **value == digit).count())
        .filter(|count| *count > 1)
        .collect();
    let product = leading.iter().fold(10, |product, digit| match (digit + product) % 10 {
        0 => 20 % 11,
        sum => (2 * sum) % 11,
    });
    values.first() != Some(&0) && matches!(repeated.as_slice(), [2 | 3]) && (11 - product) % 10 == *check
}

/// Whether the number matches its check digits. The departments of Corsica, `2A` and `2B`, count as 19 and 18.
fn is_fr_insee(characters: &str) -> bool {
    let (Some(number), Some(check_digits)) = (characters.get(..13), characters.get(13..)) else { return false };
    let Some(month) = number.get(3..5).and_then(|month| month.parse::<u32>().ok()) else { return false };
    let digits = match number.get(5..7) {
        Some("2A") => number.replacen("2A", "19", 1),
        Some("2B") => number.replacen("2B", "18", 1),
        Some(_) | None => number.to_owned(),
    };
    // Some months above twelve are valid, because they encode that the month of birth is unknown.
    let is_person = number.starts_with(['1', '2', '3', '4', '7', '8']) && matches!(month, 1..=12 | 20..=42 | 50..=99);
    let (Ok(number), Ok(check_digits)) = (digits.parse::<u64>(), check_digits.parse::<u64>()) else { return false };
    is_person && 97 - number % 97 == check_digits
}

/// Whether a number of a Spanish identity document (DNI) is valid: its letter encodes the remainder of the number
/// modulo 23.
fn is_es_dni(characters: &str) -> bool {
    let Some((digits, letter)) = characters.split_at_checked(8) else { return false };
    let remainder = digits.parse::<usize>().ok().map(|number| number % 23);
    remainder.and_then(|remainder| "TRWAGMYFPDXBNJZSQVHLCKE".get(remainder..=remainder)) == Some(letter)
}

/// Whether an identity number of a foreigner in Spain (NIE) is valid. Its first letter stands for a digit. With this
/// digit in place of the letter, the number must be a valid DNI ([`is_es_dni`]).
fn is_es_nie(characters: &str) -> bool {
    let first_digit = match characters.get(..1) {
        Some("X") => "0",
        Some("Y") => "1",
        Some("Z") => "2",
        Some(_) | None => return false,
    };
    characters.get(1..).is_some_and(|rest| is_es_dni(&format!("{first_digit}{rest}")))
}
