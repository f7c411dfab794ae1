//! Sends e-mails over SMTP, with a text and an HTML part.

use crate::{RESPONSE_REST_TIMEOUT, TIMEOUT, chat::text_of, http_delivery::failure};
use fairway_domain::{
    id::DeliveryId,
    notification::{
        delivery::DeliveryError,
        message::{NotificationMessage, SendFailure},
    },
    secret::Secret,
};
use fairway_egress::Guard;
use lettre::{
    Address, Message as Mail,
    message::{Mailbox, MultiPart, SinglePart},
    transport::smtp::{
        Error,
        authentication::{Credentials, Mechanism},
        client::{AsyncSmtpConnection, TlsParameters},
        extension::ClientId,
    },
};
use percent_encoding::percent_decode_str;
use std::{fmt, net::IpAddr};

/// The port of message submission (RFC 6409).
const SUBMISSION_PORT: u16 = 587;
/// The port of message submission within TLS (RFC 8314).
const SUBMISSIONS_PORT: u16 = 465;

/// How the connection to the mail server is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MailEncryption {
    /// TLS from the first byte.
    Implicit,
    /// STARTTLS. If the server does not offer it, no message is sent.
    StartTls,
    /// No encryption, for a server on the loopback interface.
    None,
}

/// The operator's mail server.
pub struct MailServer {
    /// Scheme, host and port.
    address: String,
    host: String,
    encryption: MailEncryption,
    credentials: Option<(String, Secret)>,
    sender: Mailbox,
    guard: Guard,
}

impl fmt::Debug for MailServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MailServer")
            .field("host", &self.host)
            .field("encryption", &self.encryption)
            .finish_non_exhaustive()
    }
}

/// Reason why the settings of the mail server are invalid. No variant contains a setting, which may include a
/// password.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MailServerRefusal {
    /// The address is invalid.
    #[error("must be an address such as smtps://name:password@mail.example:465 or smtp://mail.example:587")]
    Address,
    /// The sender's address is invalid.
    #[error("must be an e-mail address such as fairway@example.com")]
    From,
}

impl MailServer {
    /// Creates a mail server from its URL and the sender's address. `smtps` encrypts the whole connection. `smtp`
    /// uses STARTTLS, or no encryption if the server's address is a loopback address.
    ///
    /// # Errors
    /// When the URL or the sender's address is invalid.
    pub fn parse(guard: &Guard, url: &str, sender: &str) -> Result<Self, MailServerRefusal> {
        let url = fairway_egress::Url::parse(url).map_err(|_| MailServerRefusal::Address)?;
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(MailServerRefusal::Address)?.to_owned();
        let (encryption, default_port) = match url.scheme() {
            "smtps" => (MailEncryption::Implicit, SUBMISSIONS_PORT),
            "smtp" if is_loopback(&host) => (MailEncryption::None, SUBMISSION_PORT),
            "smtp" => (MailEncryption::StartTls, SUBMISSION_PORT),
            _ => return Err(MailServerRefusal::Address),
        };
        let decode = |text: &str| {
            let decoded = percent_decode_str(text).decode_utf8().map_err(|_| MailServerRefusal::Address)?;
            Ok::<_, MailServerRefusal>(decoded.into_owned())
        };
        let credentials = match (url.username(), url.password()) {
            ("", None) => None,
            (name, password) => Some((decode(name)?, Secret::new(decode(password.unwrap_or_default())?))),
        };
        let sender = sender.parse().map_err(|_| MailServerRefusal::From)?;
        let port = url.port().unwrap_or(default_port);
        let address = format!("{}://{host}:{port}", url.scheme());
        let configured_url = fairway_egress::Url::parse(&address).map_err(|_| MailServerRefusal::Address)?;
        // The operator configured the server, so this copy of the guard allows its exact address.
        let guard = guard.clone().with_allowed_origin(&configured_url);
        Ok(Self { address, host, encryption, credentials, sender, guard })
    }

    /// Sends a message to an e-mail address, and returns the status of the server's response.
    pub(crate) async fn send(&self, to: &str, message: &NotificationMessage) -> Result<Option<u16>, SendFailure> {
        let to: Address = to.parse().map_err(|_| SendFailure::without_response(DeliveryError::NoAddress))?;
        let mail = self.mail(to, message)?;
        let timed_out = SendFailure::without_response(DeliveryError::TimedOut);
        let send_mail = async {
            let mut connection = self.connect(message.delivery_id).await?;
            let result = connection.send(mail.envelope(), &mail.formatted()).await;
            Ok((connection, result.map_err(|error| smtp_failure(message.delivery_id, &error))))
        };
        let (mut connection, result) = tokio::time::timeout(TIMEOUT, send_mail).await.map_err(|_| timed_out)??;
        // The server has answered, so a failure to close the connection does not change the outcome.
        let _ = tokio::time::timeout(RESPONSE_REST_TIMEOUT, connection.quit()).await;
        let response = result?;
        Ok(Some(response.code().into()))
    }

