//! Redaction: masks personal data in the output of a run.
//!
//! Each match is replaced by a fixed mask such as `[email]`. Redaction counts the matches, but stores no matched text.
//! The time is linear in the length of the text, for two reasons. Email addresses are searched from their `@` signs, so
//! that each character is read at most twice. Every other pattern has a maximum length, and is matched only at the
//! characters with which a match may start.
//!
//! INVARIANT: redaction is idempotent. No pattern matches a bracket, every match starts and ends at a word boundary in
//! any context, and every match is masked. A later mask may replace the text next to a match. A pattern therefore reads
//! at most one character beyond its match, or requires there characters with which no mask starts or ends.

mod card;
mod digit_group;
mod email;
mod iban;
mod ip;
mod match_start;
mod national_id;
mod normalization;
mod phone;

use crate::number;
use match_start::Position;
use normalization::{Replacer, normalize};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap, ops::Range};

pub use national_id::NationalId;

/// A class of personal data that redaction recognizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PersonalDataClass {
    /// An email address, such as `ada@example.com`.
    Email,
    /// A phone number in a distinctive notation.
    Phone,
    /// A payment card number with a valid check digit.
    Card,
    /// An international bank account number (IBAN).
    Iban,
    /// An IPv4 or IPv6 address.
    Ip,
    /// A number that a state assigns to a person, such as a tax identification number.
    NationalId,
}

impl PersonalDataClass {
    /// Every class, in the order of declaration.
    pub const ALL: [Self; 6] = [Self::Email, Self::Phone, Self::Card, Self::Iban, Self::Ip, Self::NationalId];

    /// The name of the class in evidence, such as `email`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Card => "card",
            Self::Iban => "iban",
            Self::Ip => "ip",
            Self::NationalId => "national_id",
        }
    }

    /// The text that replaces a match of the class, such as `[email]`.
    #[must_use]
    pub const fn mask(self) -> &'static str {
        match self {
            Self::Email => "[email]",
            Self::Phone => "[phone]",
            Self::Card => "[card]",
            Self::Iban => "[iban]",
            Self::Ip => "[ip]",
            Self::NationalId => "[national_id]",
        }
    }
}

/// The number of matches by class. Evidence may contain it, because it does not reveal the matched texts. As JSON, it
/// is an object such as `{"email": 2}`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct MatchCounts(BTreeMap<PersonalDataClass, u64>);

impl MatchCounts {
    /// The number of matches of a class.
    #[must_use]
    pub fn count_of(&self, class: PersonalDataClass) -> u64 {
        self.0.get(&class).copied().unwrap_or_default()
    }

    /// The total number of matches of all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether there are no matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each class that has matches, with its number of matches.
    pub fn iter(&self) -> impl Iterator<Item = (PersonalDataClass, u64)> {
        self.0.iter().map(|(class, count)| (*class, *count))
    }

    /// Adds the numbers of matches that were counted in another text.
    pub fn add_all(&mut self, other: &Self) {
        for (class, count) in other.iter() {
            *self.0.entry(class).or_default() += count;
        }
    }

    fn increment(&mut self, class: PersonalDataClass) {
        *self.0.entry(class).or_default() += 1;
    }
}

/// The result of redacting a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redaction {
    /// The text in which masks replace the matches.
    pub text: String,
    /// The number of matches of each class.
    pub counts: MatchCounts,
}

/// Masks personal data in texts and JSON values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redactor {
    national_ids: Vec<NationalId>,
    /// The classes whose matches are counted but not masked.
    unmasked: Vec<PersonalDataClass>,
}

impl Default for Redactor {
    /// A redactor that searches every scheme of national identifiers, because each scheme has a distinctive form.
    fn default() -> Self {
        Self::new(&NationalId::ALL)
    }
}

impl Redactor {
    /// A redactor that searches these schemes of national identifiers, and all other classes of personal data.
    #[must_use]
    pub fn new(national_ids: &[NationalId]) -> Self {
        Self { national_ids: national_ids.to_vec(), unmasked: Vec::new() }
    }

