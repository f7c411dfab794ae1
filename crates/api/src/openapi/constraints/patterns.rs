//! Patterns of free texts, as far as portable regular expressions can state the rules of the domain.

pub(super) const SLUG: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$";
pub(super) const OWNER: &str = "^(team|user):[a-z0-9][a-z0-9._@+-]{0,126}$";
pub(super) const PRINCIPAL: &str = "^(user|group|service):[a-z0-9][a-z0-9._@+-]{0,126}$";
pub(super) const ACTOR: &str = "^(anonymous|(user|group|service|system|share_link):[a-z0-9][a-z0-9._@+-]{0,126})$";
/// Pattern of the subjects of erasures.
pub(super) const ERASED_ACTOR: &str = "^(user|service|share_link):[a-z0-9][a-z0-9._@+-]{0,126}$";
pub(super) const ERROR_CODE: &str = "^[a-z][a-z0-9_]*$";
/// Pattern of `Last-Event-ID`: a number, or nothing.
pub(super) const EVENT_NUMBER: &str = "^[0-9]{0,19}$";
/// Pattern of the properties of usage rows.
pub(super) const GROUPING: &str = "^(workload|model|day)(,(workload|model|day)){0,2}$";
pub(super) const LABEL: &str = "^[A-Za-z0-9._-]{1,64}$";
pub(super) const CHECKSUM: &str = "^blake3:[0-9a-f]{64}$";
pub(super) const IDEMPOTENCY_KEY: &str = "^[!-~]{1,255}$";
/// Pattern of `If-Match`: `*` or entity tags.
pub(super) const ENTITY_TAGS: &str = r#"^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$"#;
/// Invisible characters, as far as portable patterns can name them; there are more beyond the basic multilingual plane.
macro_rules! hidden {
    () => {
        r"\u007f-\u009f\u00ad\u034f\u061c\u115f-\u1160\u17b4-\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    };
}
/// The characters of [`hidden`], and characters that are invisible if the text contains no others.
macro_rules! blank {
    () => {
        concat!(hidden!(), r"\u2800\ufe00-\ufe0f")
    };
}
/// One line with at least one visible character.
pub(super) const NAME: &str =
    concat!(r"^[^\u0000-\u001f", hidden!(), r"]*[^\s\u0000-\u001f", blank!(), r"][^\u0000-\u001f", hidden!(), "]*$");
/// Lines without control or invisible characters.
pub(super) const PROSE: &str = concat!(r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f", hidden!(), "]*$");
/// Lines with at least one visible character.
pub(super) const REASON: &str = concat!(
    r"^[^\u0000-\u0008\u000b\u000c\u000e-\u001f",
    hidden!(),
    r"]*[^\s\u0000-\u001f",
    blank!(),
    r"][^\u0000-\u0008\u000b\u000c\u000e-\u001f",
    hidden!(),
    "]*$"
);
/// The reference to a secret, as the schemas of content have it.
pub(super) const SECRET_REF: &str = concat!(
    "^(env:[A-Z][A-Z0-9]*(_[A-Z0-9]+)*|file:[A-Za-z0-9][A-Za-z0-9._-]*|",
    "vault:[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*#[A-Za-z0-9._-]+)$"
);
