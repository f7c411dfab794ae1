//! National identifiers of persons. The schemes have a distinctive form and, except for the first two, a check
//! digit.

use super::{digit_group::SEPARATORS, match_start::Position};

/// A scheme of national identifiers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NationalId {
    /// The social security number of the United States, such as `078-05-1120`. Separators are required, because
    /// the number has no check digit.
    UsSsn,
    /// The national insurance number of the United Kingdom, `AB 12 34 56 C`, with restricted prefixes and a suffix
    /// from A to D.
    UkNino,
    /// The tax identification number of Germany, `65 929 970 489` (ISO 7064, MOD 11,10).
    DeSteuerId,
    /// The social security number of France, `2 55 08 14 168 025 38` (check digits: 97 minus the remainder modulo
    /// 97).
    FrInsee,
    /// The identity document of Spain, `12345678Z` (check letter: the remainder modulo 23).
    EsDni,
    /// The identity number of foreigners in Spain, `X1234567L` (check letter as for the identity document).
    EsNie,
}

impl NationalId {
    /// Every scheme.
    pub const ALL: [Self; 6] = [Self::UsSsn, Self::UkNino, Self::DeSteuerId, Self::FrInsee, Self::EsDni, Self::EsNie];

    /// The name of the scheme in settings.
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

    /// The end of an identifier of this scheme that starts at this position, if any.
    pub(super) fn match_end(self, place: Position<'_>) -> Option<usize> {
        if !place.starts_word() {
            return None;
        }
        let (written, end) = match_form(place, self.form())?;
        (place.ends_word(end) && self.is_valid(&written)).then_some(end)
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

    /// Whether letters and digits that have the form of the scheme are a valid identifier.
    fn is_valid(self, written: &str) -> bool {
        match self {
            Self::UsSsn => is_us_ssn(written),
            Self::UkNino => is_uk_nino(written),
            Self::DeSteuerId => is_de_steuer_id(written),
            Self::FrInsee => is_fr_insee(written),
            Self::EsDni => is_es_dni(written),
            Self::EsNie => is_es_nie(written),
        }
    }
}

/// The letters and digits that match a form, in upper case and without separators, and the end of the match.
fn match_form(place: Position<'_>, form: &str) -> Option<(String, usize)> {
    let (mut written, mut end) = (String::with_capacity(form.len()), place.offset());
    for part in form.chars() {
        let next = place.char_at(end)?;
        let fits = match part {
            'd' => next.is_ascii_digit(),
            'l' => next.is_ascii_alphabetic(),
            'x' => next.is_ascii_alphanumeric(),
            '-' | '_' => {
                let parts = SEPARATORS.contains(&next);
                if parts {
                    end += next.len_utf8();
                }
                if parts || part == '_' {
                    continue;
                }
                false
            }
            _ => false,
        };
        if !fits {
            return None;
        }
        written.push(next.to_ascii_uppercase());
        end += next.len_utf8();
    }
    Some((written, end))
}

/// Whether the digits are valid; some areas, groups and serial numbers are never issued.
fn is_us_ssn(digits: &str) -> bool {
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    let area = part(0, 3);
    !matches!(area, "" | "000" | "666") && !area.starts_with('9') && part(3, 5) != "00" && part(5, 9) != "0000"
}

/// Whether the prefix is valid; some letters and prefixes are never issued.
fn is_uk_nino(written: &str) -> bool {
    let Some(prefix) = written.get(..2) else { return false };
    let never = |letter: char| matches!(letter, 'D' | 'F' | 'I' | 'Q' | 'U' | 'V');
    !prefix.contains(never)
        && !prefix.ends_with('O')
        && !matches!(prefix, "BG" | "GB" | "KN" | "NK" | "NT" | "TN" | "ZZ")
        && written.ends_with(['A', 'B', 'C', 'D'])
}

/// Whether the digits are valid. Among the first ten digits, one digit occurs two or three times, and each other
/// digit at most once.
fn is_de_steuer_id(digits: &str) -> bool {
    let values: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(10)).collect();
    let [first @ .., check] = values.as_slice() else { return false };
    let repeated: Vec<usize> =
        (0..10).map(|digit| first.iter().filter(|other| **other == digit).count()).filter(|count| *count > 1).collect();
    let product = first.iter().fold(10, |product, digit| match (digit + product) % 10 {
        0 => 20 % 11,
        sum => (2 * sum) % 11,
    });
    values.first() != Some(&0) && matches!(repeated.as_slice(), [2 | 3]) && (11 - product) % 10 == *check
}

/// Whether the number and its check digits are valid. The departments of Corsica, `2A` and `2B`, count as 19 and
/// 18.
fn is_fr_insee(written: &str) -> bool {
    let (Some(number), Some(key)) = (written.get(..13), written.get(13..)) else { return false };
    let Some(month) = number.get(3..5).and_then(|month| month.parse::<u32>().ok()) else { return false };
    let digits = match number.get(5..7) {
        Some("2A") => number.replacen("2A", "19", 1),
        Some("2B") => number.replacen("2B", "18", 1),
        Some(_) | None => number.to_owned(),
    };
    // Months above twelve encode an unknown month of birth.
    let is_person = number.starts_with(['1', '2', '3', '4', '7', '8']) && matches!(month, 1..=12 | 20..=42 | 50..=99);
    let (Ok(number), Ok(key)) = (digits.parse::<u64>(), key.parse::<u64>()) else { return false };
    is_person && 97 - number % 97 == key
}

/// Whether the letter encodes the remainder of the digits modulo 23.
fn is_es_dni(written: &str) -> bool {
    let Some((digits, letter)) = written.split_at_checked(8) else { return false };
    let rest = digits.parse::<usize>().ok().map(|number| number % 23);
    rest.and_then(|rest| "TRWAGMYFPDXBNJZSQVHLCKE".get(rest..=rest)) == Some(letter)
}

/// Whether the number is valid. Its first letter represents a digit, after which the rules of the DNI apply.
fn is_es_nie(written: &str) -> bool {
    let first = match written.get(..1) {
        Some("X") => "0",
        Some("Y") => "1",
        Some("Z") => "2",
        Some(_) | None => return false,
    };
    written.get(1..).is_some_and(|rest| is_es_dni(&format!("{first}{rest}")))
}
