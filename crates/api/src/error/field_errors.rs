//! Collects all problems of a request's fields for one response.

use super::{ApiError, FieldProblem};

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

    /// Records further problems.
    pub(crate) fn extend(&mut self, problems: impl IntoIterator<Item = FieldProblem>) {
        self.0.extend(problems);
    }

    /// Builds the value with `whole` if there are no problems. `whole` must return `Some` in that case.
    pub(crate) fn finish<T>(self, whole: impl FnOnce() -> Option<T>) -> Result<T, ApiError> {
        if !self.0.is_empty() {
            return Err(ApiError::validation(self.0));
        }
        whole().ok_or_else(ApiError::internal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_all_field_problems_at_once() {
        let mut fields = FieldErrors::default();
        let read = (fields.check(Ok(1)), fields.check::<()>(Err(FieldProblem::missing("a"))));
        fields.extend([FieldProblem::invalid("b")]);
        assert_eq!(read, (Some(1), None));
        assert_eq!(fields.0, [FieldProblem::missing("a"), FieldProblem::invalid("b")]);
        assert_eq!(fields.finish(|| Some(1)).unwrap_err().code(), "validation_error");
        assert_eq!(FieldErrors::default().finish(|| Some(1)).unwrap(), 1);
    }
}