    /// Builds a mail with a text and an HTML part. Its message identifier contains the delivery's identifier, so
    /// that mail programs recognize repeated attempts as duplicates.
    fn mail(&self, to: Address, message: &NotificationMessage) -> Result<Mail, SendFailure> {
        let (text, html) = (text(message), html(message));
        let id = format!("<{}@{}>", message.delivery_id, self.sender.email.domain());
        let mail = Mail::builder()
            .from(self.sender.clone())
            .to(Mailbox::new(None, to))
            .subject(message.title.clone())
            .message_id(Some(id))
            .date(std::time::SystemTime::from(message.created_at.to_datetime()))
            .multipart(
                // A fixed boundary makes the bytes of repeated attempts equal.
                MultiPart::alternative()
                    .boundary(format!("fairway-{}", message.delivery_id))
                    .singlepart(SinglePart::plain(text))
                    .singlepart(SinglePart::html(html)),
            );
        mail.map_err(|_| SendFailure::without_response(DeliveryError::NoAddress))
    }

    async fn connect(&self, delivery: DeliveryId) -> Result<AsyncSmtpConnection, SendFailure> {
        let addresses = self.guard.checked_addresses(&self.address, SUBMISSION_PORT).await;
        let addresses = addresses.map_err(|error| failure(delivery, error))?;
        let client_id = ClientId::Domain(self.sender.email.domain().to_owned());
        let to_failure = |error: Error| smtp_failure(delivery, &error);
        let tls = || TlsParameters::new_rustls(self.host.clone()).map_err(to_failure);
        let implicit = if self.encryption == MailEncryption::Implicit { Some(tls()?) } else { None };
        let result =
            AsyncSmtpConnection::connect_tokio1(addresses.as_slice(), Some(TIMEOUT), &client_id, implicit, None).await;
        let mut connection = result.map_err(to_failure)?;
        if self.encryption == MailEncryption::StartTls {
            connection.starttls(tls()?, &client_id).await.map_err(to_failure)?;
        }
        if let Some((name, password)) = &self.credentials {
            let credentials = Credentials::new(name.clone(), password.expose().to_owned());
            connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(to_failure)?;
        }
        Ok(connection)
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Converts a failure. The log contains the status only, because the server's text may repeat the message.
fn smtp_failure(delivery: DeliveryId, error: &Error) -> SendFailure {
    let status = error.status().map(u16::from);
    tracing::info!(
        delivery_id = %delivery,
        status,
        "failed to send a message to the mail server; failing this attempt to send"
    );
    let error = if error.is_timeout() {
        DeliveryError::TimedOut
    } else if error.is_permanent() {
        DeliveryError::Rejected
    } else if error.is_transient() {
        DeliveryError::ReceiverFailed
    } else {
        DeliveryError::ConnectionFailed
    };
    SendFailure { error, status, retry_after: None }
}

fn text(message: &NotificationMessage) -> String {
    let link = message.link.as_deref().map_or_else(String::new, |link| format!("{link}\n\n"));
    format!("{}\n\n{}\n\n{link}{}\n", message.title, text_of(message), footer(message))
}

fn html(message: &NotificationMessage) -> String {
    let paragraphs = [message.title.as_str(), &text_of(message), &footer(message)]
        .map(|text| format!("<p>{}</p>", escaped_html(text).replace('\n', "<br>")));
    let link = message.link.as_deref().map(escaped_html);
    let link = link.map_or_else(String::new, |link| format!("<p><a href=\"{link}\">{link}</a></p>"));
    format!("<!doctype html><html><body>{}{link}</body></html>", paragraphs.concat())
}

fn footer(message: &NotificationMessage) -> String {
    format!(
        "{}, {}, event {} of {}",
        message.category.as_str(),
        message.severity.as_str(),
        message.event_id,
        message.created_at
    )
}

fn escaped_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use fairway_egress::ServerMode;

    fn parse(url: &str) -> Result<MailServer, MailServerRefusal> {
        MailServer::parse(&Guard::new(ServerMode::Remote, Vec::new()), url, "Fairway <fairway@example.com>")
    }

    #[test]
    fn urls_choose_port_encryption_and_credentials() {
        for (url, address, encryption) in [
            ("smtp://mail.example", "smtp://mail.example:587", MailEncryption::StartTls),
            ("smtps://mail.example", "smtps://mail.example:465", MailEncryption::Implicit),
            ("smtp://mail.example:25", "smtp://mail.example:25", MailEncryption::StartTls),
            ("smtp://127.0.0.1:1025", "smtp://127.0.0.1:1025", MailEncryption::None),
            ("smtp://[::1]:1025", "smtp://[::1]:1025", MailEncryption::None),
            ("smtp://127.0.0.1.evil.example", "smtp://127.0.0.1.evil.example:587", MailEncryption::StartTls),
        ] {
            let server = parse(url).unwrap();
            assert_eq!((server.address.as_str(), server.encryption), (address, encryption), "{url}");
        }
        let server = parse("smtps://ada%40example.com:p%3Aw@mail.example").unwrap();
        let (name, password) = server.credentials.as_ref().unwrap();
        assert_eq!((name.as_str(), password.expose()), ("ada@example.com", "p:w"));
        assert!(!format!("{server:?}").contains("p:w"));
        for url in ["http://mail.example", "mail.example", "smtp://", "smtp:mail.example"] {
            assert_eq!(parse(url).unwrap_err(), MailServerRefusal::Address, "{url}");
        }
    }
}
