//! Redaction: personal data in the output of a run is masked (contract: `redact_output`).
//!
//! What is found becomes a fixed word such as `[email]`; how often is counted, and what it was is kept nowhere. Every
//! form is bounded and looked for at the beginnings of words alone, so the time is linear in the text.
//!
//! INVARIANT: what is masked is never masked again. No form holds a bracket, each begins and ends at the edge of a word
//! whatever stands around it, and where one may begin and nothing is masked yet, one is masked. Looking further than the
//! next character would break this: a neighbour that is masked later would change the answer. Where a form must look
//! further, it asks for one of a few characters, and a bracket of a mask is none of them.

mod card;
mod disguise;
mod email;
mod iban;
mod ip;
mod national_id;
mod phone;
mod place;

use crate::number;
use disguise::{Rewriting, undisguised};
use place::Place;
use serde::Serialize;
use serde_json::{Map, Value};
use std::{borrow::Cow, collections::BTreeMap, ops::Range};

pub use national_id::NationalId;

/// A kind of personal data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// An e-mail address.
    Email,
    /// A phone number.
    Phone,
    /// The number of a payment card.
    Card,
    /// An international bank account number.
    Iban,
    /// An IP address.
    Ip,
    /// A number that a state gives to a person.
    NationalId,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 6] = [Self::Email, Self::Phone, Self::Card, Self::Iban, Self::Ip, Self::NationalId];

    /// The spelling in evidence.
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

    /// What stands in the text instead.
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

/// How much was masked, by class. It says nothing of what it was, so it may stand in evidence; as JSON it is an object
/// such as `{"email": 2}`.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<Class, u64>);

impl Counts {
    /// How many of that class.
    #[must_use]
    pub fn of(&self, class: Class) -> u64 {
        self.0.get(&class).copied().unwrap_or_default()
    }

    /// How many of all classes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// Whether nothing was masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The classes that were found, each with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Class, u64)> {
        self.0.iter().map(|(class, count)| (*class, *count))
    }

    /// Counts what another text held as well.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in other.iter() {
            *self.0.entry(class).or_default() += count;
        }
    }

    fn count(&mut self, class: Class) {
        *self.0.entry(class).or_default() += 1;
    }
}

/// A text without the personal data that was found in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redaction {
    /// The text, with masks.
    pub text: String,
    /// What the masks stand for.
    pub found: Counts,
}

/// Masks personal data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redactor {
    national_ids: Vec<NationalId>,
    /// What is found and counted, and left as it is.
    spared: Vec<Class>,
}

impl Default for Redactor {
    /// With every national id: the form of each is distinctive.
    fn default() -> Self {
        Self::new(&NationalId::ALL)
    }
}

impl Redactor {
    /// One that masks these national ids beside all other classes.
    #[must_use]
    pub fn new(national_ids: &[NationalId]) -> Self {
        Self { national_ids: national_ids.to_vec(), spared: Vec::new() }
    }

    /// The same, which finds and counts these classes and leaves them as they are.
    #[must_use]
    pub fn sparing(&self, spared: &[Class]) -> Self {
        Self { national_ids: self.national_ids.clone(), spared: spared.to_vec() }
    }

    /// Masks what is in a text, as it is written and as a person sees it.
    #[must_use]
    pub fn redact_text(&self, text: &str) -> Redaction {
        let mut found = Counts::default();
        let is_disguised = matches!(undisguised(text), Cow::Owned(_));
        // As a person sees it first: as it is written, a hidden character may leave the beginning of an address in front of
        // its mask. It may also part two things, and what is masked as it is written then frees its neighbour.
        let seen = match is_disguised {
            true => Cow::Owned(self.pass(text, Sight::Undisguised, &mut found)),
            false => Cow::Borrowed(text),
        };
        let mut text = self.pass(&seen, Sight::AsWritten, &mut found);
        if is_disguised {
            text = self.pass(&text, Sight::UndisguisedAgain, &mut found);
        }
        Redaction { text, found }
    }

    /// Masks what is found in one way of looking at a text.
    fn pass(&self, text: &str, sight: Sight, found: &mut Counts) -> String {
        let seen = sight.of(text);
        let mut rewriting = Rewriting::of(text, &seen);
        email::find(&seen, |range| self.take((Class::Email, range), sight, &mut rewriting, found));
        let text = rewriting.finish();
        let seen = sight.of(&text);
        let mut rewriting = Rewriting::of(&text, &seen);
        self.find_words(&seen, |class, range| self.take((class, range), sight, &mut rewriting, found));
        rewriting.finish()
    }

