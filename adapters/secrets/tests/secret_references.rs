//! Threat T39 of docs/security.md: each secret reference is resolved only within the tenant's own namespace.

#![expect(clippy::unwrap_used, reason = "a test fails at the first error, helpers included")]

use fairway_domain::{
    secret::{Secret, SecretError, SecretReader as _, SecretRef, ServerSecretRef},
    slug::Slug,
};
use fairway_egress::{Guard, ServerMode};
use fairway_secrets::{SecretSources, Vault, VaultSettingsError};
use fairway_testkit::{ScriptedEndpoint, ScriptedResponse};
use serde_json::json;
use std::{ffi::OsString, fs, os::unix::fs::symlink, path::Path};
use tempfile::TempDir;

fn slug(text: &str) -> Slug {
    Slug::parse(text).unwrap()
}

async fn read(sources: &SecretSources, tenant: &str, reference: &str) -> Result<String, SecretError> {
    let result = sources.read(&slug(tenant), &SecretRef::parse(reference).unwrap()).await;
    result.map(|secret| secret.expose().to_owned())
}

async fn read_server_secret(sources: &SecretSources, reference: &str) -> Result<String, SecretError> {
    let result = sources.read_server_secret(&ServerSecretRef::parse(reference).unwrap()).await;
    result.map(|secret| secret.expose().to_owned())
}

fn variables(name: &str) -> Option<OsString> {
    let value = match name {
        "FAIRWAY_SECRET_ACME__KEY" => "of acme",
        "FAIRWAY_SECRET_ACME_EU__KEY" => "of acme-eu",
        "FAIRWAY_SECRET_ACME__EU_KEY" => "another of acme",
        "FAIRWAY_SECRET_ACME__EMPTY" => "",
        "OPENAI_API_KEY" => "of the server",
        _ => return None,
    };
    Some(value.into())
}

#[tokio::test]
async fn reads_only_variables_of_the_tenant() {
    let sources = SecretSources::new(None, None).with_variable_lookup(variables);
    for (tenant, reference, value) in [
        ("acme", "env:KEY", Ok("of acme")),
        ("acme-eu", "env:KEY", Ok("of acme-eu")),
        ("acme", "env:EU_KEY", Ok("another of acme")),
        ("other", "env:KEY", Err(SecretError::Missing)),
        ("acme", "env:OPENAI_API_KEY", Err(SecretError::Missing)),
        ("acme", "env:EMPTY", Err(SecretError::Malformed)),
    ] {
        assert_eq!(read(&sources, tenant, reference).await.as_deref(), value.as_ref().copied(), "{tenant} {reference}");
    }
    assert_eq!(read_server_secret(&sources, "env:OPENAI_API_KEY").await.as_deref(), Ok("of the server"));
    assert_eq!(read_server_secret(&sources, "env:NOBODY").await, Err(SecretError::Missing));
}

/// A folder with the secrets of two tenants.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (tenant, value) in [("acme", "of acme\n"), ("other", "of other\r\n")] {
        fs::create_dir(folder.path().join(tenant)).unwrap();
        fs::write(folder.path().join(tenant).join("key"), value).unwrap();
    }
    folder
}

fn sources_in(folder: &Path) -> SecretSources {
    SecretSources::new(Some(folder.to_owned()), None)
}

#[tokio::test]
async fn reads_files_in_the_folder_of_the_tenant() {
    let folder = folder();
    let sources = sources_in(folder.path());
    assert_eq!(read(&sources, "acme", "file:key").await.as_deref(), Ok("of acme"));
    assert_eq!(read(&sources, "other", "file:key").await.as_deref(), Ok("of other"));
    assert_eq!(read(&sources, "acme", "file:nothing").await, Err(SecretError::Missing));
    assert_eq!(read(&sources, "nobody", "file:key").await, Err(SecretError::Missing));
    assert_eq!(read(&SecretSources::new(None, None), "acme", "file:key").await, Err(SecretError::NotConfigured));
    let path = folder.path().join("other/key");
    assert_eq!(read_server_secret(&sources, &format!("file:{}", path.display())).await.as_deref(), Ok("of other"));
}

