//! TLS certificates are trusted if a public or system authority issued them for the requested name.

use crate::counting_listener::{ScriptedResolver, get};
use fairway_egress::{Allowance, EgressError, Guard, ResponseLimits, ServerMode};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::{env, fs, net::SocketAddr, process::Stdio, sync::Arc};
use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, net::TcpListener, process::Command};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// Environment variable with the port to which the child process sends its requests.
const PORT: &str = "FAIRWAY_TEST_EGRESS_TLS_PORT";

/// Sends a request to the listener at this port under a name.
async fn request(name: &str, port: &str) -> Result<Vec<u8>, EgressError> {
    let guard = Guard::new(ServerMode::Remote, vec![Allowance::parse("127.0.0.1").unwrap()])
        .with_resolver(ScriptedResolver::of(&[&["127.0.0.1"]]));
    let endpoint = guard.endpoint(&format!("https://{name}:{port}/"), ResponseLimits::default())?;
    Ok(endpoint.send(get()).await?.read_all().await?.to_vec())
}

/// Starts a listener with a certificate for `house.example`; returns its address and the authority in PEM form.
async fn listen() -> (SocketAddr, String) {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec!["house.example".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
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
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust the certificate disconnects.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut bytes = [0; 4096];
            if stream.read(&mut bytes).await.is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine").await;
                let _ = stream.shutdown().await;
            }
        }
    });
    (address, authority.pem())
}

/// A process loads its trusted authorities once, so the test starts itself as a child process with another authority.
#[tokio::test]
async fn trusts_a_system_authority_for_the_names_in_its_certificates() {
    if let Ok(port) = env::var(PORT) {
        assert_eq!(request("house.example", &port).await.unwrap(), b"fine");
        assert_eq!(request("other.example", &port).await, Err(EgressError::Tls));
        return;
    }
    let (address, authority) = listen().await;
    let port = address.port().to_string();
    assert_eq!(request("house.example", &port).await, Err(EgressError::Tls), "the authority is not trusted");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("authority.pem");
    fs::write(&file, authority).unwrap();
    let mut child = Command::new(env::current_exe().unwrap());
    let name = "certificate_trust::trusts_a_system_authority_for_the_names_in_its_certificates";
    child.args(["--exact", name]).stdout(Stdio::null()).env(PORT, port).env("SSL_CERT_FILE", file);
    assert!(child.status().await.unwrap().success());
}
