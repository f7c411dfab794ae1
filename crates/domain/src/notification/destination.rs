//! Destinations: shared external endpoints that receive the notifications of a workspace or of the organization.

pub mod configuration_redaction;

use crate::{
    access::ActorRef,
    audit::{Fact, FactKind, FactSubject, Stamp},
    id::{DestinationId, WorkspaceId},
    notification::{Channel, delivery::DeliveryError},
    notification_category::NotificationCategory,
    secret::SecretRef,
    store::{Change, Revision, aggregate},
    text::is_name,
    time::Timestamp,
};
use configuration_redaction::redact_configuration;
use serde_json::{Map, Value, json};

/// The maximum length of a destination's display name, in characters.
pub const MAX_DISPLAY_NAME: usize = 200;
/// The maximum size of a destination's configuration as JSON, in bytes.
pub const MAX_CONFIGURATION_BYTES: usize = 8 << 10;
/// The maximum number of destinations in one scope. It limits the work of the projector, which loads all enabled
/// destinations with each batch.
pub const MAX_DESTINATIONS_PER_SCOPE: u32 = 100;
/// The formats of chat messages that Fairway can send.
pub const CHAT_FORMATS: [&str; 5] = ["slack", "teams", "discord", "google_chat", "mattermost"];
/// The maximum length of a key in a configuration, in bytes.
const MAX_KEY: usize = 64;

/// Whether a destination receives the facts of one workspace or of the whole tenant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DestinationScope {
    /// The destination receives the facts of the whole tenant.
    Organization,
    /// The destination receives the facts of one workspace.
    Workspace(WorkspaceId),
}

impl DestinationScope {
    /// The wire form of the scope's kind, such as `workspace`.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Organization => "organization",
            Self::Workspace(_) => "workspace",
        }
    }

    /// The workspace whose facts the destination receives; `None` for the whole tenant.
    #[must_use]
    pub const fn workspace(self) -> Option<WorkspaceId> {
        match self {
            Self::Organization => None,
            Self::Workspace(id) => Some(id),
        }
    }
}

/// A shared external endpoint that receives the notifications of a workspace or of the organization.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination(pub(crate) DestinationRecord);

/// The fields of [`Destination`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DestinationRecord {
    /// The identifier of the destination.
    pub destination_id: DestinationId,
    /// The facts that reach the destination.
    pub scope: DestinationScope,
    /// The channel of the destination, which is never the inbox.
    pub destination_type: Channel,
    /// The name for people, which is unique among the destinations of the same scope and type.
    pub display_name: String,
    /// The configuration, from which secrets are removed.
    pub configuration: Map<String, Value>,
    /// The reference to the secret of the destination: a signing key, a routing key, or the whole address.
    pub secret_ref: Option<String>,
    /// Whether the destination receives notifications.
    pub is_enabled: bool,
    /// The time at which the destination was created.
    pub created_at: Timestamp,
    /// The actor that created the destination.
    pub created_by: ActorRef,
    /// The time of the last change.
    pub updated_at: Timestamp,
    /// The change counter, which increments with each change.
    pub revision: Revision,
}

aggregate!(Destination, DestinationRecord);

/// An enabled destination, with the fields that the projector reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveDestination {
    /// The identifier of the destination.
    pub destination_id: DestinationId,
    /// The facts that reach the destination.
    pub scope: DestinationScope,
    /// The channel of the destination.
    pub destination_type: Channel,
}

impl ActiveDestination {
    /// Whether facts of this workspace reach the destination. `None` means facts outside of any workspace.
    #[must_use]
    pub fn covers_workspace(&self, workspace: Option<WorkspaceId>) -> bool {
        match self.scope {
            DestinationScope::Organization => true,
            DestinationScope::Workspace(id) => workspace == Some(id),
        }
    }
}

/// The fields from which a destination is created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewDestination {
    /// The identifier of the destination.
    pub destination_id: DestinationId,
    /// The facts that reach the destination.
    pub scope: DestinationScope,
    /// The channel of the destination.
    pub destination_type: Channel,
    /// The name for people, which is unique among the destinations of the same scope and type.
    pub display_name: String,
    /// The configuration as the client sent it, possibly with secrets.
    pub configuration: Map<String, Value>,
    /// The reference to the secret of the destination, if it has one.
    pub secret_ref: Option<String>,
    /// Whether the destination receives notifications.
    pub is_enabled: bool,
}

