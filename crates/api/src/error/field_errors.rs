//! Collects all problems of a request's fields for one response.

use super::{ApiError, FieldProblem};
use fairway_domain::workload::interface::MAX_PROBLEMS;

/// The problems found so far in the fields of a request.
#[derive(Debug, Default)]
pub(crate) struct FieldErrors(Vec<FieldProblem>);

impl FieldErrors {
    /// The value of a field, or `None` after recording its problem.
    pub(crate) fn check<T>(&mut self, field: Result<T, FieldProblem>) -> Option<T> {
        match field {
            Ok(value) => Some(value),
            Err(problem) => {
                self.0.push(problem);
                None
            }
        }
    }

    /// Records problems that another check has collected.
    pub(crate) fn extend(&mut self, problems: impl IntoIterator<Item = FieldProblem>) {
        self.0.extend(problems);
    }

    /// Builds the value with `build` if there are no problems. `build` must return `Some` in that case. A response
    /// reports at most [`MAX_PROBLEMS`] problems.
    pub(crate) fn finish<T>(mut self, build: impl FnOnce() -> Option<T>) -> Result<T, ApiError> {
        self.0.truncate(MAX_PROBLEMS);
        if !self.0.is_empty() {
            return Err(ApiError::validation(self.0));
        }
        build().ok_or_else(ApiError::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_all_field_problems_at_once() {
        let mut fields = FieldErrors::default();
        let values = (fields.check(Ok(1)), fields.check::<()>(Err(FieldProblem::missing("a"))));
        fields.extend([FieldProblem::invalid("b")]);
        assert_eq!(values, (Some(1), None));
        assert_eq!(fields.0, [FieldProblem::missing("a"), FieldProblem::invalid("b")]);
        assert_eq!(fields.finish(|| Some(1)).unwrap_err().code(), "validation_error");
        assert_eq!(FieldErrors::default().finish(|| Some(1)).unwrap(), 1);
    }

    #[test]
    fn reports_a_bounded_number_of_problems() {
        let mut fields = FieldErrors::default();
        fields.extend((0..=MAX_PROBLEMS).map(|position| FieldProblem::invalid(format!("[{position}]"))));
        let body = fields.finish(|| Some(1)).unwrap_err().body();
        assert_eq!(body["detail"]["fields"].as_array().map(Vec::len), Some(MAX_PROBLEMS));
    }
}