    /// Masks something that was found, or leaves it where it is spared. What is spared and not disguised was counted as it is
    /// written.
    fn take(
        &self,
        (class, range): (Class, Range<usize>),
        sight: Sight,
        rewriting: &mut Rewriting<'_>,
        found: &mut Counts,
    ) {
        let mask = (!self.spared.contains(&class)).then(|| class.mask());
        let is_disguised = rewriting.replace(range, mask);
        let counts = match sight {
            Sight::Undisguised => is_disguised,
            Sight::AsWritten => true,
            Sight::UndisguisedAgain => false,
        };
        if mask.is_some() || counts {
            found.count(class);
        }
    }

    /// Masks what is in every text of a value, the keys of its objects included, and numbers that are as a whole
    /// something to mask. A member whose key names a phone is masked where its value is all digits.
    ///
    /// Two keys may get the same mask. No member is lost for that: the second becomes `[email] 2`.
    pub fn redact(&self, value: &mut Value) -> Counts {
        let mut found = Counts::default();
        self.redact_under(None, value, &mut found);
        found
    }

    fn redact_under(&self, key: Option<&str>, value: &mut Value, found: &mut Counts) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let Some(digits) = digits(number) else { return };
                let redaction = self.redact_told(key, &digits);
                if let Some((class, _)) = redaction.found.iter().find(|(class, _)| class.mask() == redaction.text) {
                    *value = Value::String(redaction.text);
                    found.count(class);
                } else if redaction.text == digits {
                    // All of them are one word, so what was spared in it is the whole.
                    found.add(&redaction.found);
                }
            }
            Value::String(text) => {
                let redaction = self.redact_told(key, text);
                *text = redaction.text;
                found.add(&redaction.found);
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_under(key, item, found)),
            Value::Object(members) => {
                members.iter_mut().for_each(|(key, member)| self.redact_under(Some(key), member, found));
                self.redact_keys(members, found);
            }
        }
    }

    /// Masks a text, and says so where its key says what it is.
    fn redact_told(&self, key: Option<&str>, text: &str) -> Redaction {
        if key.is_some_and(|key| phone::is_named(&undisguised(key))) && phone::is_bare(text) {
            let mut found = Counts::default();
            found.count(Class::Phone);
            let is_spared = self.spared.contains(&Class::Phone);
            return Redaction { text: if is_spared { text } else { Class::Phone.mask() }.to_owned(), found };
        }
        self.redact_text(text)
    }

    fn redact_keys(&self, members: &mut Map<String, Value>, found: &mut Counts) {
        let masked: Vec<(String, Redaction)> = members
            .keys()
            .map(|key| (key.clone(), self.redact_text(key)))
            .filter(|(key, redaction)| {
                let is_masked = *key != redaction.text;
                if !is_masked {
                    found.add(&redaction.found);
                }
                is_masked
            })
            .collect();
        let mut taken: BTreeMap<String, u64> = BTreeMap::new();
        for (key, redaction) in masked {
            let Some(member) = members.remove(&key) else { continue };
            found.add(&redaction.found);
            let nth = taken.entry(redaction.text.clone()).or_default();
            let free = loop {
                *nth += 1;
                let name = if *nth == 1 { redaction.text.clone() } else { format!("{} {nth}", redaction.text) };
                if !members.contains_key(&name) {
                    break name;
                }
            };
            members.insert(free, member);
        }
    }

    /// Tells what begins at the beginning of a word, in the order of the text.
    fn find_words(&self, text: &str, mut found: impl FnMut(Class, Range<usize>)) {
        let mut place = Place::first(text);
        while place.next().is_some() {
            match self.begins(place) {
                Some((class, end)) => {
                    found(class, place.at()..end);
                    place = place.after_mask(end);
                }
                None => place = place.forward(),
            }
        }
    }

    /// What begins here, and where it ends. The first that fits counts: those with the harder check first.
    fn begins(&self, place: Place<'_>) -> Option<(Class, usize)> {
        if !place.may_begin() {
            return None;
        }
        let national = || self.national_ids.iter().find_map(|scheme| scheme.begins(place));
        None.or_else(|| iban::begins(place).map(|end| (Class::Iban, end)))
            .or_else(|| national().map(|end| (Class::NationalId, end)))
            .or_else(|| card::begins(place).map(|end| (Class::Card, end)))
            .or_else(|| ip::begins(place).map(|end| (Class::Ip, end)))
            .or_else(|| phone::begins(place).map(|end| (Class::Phone, end)))
    }
}

/// How a text is looked at.
#[derive(Clone, Copy, Debug)]
enum Sight {
    Undisguised,
    AsWritten,
    UndisguisedAgain,
}

impl Sight {
    fn of(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::AsWritten => Cow::Borrowed(text),
            Self::Undisguised | Self::UndisguisedAgain => undisguised(text),
        }
    }
}

/// The digits of a whole number, however it is spelled and whatever its sign.
fn digits(number: &serde_json::Number) -> Option<String> {
    let whole = number::whole(number).or_else(|| number.as_i64().map(i64::unsigned_abs))?;
    Some(whole.to_string())
}

#[cfg(test)]
mod tests;