/// The changed fields of a destination; `None` leaves a field unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DestinationPatch {
    /// The new name for people.
    pub display_name: Option<String>,
    /// The new configuration as the client sent it, possibly with secrets. It replaces the earlier one as a whole.
    pub configuration: Option<Map<String, Value>>,
    /// The new reference to the secret; `Some(None)` removes the reference.
    pub secret_ref: Option<Option<String>>,
    /// Whether the destination receives notifications from now on.
    pub is_enabled: Option<bool>,
}

/// The reason why a destination cannot be created or changed. The message never contains a value of the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DestinationRefusal {
    /// The type is the inbox, which cannot be a destination.
    #[error("a destination is of the type `email`, `chat_a`, `chat_b`, `chat_c`, `paging` or `webhook`")]
    Type,
    /// The display name is empty, too long, or has invisible characters.
    #[error("a display name is one line of 1 to {MAX_DISPLAY_NAME} visible characters")]
    Name,
    /// The configuration is longer than [`MAX_CONFIGURATION_BYTES`].
    #[error("a configuration has at most {MAX_CONFIGURATION_BYTES} bytes")]
    ConfigurationSize,
    /// A key of the configuration does not have the form of a name. Facts contain these keys, so the keys must not be
    /// free text.
    #[error("a key of a configuration is a letter followed by up to 63 letters, digits and `._-`")]
    Key,
    /// The reference to the secret has an invalid form.
    #[error("a secret reference has the form `env:NAME`, `file:name` or `vault:path#key`")]
    SecretRef,
    /// The configuration has no URL, so nothing could be delivered.
    #[error("a destination of this type needs `url`; a chat may keep the whole address in its secret instead")]
    NoUrl,
    /// The configuration has no e-mail address.
    #[error("a destination of the type `email` needs `address`")]
    NoMailbox,
    /// The configuration names an unknown format of chat messages.
    #[error("the format of a chat is `slack`, `teams`, `discord`, `google_chat` or `mattermost`")]
    Format,
}

impl DestinationRefusal {
    /// The stable code of the refusal.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Type | Self::Key | Self::Format => "invalid",
            Self::NoUrl | Self::NoMailbox => "missing",
            Self::Name => "invalid_name",
            Self::ConfigurationSize => "too_long",
            Self::SecretRef => "invalid_secret_ref",
        }
    }

    /// The request field that has the problem.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Type => "destination_type",
            Self::Name => "display_name",
            Self::ConfigurationSize | Self::Key => "redacted_metadata",
            Self::SecretRef => "secret_ref",
            Self::NoUrl => "redacted_metadata.url",
            Self::NoMailbox => "redacted_metadata.address",
            Self::Format => "redacted_metadata.format",
        }
    }
}

/// Whether a configuration key has the form of a name. That form excludes sentences, addresses and most credentials.
fn is_key(key: &str) -> bool {
    key.len() <= MAX_KEY
        && key.starts_with(|character: char| character.is_ascii_alphabetic())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn has_valid_keys(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.iter().all(|(key, value)| is_key(key) && has_valid_keys(value)),
        Value::Array(items) => items.iter().all(has_valid_keys),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    }
}

