//! Issuers whose TLS certificates come from a private certificate authority.

use crate::{
    issuer_server::{IssuerServer, Setup, config, key_set, ok},
    signing::TestKey,
};
use fairway_domain::access::identity::TokenRefusal;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::json;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap()
}

/// Starts an issuer with TLS that publishes these keys.
async fn serve(authority: &CertifiedIssuer<'static, KeyPair>, keys: String) -> SocketAddr {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, authority).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let issuer = format!("https://{address}");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the certificate aborts the handshake, so the server continues with the
            // next connection.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = [0; 4096];
            let Ok(length) = stream.read(&mut bytes).await else { continue };
            let is_discovery = bytes[..length].starts_with(b"GET /.well-known/openid-configuration ");
            let discovery = json!({"issuer": issuer, "jwks_uri": format!("{issuer}/keys")}).to_string();
            let _ = stream.write_all(ok(if is_discovery { &discovery } else { &keys }).as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test]
async fn trusts_the_configured_authority_and_no_other() {
    let key = TestKey::ec("ec");
    let (configured, other) = (authority(), authority());
    let issuer = format!("https://{}", serve(&configured, key_set(&[&key])).await);
    let folder = tempfile::tempdir().unwrap();
    for (name, pem, is_trusted) in [
        ("configured", Some(configured.pem()), true),
        ("both", Some(format!("{}{}", other.pem(), configured.pem())), true),
        ("other", Some(other.pem()), false),
        ("default", None, false),
    ] {
        let mut config = config(&issuer);
        if let Some(pem) = pem {
            let path = folder.path().join(name);
            std::fs::write(&path, pem).unwrap();
            config.ca_file = Some(path);
        }
        let setup = Setup::new(IssuerServer::start().await, vec![config]);
        let mut claims = setup.claims();
        claims["iss"] = json!(issuer);
        let result = setup.verify(&key.token(&claims)).await;
        if is_trusted {
            assert!(result.is_ok(), "{name}");
        } else {
            assert!(matches!(result, Err(TokenRefusal::Unavailable { .. })), "{name}");
        }
    }
}