#[tokio::test]
async fn refuses_links_out_of_the_folder_of_the_tenant() {
    let folder = folder();
    let acme = folder.path().join("acme");
    // Links as container orchestrators mount secrets: a link that points to another link in the same folder.
    fs::create_dir(acme.join("..2026")).unwrap();
    fs::write(acme.join("..2026/mounted"), "mounted").unwrap();
    symlink("..2026", acme.join("..data")).unwrap();
    symlink("..data/mounted", acme.join("mounted")).unwrap();
    symlink("../other/key", acme.join("foreign")).unwrap();
    symlink("/etc/hostname", acme.join("outside")).unwrap();
    symlink(folder.path().join("other"), folder.path().join("linked")).unwrap();
    // The folder of another tenant. Its name starts with this tenant's name.
    fs::create_dir(folder.path().join("acme-eu")).unwrap();
    fs::write(folder.path().join("acme-eu/key"), "of acme-eu").unwrap();
    symlink("../acme-eu/key", acme.join("neighbour")).unwrap();
    let sources = sources_in(folder.path());
    assert_eq!(read(&sources, "acme", "file:mounted").await.as_deref(), Ok("mounted"));
    for name in ["foreign", "outside", "neighbour"] {
        assert_eq!(read(&sources, "acme", &format!("file:{name}")).await, Err(SecretError::OtherTenant), "{name}");
    }
    assert_eq!(read(&sources, "linked", "file:key").await, Err(SecretError::OtherTenant));
}

#[tokio::test]
async fn refuses_empty_binary_and_oversized_secrets() {
    let folder = folder();
    let acme = folder.path().join("acme");
    fs::write(acme.join("empty"), "\n").unwrap();
    fs::write(acme.join("bytes"), [0xff, 0xfe]).unwrap();
    fs::write(acme.join("long"), vec![b'x'; 64 * 1024 + 1]).unwrap();
    fs::write(acme.join("longest"), vec![b'x'; 64 * 1024]).unwrap();
    fs::create_dir(acme.join("folder")).unwrap();
    symlink("/dev/zero", folder.path().join("device")).unwrap();
    let sources = sources_in(folder.path());
    for name in ["empty", "bytes", "long", "folder"] {
        assert_eq!(read(&sources, "acme", &format!("file:{name}")).await, Err(SecretError::Malformed), "{name}");
    }
    assert_eq!(read(&sources, "acme", "file:longest").await.map(|value| value.len()), Ok(64 * 1024));
    let device = folder.path().join("device");
    assert_eq!(read_server_secret(&sources, &format!("file:{}", device.display())).await, Err(SecretError::Malformed));
}

#[tokio::test]
async fn reads_the_vault_below_the_path_of_the_tenant() {
    let endpoint = ScriptedEndpoint::start().await;
    let entry = json!({ "data": { "data": { "key": "of acme", "number": 1 }, "metadata": { "version": 1 } } });
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    let vault = Vault::new(&guard, &endpoint.url(""), &Secret::new("s.token".to_owned())).unwrap();
    let sources = SecretSources::new(None, Some(vault));
    endpoint.respond_with(ScriptedResponse::json(&entry));
    assert_eq!(read(&sources, "acme", "vault:team/openai#key").await.as_deref(), Ok("of acme"));
    assert_eq!(read_server_secret(&sources, "vault:server/openai#key").await.as_deref(), Ok("of acme"));
    assert_eq!(read(&sources, "acme", "vault:team/openai#other").await, Err(SecretError::Missing));
    assert_eq!(read(&sources, "acme", "vault:team/openai#number").await, Err(SecretError::Malformed));
    let requests = endpoint.requests();
    let paths: Vec<&str> = requests.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths[..2], ["/v1/secret/data/acme/team/openai", "/v1/secret/data/server/openai"]);
    assert_eq!(requests[0].header("x-vault-token"), Some("s.token"));
    for (response, error) in [
        (ScriptedResponse::status(404, "{\"errors\":[]}"), SecretError::Missing),
        (ScriptedResponse::status(403, "{\"errors\":[\"permission denied\"]}"), SecretError::Unavailable),
        (ScriptedResponse::status(503, "sealed"), SecretError::Unavailable),
        (ScriptedResponse::status(200, "<html>"), SecretError::Malformed),
        (ScriptedResponse::json(&json!({ "data": { "data": null } })), SecretError::Missing),
        (ScriptedResponse::redirect("http://169.254.169.254/"), SecretError::Unavailable),
        (ScriptedResponse::reset(), SecretError::Unavailable),
    ] {
        endpoint.respond_with(response);
        assert_eq!(read(&sources, "acme", "vault:a#key").await, Err(error), "{error:?}");
    }
    assert_eq!(read(&SecretSources::new(None, None), "acme", "vault:a#b").await, Err(SecretError::NotConfigured));
}

#[test]
fn refuses_invalid_vault_addresses_and_tokens() {
    let guard = Guard::new(ServerMode::Remote, Vec::new());
    let token = |text: &str| Secret::new(text.to_owned());
    assert_eq!(Vault::new(&guard, "vault", &token("s.t")).err(), Some(VaultSettingsError::Address));
    assert_eq!(Vault::new(&guard, "file:///x", &token("s.t")).err(), Some(VaultSettingsError::Address));
    assert_eq!(Vault::new(&guard, "https://vault:8200", &token("s\nt")).err(), Some(VaultSettingsError::Token));
    let vault = Vault::new(&guard, "https://vault:8200", &token("s.token")).unwrap();
    assert!(!format!("{vault:?}").contains("token"));
}
