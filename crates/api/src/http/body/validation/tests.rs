use super::*;
use crate::error::ApiError;
use serde::{Serialize, Serializer};
use std::cell::Cell;
use validator::Validate;

/// A value that no problem may repeat.
const SECRET: &str = "hunter2";

#[derive(Validate)]
#[validate(schema(function = check_end, skip_on_field_errors = false))]
struct Order {
    #[validate(length(min = 1, max = 3), custom(function = check_name))]
    name: String,
    #[validate(length(max = 3))]
    note: Option<String>,
    #[validate(range(min = 1, max = 9))]
    count: Option<u32>,
    #[validate(length(max = 250, code = "too_many_parts"), nested)]
    parts: Vec<Part>,
    #[validate(nested)]
    address: Option<Address>,
    until: Option<String>,
}

#[derive(Validate)]
struct Part {
    #[validate(custom(function = count_call), length(max = 3))]
    label: String,
}

#[derive(Validate)]
struct Address {
    #[validate(length(min = 2, code = "invalid_city", message = "a city has two letters"))]
    city: String,
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count_call(_: &str) -> Result<(), ValidationError> {
    CALLS.set(CALLS.get() + 1);
    Ok(())
}

fn check_name(text: &str) -> Result<(), ValidationError> {
    let problem = || FieldProblem::new("elsewhere", "unknown_name", "the name is unknown");
    if text == "ada" || text == "adalove" { Ok(()) } else { Err(to_validation_error(problem())) }
}

fn check_end(order: &Order) -> Result<(), ValidationError> {
    let problem = || FieldProblem::new("until", "invalid", "an order has either a `count` or an `until`");
    if order.count.is_some() && order.until.is_some() { Err(to_validation_error(problem())) } else { Ok(()) }
}

fn order() -> Order {
    Order { name: "ada".to_owned(), note: None, count: Some(9), parts: Vec::new(), address: None, until: None }
}

fn part(label: &str) -> Part {
    Part { label: label.to_owned() }
}

fn problems(order: &Order) -> Vec<(String, &'static str, String)> {
    let field_problems = validate(order).err().unwrap_or_default();
    field_problems.into_iter().map(|problem| (problem.path, problem.code, problem.message.into_owned())).collect()
}

#[test]
fn accepts_values_at_their_bounds() {
    let parts = (0..250).map(|_| part("äöü")).collect();
    assert_eq!(validate(&Order { note: Some("äöü".to_owned()), parts, ..order() }), Ok(()));
}

#[test]
fn reports_every_broken_rule_with_its_path() {
    let invalid_order = Order {
        name: SECRET.to_owned(),
        note: Some(SECRET.to_owned()),
        count: Some(10),
        parts: vec![part("a"), part(SECRET), part("b"), part(SECRET)],
        address: Some(Address { city: "x".to_owned() }),
        until: Some(SECRET.to_owned()),
    };
    let expected = [
        ("address.city", "invalid_city", "a city has two letters"),
        ("count", "out_of_bounds", "must be 1 to 9"),
        ("name", "unknown_name", "the name is unknown"),
        ("note", "too_long", "the length must be at most 3"),
        ("parts[1].label", "too_long", "the length must be at most 3"),
        ("parts[3].label", "too_long", "the length must be at most 3"),
        ("until", "invalid", "an order has either a `count` or an `until`"),
    ];
    let expected = expected.map(|(path, code, message)| (path.to_owned(), code, message.to_owned()));
    assert_eq!(problems(&invalid_order), expected);
    let response = ApiError::validation(validate(&invalid_order).unwrap_err()).body().to_string();
    assert!(!response.contains(SECRET), "{response}");
}

#[test]
fn reports_a_bound_when_the_domain_rule_accepts() {
    let long_name = Order { name: "adalove".to_owned(), ..order() };
    assert_eq!(problems(&long_name), [("name".to_owned(), "too_long", "the length must be 1 to 3".to_owned())]);
}

/// A body of 4 MiB can contain more than a hundred thousand small items, and none may be validated beyond the
/// bound.
#[test]
fn validates_no_items_of_a_list_beyond_its_bound() {
    CALLS.set(0);
    let too_many_parts = Order { parts: (0..251).map(|_| part(SECRET)).collect(), ..order() };
    assert_eq!(
        problems(&too_many_parts),
        [("parts".to_owned(), "too_many_parts", "the length must be at most 250".to_owned())]
    );
    assert_eq!(CALLS.get(), 0);
    let full_list = Order { parts: (0..250).map(|_| part(SECRET)).collect(), ..order() };
    assert_eq!(problems(&full_list).len(), MAX_PROBLEMS);
    assert_eq!(CALLS.get(), 250);
}

#[test]
fn prefixes_problems_of_documents_that_validate_themselves() {
    let problems = vec![FieldProblem::missing(""), FieldProblem::invalid("fields[0].type")];
    let mut found = Vec::new();
    collect(to_validation_errors(problems), "config", &mut found);
    assert_eq!(found, [FieldProblem::missing("config"), FieldProblem::invalid("config.fields[0].type")]);
}