    /// A copy of this redactor that only counts the matches of these classes.
    #[must_use]
    pub fn without_masking(&self, classes: &[PersonalDataClass]) -> Self {
        Self { national_ids: self.national_ids.clone(), unmasked: classes.to_vec() }
    }

    /// Masks the matches in a text, even if hidden or disguised characters separate their parts.
    #[must_use]
    pub fn redact_text(&self, text: &str) -> Redaction {
        let mut counts = MatchCounts::default();
        let is_disguised = matches!(normalize(text), Cow::Owned(_));
        // The normalized form is masked first. In the original text, a hidden character could split an address and
        // leave a part unmasked. The normalized form is masked once more at the end, because a mask in the original
        // text can expose another match.
        let masked = match is_disguised {
            true => Cow::Owned(self.mask_view(text, View::Normalized, &mut counts)),
            false => Cow::Borrowed(text),
        };
        let mut text = self.mask_view(&masked, View::Raw, &mut counts);
        if is_disguised {
            text = self.mask_view(&text, View::NormalizedAgain, &mut counts);
        }
        Redaction { text, counts }
    }

    /// Masks the matches that occur in one view of a text: in its original or normalized form.
    fn mask_view(&self, text: &str, view: View, counts: &mut MatchCounts) -> String {
        let text = self.mask_emails(text, view, counts);
        let view_text = view.apply(&text);
        let mut replacer = Replacer::new(&text, &view_text);
        self.find_words(&view_text, |class, range| self.mask_match(class, range, view, &mut replacer, counts));
        let masked = replacer.finish();
        // A mask can end the domain of an address before it. For example, an address directly before a card number is
        // recognized only after the card number is masked. Digits cannot be the last label of a domain.
        match masked == text || self.unmasked.contains(&PersonalDataClass::Email) {
            true => masked,
            false => self.mask_emails(&masked, view, counts),
        }
    }

    fn mask_emails(&self, text: &str, view: View, counts: &mut MatchCounts) -> String {
        let view_text = view.apply(text);
        let mut replacer = Replacer::new(text, &view_text);
        email::find(&view_text, |range| self.mask_match(PersonalDataClass::Email, range, view, &mut replacer, counts));
        replacer.finish()
    }

    /// Masks a match, unless its class is only counted. A match that remains in the text could be counted in both
    /// views. Disguised matches are therefore counted in the normalized view, and all others in the original view.
    fn mask_match(
        &self,
        class: PersonalDataClass,
        range: Range<usize>,
        view: View,
        replacer: &mut Replacer<'_>,
        counts: &mut MatchCounts,
    ) {
        let mask = (!self.unmasked.contains(&class)).then(|| class.mask());
        let is_disguised = replacer.replace(range, mask);
        let is_counted = match view {
            View::Normalized => is_disguised,
            View::Raw => true,
            View::NormalizedAgain => false,
        };
        if mask.is_some() || is_counted {
            counts.increment(class);
        }
    }

    /// Masks every text of a value, including the keys of objects, and numbers that match as a whole. If a key
    /// indicates a phone number, its value is masked as a phone number if it consists of digits.
    ///
    /// If two keys become the same mask, a suffix distinguishes them: the second becomes `[email] 2`.
    pub fn redact(&self, value: &mut Value) -> MatchCounts {
        let mut counts = MatchCounts::default();
        self.redact_value(None, value, &mut counts);
        counts
    }