/// Checks the keys and the size of a configuration, and returns it without its secrets.
fn ingest(configuration: Map<String, Value>) -> Result<Map<String, Value>, DestinationRefusal> {
    let value = Value::Object(configuration);
    if !has_valid_keys(&value) {
        return Err(DestinationRefusal::Key);
    }
    if value.to_string().len() > MAX_CONFIGURATION_BYTES {
        return Err(DestinationRefusal::ConfigurationSize);
    }
    match value {
        Value::Object(members) => Ok(redact_configuration(members)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Ok(Map::new()),
    }
}

fn check_name(name: &str) -> Result<(), DestinationRefusal> {
    if is_name(name, MAX_DISPLAY_NAME) { Ok(()) } else { Err(DestinationRefusal::Name) }
}

fn check_secret_ref(reference: Option<&str>) -> Result<(), DestinationRefusal> {
    reference.map_or(Ok(()), |text| SecretRef::parse(text).map(drop).map_err(|_| DestinationRefusal::SecretRef))
}

/// Checks that the configuration has an address and a known format. Each delivery checks whether the address may be
/// called.
fn check_configuration(destination: &DestinationRecord) -> Result<(), DestinationRefusal> {
    let text = |name: &str| destination.configuration.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match destination.destination_type {
        Channel::Portal => Err(DestinationRefusal::Type),
        Channel::Email => text("address").map(drop).ok_or(DestinationRefusal::NoMailbox),
        Channel::Webhook | Channel::Paging => text("url").map(drop).ok_or(DestinationRefusal::NoUrl),
        Channel::ChatA | Channel::ChatB | Channel::ChatC => {
            let format = destination.configuration.get("format");
            if format.is_some_and(|format| !format.as_str().is_some_and(|name| CHAT_FORMATS.contains(&name))) {
                return Err(DestinationRefusal::Format);
            }
            let has_address = text("url").is_some() || destination.secret_ref.is_some();
            if has_address { Ok(()) } else { Err(DestinationRefusal::NoUrl) }
        }
    }
}

impl Destination {
    /// Creates a destination without the secrets in its configuration. Its address is not checked here, because each
    /// delivery checks it.
    ///
    /// # Errors
    /// If the type, name, size, format, a key or the form of the secret reference is invalid, or the address is
    /// missing.
    pub fn create(new: NewDestination, stamp: &Stamp) -> Result<Change<Self>, DestinationRefusal> {
        if new.destination_type == Channel::Portal {
            return Err(DestinationRefusal::Type);
        }
        check_name(&new.display_name)?;
        check_secret_ref(new.secret_ref.as_deref())?;
        let next = DestinationRecord {
            destination_id: new.destination_id,
            scope: new.scope,
            destination_type: new.destination_type,
            display_name: new.display_name,
            configuration: ingest(new.configuration)?,
            secret_ref: new.secret_ref,
            is_enabled: new.is_enabled,
            created_at: stamp.at,
            created_by: stamp.actor.clone(),
            updated_at: stamp.at,
            revision: Revision::FIRST,
        };
        check_configuration(&next)?;
        let next = Self(next);
        let fact = next.fact(FactKind::DestinationCreated, next.detail(), stamp);
        Ok(Change::create(next, fact))
    }

    /// Applies the changed fields; `None` if nothing changes.
    ///
    /// # Errors
    /// The errors of [`Self::create`].
    pub fn apply_patch(
        &self,
        patch: DestinationPatch,
        stamp: &Stamp,
    ) -> Result<Option<Change<Self>>, DestinationRefusal> {
        let mut next = self.0.clone();
        let is_redirected = patch.configuration.is_some() || patch.secret_ref.is_some();
        if let Some(name) = patch.display_name {
            check_name(&name)?;
            next.display_name = name;
        }
        if let Some(configuration) = patch.configuration {
            next.configuration = ingest(configuration)?;
        }
        if let Some(reference) = patch.secret_ref {
            check_secret_ref(reference.as_deref())?;
            next.secret_ref = reference;
        }
        // A destination whose stored configuration violates newer rules can still be renamed and turned off.
        if is_redirected {
            check_configuration(&next)?;
        }
        next.is_enabled = patch.is_enabled.unwrap_or(next.is_enabled);
        if next == self.0 {
            return Ok(None);
        }
        (next.updated_at, next.revision) = (stamp.at, self.revision.next());
        let next = Self(next);
        let fact = next.fact(FactKind::DestinationChanged, next.detail(), stamp);
        Ok(Some(Change::replace(next, self.revision, fact)))
    }

    /// Builds the fact that the destination was deleted. The fact contains only the identifier.
    #[must_use]
    pub fn deletion_fact(&self, stamp: &Stamp) -> Fact {
        self.fact(FactKind::DestinationDeleted, json!({}), stamp)
    }

    /// Builds the fact that a test message was sent to the destination. The fact contains the outcome as a code.
    #[must_use]
    pub fn test_fact(&self, outcome: Option<DeliveryError>, stamp: &Stamp) -> Fact {
        let code = outcome.map_or("accepted", DeliveryError::as_str);
        let subject = FactSubject { kind: "notification_destination", id: self.destination_id.uuid() };
        let detail = json!({ "outcome": code });
        Fact::new(FactKind::DestinationTested, subject, self.scope.workspace(), stamp, detail)
    }

    /// The detail of facts about the destination: the names of configuration keys and whether a secret exists, but no
    /// values.
    fn detail(&self) -> Value {
        let keys: Vec<&str> = self.configuration.keys().map(String::as_str).collect();
        json!({
            "scope_kind": self.scope.kind(),
            "destination_type": self.destination_type.as_str(),
            "keys": keys,
            "has_secret_ref": self.secret_ref.is_some(),
            "is_enabled": self.is_enabled,
        })
    }

    fn fact(&self, kind: FactKind, detail: Value, stamp: &Stamp) -> Fact {
        let subject = FactSubject { kind: "notification_destination", id: self.destination_id.uuid() };
        let fact = Fact::new(kind, subject, self.scope.workspace(), stamp, detail);
        fact.with_notification_categories([NotificationCategory::PolicyChanges])
    }
}

#[cfg(test)]
mod tests {
    use super::configuration_redaction::REDACTED;
    use super::*;
    use uuid::Uuid;

    const SECRET: &str = "hunter2";

    fn stamp() -> Stamp {
        Stamp {
            fact_id: Uuid::from_u128(1).into(),
            at: Timestamp::parse("2026-11-27T07:00:00Z").unwrap(),
            actor: ActorRef::parse("user:ada").unwrap(),
            request_id: Uuid::from_u128(2).into(),
        }
    }

    fn new(configuration: Value) -> NewDestination {
        let Value::Object(configuration) = configuration else { unreachable!() };
        NewDestination {
            destination_id: Uuid::from_u128(3).into(),
            scope: DestinationScope::Workspace(Uuid::from_u128(4).into()),
            destination_type: Channel::Webhook,
            display_name: "Incidents".to_owned(),
            configuration,
            secret_ref: Some("env:WEBHOOK_KEY".to_owned()),
            is_enabled: true,
        }
    }

    #[test]
    fn destination_and_its_facts_hold_no_secret() {
        let sent = json!({ "url": "https://u:hunter2@h.example/?token=hunter2", "headers": { "X-Api-Key": SECRET } });
        let change = Destination::create(new(sent), &stamp()).unwrap();
        assert_eq!(change.next.configuration["headers"], REDACTED);
        assert!(!format!("{change:?}").contains(SECRET));
        assert_eq!(change.fact.detail["keys"], json!(["headers", "url"]));
        assert_eq!(change.fact.detail["has_secret_ref"], true);
        assert!(!String::from_utf8(change.fact.canonical_bytes(Uuid::nil().into())).unwrap().contains("WEBHOOK_KEY"));
        let deleted = change.next.deletion_fact(&stamp());
        assert_eq!((deleted.subject.id, deleted.detail.len()), (Uuid::from_u128(3), 0));
    }

    #[test]
    fn refuses_invalid_fields_without_their_values() {
        let refusal_of = |change: fn(&mut NewDestination)| {
            let mut destination = new(json!({ "url": "https://h.example" }));
            change(&mut destination);
            Destination::create(destination, &stamp()).unwrap_err()
        };
        assert_eq!(refusal_of(|new| new.destination_type = Channel::Portal), DestinationRefusal::Type);
        assert_eq!(refusal_of(|new| new.display_name = "a\nb".to_owned()), DestinationRefusal::Name);
        assert_eq!(refusal_of(|new| new.secret_ref = Some("hunter2".to_owned())), DestinationRefusal::SecretRef);
        assert_eq!(
            refusal_of(|new| new.secret_ref = Some("file:../acme/key".to_owned())),
            DestinationRefusal::SecretRef
        );
        let oversize =
            |new: &mut NewDestination| drop(new.configuration.insert("a".to_owned(), json!("x".repeat(9_000))));
        assert_eq!(refusal_of(oversize), DestinationRefusal::ConfigurationSize);
        for key in ["", "1a", "a b", "https://u:p@h", "a/b", "ä", &"k".repeat(65)] {
            let refusal = Destination::create(new(json!({ "a": [{ key: 1 }] })), &stamp()).unwrap_err();
            assert_eq!(refusal, DestinationRefusal::Key, "{key}");
        }
    }

    #[test]
    fn requires_address_and_known_format_by_type() {
        let create = |kind: Channel, configuration: Value, secret_ref: Option<&str>| {
            let mut destination = new(configuration);
            (destination.destination_type, destination.secret_ref) = (kind, secret_ref.map(str::to_owned));
            Destination::create(destination, &stamp()).map(drop)
        };
        let (url, key) = (json!({ "url": "https://h.example" }), Some("env:KEY"));
        for (kind, configuration, secret_ref, expected) in [
            (Channel::Webhook, url.clone(), None, Ok(())),
            (Channel::Webhook, json!({}), key, Err(DestinationRefusal::NoUrl)),
            (Channel::Webhook, json!({ "url": "" }), key, Err(DestinationRefusal::NoUrl)),
            (Channel::Webhook, json!({ "url": 7 }), key, Err(DestinationRefusal::NoUrl)),
            (Channel::Webhook, json!({ "url": "https://u:p@h.example" }), None, Ok(())),
            (Channel::Paging, url.clone(), key, Ok(())),
            (Channel::Paging, json!({ "address": "a@b.example" }), key, Err(DestinationRefusal::NoUrl)),
            (Channel::Email, json!({ "address": "a@b.example" }), None, Ok(())),
            (Channel::Email, url.clone(), None, Err(DestinationRefusal::NoMailbox)),
            (Channel::ChatA, json!({}), key, Ok(())),
            (Channel::ChatB, url.clone(), None, Ok(())),
            (Channel::ChatC, json!({}), None, Err(DestinationRefusal::NoUrl)),
            (Channel::ChatA, json!({ "format": "teams" }), key, Ok(())),
            (Channel::ChatA, json!({ "format": "irc" }), key, Err(DestinationRefusal::Format)),
            (Channel::ChatA, json!({ "format": null }), key, Err(DestinationRefusal::Format)),
        ] {
            assert_eq!(create(kind, configuration.clone(), secret_ref), expected, "{kind:?} {configuration}");
        }
        let created = Destination::create(new(url), &stamp()).unwrap().next.clone();
        let patch = |configuration: Value| {
            let Value::Object(configuration) = configuration else { unreachable!() };
            DestinationPatch { configuration: Some(configuration), ..DestinationPatch::default() }
        };
        assert_eq!(created.apply_patch(patch(json!({})), &stamp()).unwrap_err(), DestinationRefusal::NoUrl);
    }

    /// Every address can be stored, because deliveries check it.
    #[test]
    fn accepts_every_address() {
        for address in ["http://127.1", "http://[::1]/", "gopher://x", "not an address", "https://h.example:22"] {
            assert!(Destination::create(new(json!({ "url": address })), &stamp()).is_ok(), "{address}");
        }
    }

    #[test]
    fn amends_named_fields_and_increments_the_revision() {
        let created = Destination::create(new(json!({ "url": "https://h.example" })), &stamp()).unwrap();
        let first = &created.next;
        assert!(first.apply_patch(DestinationPatch::default(), &stamp()).unwrap().is_none());
        let patch = DestinationPatch { is_enabled: Some(false), secret_ref: Some(None), ..DestinationPatch::default() };
        let change = first.apply_patch(patch, &stamp()).unwrap().unwrap();
        assert_eq!((change.expected_revision, change.next.revision), (Some(Revision::FIRST), Revision::FIRST.next()));
        assert_eq!((change.next.secret_ref.as_ref(), change.next.is_enabled), (None, false));
        assert_eq!(change.next.configuration, first.configuration);
        let unchanged_name =
            DestinationPatch { display_name: Some("Incidents".to_owned()), ..DestinationPatch::default() };
        assert!(first.apply_patch(unchanged_name, &stamp()).unwrap().is_none());
    }
}
