//! Everything that is wrong with the fields of a request, told at once.

use super::{ApiError, FieldProblem};

/// What has been read of a request so far, and why some of it could not be.
#[derive(Debug, Default)]
pub(crate) struct Fields(Vec<FieldProblem>);

impl Fields {
    /// A field that was read, or a note of why it was not.
    pub(crate) fn read<T>(&mut self, field: Result<T, FieldProblem>) -> Option<T> {
        match field {
            Ok(value) => Some(value),
            Err(problem) => {
                self.0.push(problem);
                None
            }
        }
    }

    /// Something else that is wrong.
    pub(crate) fn note(&mut self, problems: impl IntoIterator<Item = FieldProblem>) {
        self.0.extend(problems);
    }

    /// What was read, if nothing was wrong: `whole` puts it together, and has something wherever nothing was noted.
    pub(crate) fn whole<T>(self, whole: impl FnOnce() -> Option<T>) -> Result<T, ApiError> {
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
    fn nothing_is_told_by_halves() {
        let mut fields = Fields::default();
        let read = (fields.read(Ok(1)), fields.read::<()>(Err(FieldProblem::missing("a"))));
        fields.note([FieldProblem::invalid("b")]);
        assert_eq!(read, (Some(1), None));
        assert_eq!(fields.0, [FieldProblem::missing("a"), FieldProblem::invalid("b")]);
        assert_eq!(fields.whole(|| Some(1)).unwrap_err().code(), "validation_error");
        assert_eq!(Fields::default().whole(|| Some(1)).unwrap(), 1);
    }
}