    fn redact_value(&self, key: Option<&str>, value: &mut Value, counts: &mut MatchCounts) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let Some(digits) = integer_digits(number) else { return };
                let redaction = self.redact_with_key(key, &digits);
                if let Some((class, _)) = redaction.counts.iter().find(|(class, _)| class.mask() == redaction.text) {
                    *value = Value::String(redaction.text);
                    counts.increment(class);
                } else if redaction.text == digits {
                    // The digits form a single word, so a match that is only counted covers the whole number.
                    counts.add_all(&redaction.counts);
                }
            }
            Value::String(text) => {
                let redaction = self.redact_with_key(key, text);
                *text = redaction.text;
                counts.add_all(&redaction.counts);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(key, item, counts)),
            Value::Object(members) => {
                members.iter_mut().for_each(|(key, member)| self.redact_value(Some(key), member, counts));
                self.redact_keys(members, counts);
            }
        }
    }

    /// Masks a text. If the key of the text indicates a phone number, a text of digits is masked as a phone number.
    fn redact_with_key(&self, key: Option<&str>, text: &str) -> Redaction {
        if key.is_some_and(|key| phone::names_phone(&normalize(key))) && phone::is_bare_number(text) {
            let mut counts = MatchCounts::default();
            counts.increment(PersonalDataClass::Phone);
            let is_unmasked = self.unmasked.contains(&PersonalDataClass::Phone);
            return Redaction {
                text: if is_unmasked { text } else { PersonalDataClass::Phone.mask() }.to_owned(),
                counts,
            };
        }
        self.redact_text(text)
    }

    fn redact_keys(&self, members: &mut Map<String, Value>, counts: &mut MatchCounts) {
        let masked: Vec<(String, Redaction)> = members
            .keys()
            .map(|key| (key.clone(), self.redact_text(key)))
            .filter(|(key, redaction)| {
                let is_masked = *key != redaction.text;
                if !is_masked {
                    counts.add_all(&redaction.counts);
                }
                is_masked
            })
            .collect();
        let mut suffixes: BTreeMap<String, u64> = BTreeMap::new();
        for (key, redaction) in masked {
            let Some(member) = members.remove(&key) else { continue };
            counts.add_all(&redaction.counts);
            let suffix = suffixes.entry(redaction.text.clone()).or_default();
            let unused_key = loop {
                *suffix += 1;
                let name = if *suffix == 1 { redaction.text.clone() } else { format!("{} {suffix}", redaction.text) };
                if !members.contains_key(&name) {
                    break name;
                }
            };
            members.insert(unused_key, member);
        }
    }

    /// Reports the matches of all patterns except email addresses, in text order.
    fn find_words(&self, text: &str, mut report: impl FnMut(PersonalDataClass, Range<usize>)) {
        let mut position = Position::start(text);
        while position.next_char().is_some() {
            match self.match_at(position) {
                Some((class, end)) => {
                    report(class, position.offset()..end);
                    position = position.after_mask(end);
                }
                None => position = position.advance(),
            }
        }
    }

    /// The class and the end of the match that starts at this position, if any. The first pattern that matches decides,
    /// so patterns with stricter checks come first.
    fn match_at(&self, position: Position<'_>) -> Option<(PersonalDataClass, usize)> {
        if !position.may_start_match() {
            return None;
        }
        let national_id_end = || self.national_ids.iter().find_map(|scheme| scheme.match_end(position));
        None.or_else(|| iban::match_end(position).map(|end| (PersonalDataClass::Iban, end)))
            .or_else(|| national_id_end().map(|end| (PersonalDataClass::NationalId, end)))
            .or_else(|| card::match_end(position).map(|end| (PersonalDataClass::Card, end)))
            .or_else(|| ip::match_end(position).map(|end| (PersonalDataClass::Ip, end)))
            .or_else(|| phone::match_end(position).map(|end| (PersonalDataClass::Phone, end)))
    }
}

/// The form of a text in which matches are searched.
#[derive(Clone, Copy, Debug)]
enum View {
    Normalized,
    Raw,
    NormalizedAgain,
}

impl View {
    fn apply(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Raw => Cow::Borrowed(text),
            Self::Normalized | Self::NormalizedAgain => normalize(text),
        }
    }
}

/// The digits of an integer without its sign, whatever its notation is.
fn integer_digits(number: &serde_json::Number) -> Option<String> {
    let whole = number::as_whole(number).or_else(|| number.as_i64().map(i64::unsigned_abs))?;
    Some(whole.to_string())
}

#[cfg(test)]
mod tests;
