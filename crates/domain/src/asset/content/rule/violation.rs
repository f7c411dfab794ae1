//! Violations of the content rules, with their codes and messages.

/// The content rule that a value violates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Violation {
    MissingField,
    NotAllowedHere,
    DuplicateName,
    DuplicateRouteId,
    Contradiction,
    ReferenceExpected,
    AddressExpected,
    UnknownBuiltin,
    PatternNotLinear,
    TooManyEmbedded,
    RevokedAtMismatch,
    InvalidTime,
    SandboxProfileRequired,
    DeviceName,
    ProtocolHeader,
    SecretInContent,
}

impl Violation {
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
            Self::TooManyEmbedded => "too_many_carried",
            Self::RevokedAtMismatch => "revoked_at_mismatch",
            Self::InvalidTime | Self::DeviceName | Self::ProtocolHeader => "wrong_form",
            Self::SandboxProfileRequired => "sandbox_profile_required",
            Self::SecretInContent => "secret_in_content",
        }
    }

    /// The text for people, which contains no value of the content.
    pub(super) const fn message(self) -> &'static str {
        match self {
            Self::MissingField => "this field is required in combination with the other fields",
            Self::NotAllowedHere => "this field is not allowed in combination with the other fields",
            Self::DuplicateName => "another entry of the list has the same name",
            Self::DuplicateRouteId => "another route of the policy has the same id",
            Self::Contradiction => "this contradicts another field",
            Self::ReferenceExpected => "expected a reference to an asset: `{slug, version?}`",
            Self::AddressExpected => "expected an http or https address without credentials",
            Self::UnknownBuiltin => "this service has no tool of this name",
            Self::PatternNotLinear => {
                "the pattern is not a regular expression, or exceeds linear time or the memory limit"
            }
            Self::TooManyEmbedded => "the content has too many patterns or schemas",
            Self::RevokedAtMismatch => "`revoked_at` is set exactly when `revoked` is true",
            Self::InvalidTime => "the time does not exist",
            Self::SandboxProfileRequired => "executable files require a sandbox profile",
            Self::DeviceName => "Windows reserves this name for a device, so the file cannot be created there",
            Self::ProtocolHeader => "the connection or the protocol sets this header itself",
            Self::SecretInContent => "content must not contain the value of a secret; use a secret reference",
        }
    }
}
