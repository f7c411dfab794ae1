//! The rules that content can break.

/// A rule that content breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Breach {
    MissingField,
    NotAllowedHere,
    DuplicateName,
    DuplicateRouteId,
    Contradiction,
    ReferenceExpected,
    AddressExpected,
    UnknownBuiltin,
    PatternNotLinear,
    TooManyCarried,
    RevokedAtMismatch,
    NoSuchTime,
    SandboxProfileRequired,
    DeviceName,
    HeaderOfTheProtocol,
    SecretInContent,
}

impl Breach {
    /// The stable code.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::MissingField => "missing_field",
            Self::NotAllowedHere => "not_allowed_here",
            Self::DuplicateName => "duplicate_name",
            Self::DuplicateRouteId => "duplicate_route_id",
            Self::Contradiction => "contradiction",
            Self::ReferenceExpected => "reference_expected",
            Self::AddressExpected => "address_expected",
            Self::UnknownBuiltin => "unknown_builtin",
            Self::PatternNotLinear => "pattern_not_linear",
            Self::TooManyCarried => "too_many_carried",
            Self::RevokedAtMismatch => "revoked_at_mismatch",
            Self::NoSuchTime | Self::DeviceName | Self::HeaderOfTheProtocol => "wrong_form",
            Self::SandboxProfileRequired => "sandbox_profile_required",
            Self::SecretInContent => "secret_in_content",
        }
    }

    /// What is wrong, for people.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::MissingField => "this field is required with what the other fields say",
            Self::NotAllowedHere => "this field makes no sense with what the other fields say",
            Self::DuplicateName => "another entry of the list has this name",
            Self::DuplicateRouteId => "another route of the policy has this id",
            Self::Contradiction => "this contradicts another field",
            Self::ReferenceExpected => "expected a reference to an asset: `{slug, version?}`",
            Self::AddressExpected => "expected an http or https address without credentials",
            Self::UnknownBuiltin => "this service has no tool of this name",
            Self::PatternNotLinear => {
                "the pattern is no regular expression, or needs more than linear time or too much room"
            }
            Self::TooManyCarried => "the content carries too many patterns, or too much text of schemas",
            Self::RevokedAtMismatch => "`revoked_at` is set exactly when `revoked` is true",
            Self::NoSuchTime => "there is no such moment",
            Self::SandboxProfileRequired => "executable files need a sandbox profile",
            Self::DeviceName => "Windows keeps this name for a device, so no such file can be laid down there",
            Self::HeaderOfTheProtocol => {
                "this header belongs to the connection or to the protocol, which set it themselves"
            }
            Self::SecretInContent => "a secret has no value in content; it is named by a secret reference",
        }
    }
}
