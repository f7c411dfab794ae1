//! Parses the note in a field of a request body.

use crate::error::FieldProblem;
use fairway_domain::note::Note;

pub(crate) fn parse_note(field: &'static str, text: Option<&str>) -> Result<Option<Note>, FieldProblem> {
    let rule = "a note has at most 2000 characters and no invisible characters except line breaks and tabs";
    text.map(|text| Note::parse(text).ok_or_else(|| FieldProblem::new(field, "invalid_text", rule))).transpose()
}
