//! Who this agent is to others, and how it knows them: mutual TLS with names in the certificates.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_rustls::rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version,
};

use crate::{
    config::Identity,
    tls::{Wrong, certificates, read, wrong},
};

/// How long what was read stays in use. Certificates are replaced weeks before they end.
const FRESH: Duration = Duration::from_secs(30);

/// Both sides of TLS, from the same three files.
#[derive(Debug)]
pub(crate) struct Tls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// Reads the files anew from time to time, so that a new certificate needs no restart.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Option<Read>>);

#[derive(Debug)]
struct Read {
    at: Instant,
    files: Identity,
    name: String,
    tls: Result<Arc<Tls>, String>,
}

impl Identities {
    /// What is in force for these files, or why there is nothing.
    pub(crate) fn current(&self, files: &Identity, node: &str) -> Result<Arc<Tls>, String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = kept.as_ref()
            && read.at.elapsed() < FRESH
            && read.files == *files
            && read.name == node
        {
            return read.tls.clone();
        }
        let built =
            build(files, node).map(Arc::new).map_err(|wrong| format!("peers.{}: {}", wrong.key, wrong.what));
        // A file that is being replaced is half written for a moment: what was good stays.
        let tls = match (built, kept.take()) {
            (Err(why), Some(Read { tls: Ok(before), files: same, name, .. }))
                if same == *files && name == node =>
            {
                tracing::error!(
                    error = why,
                    "this agent's certificate can't be read, so the one before stays"
                );
                Ok(before)
            }
            (built, _) => built,
        };
        *kept =
            Some(Read { at: Instant::now(), files: files.clone(), name: node.to_string(), tls: tls.clone() });
        tls
    }
}

fn build(files: &Identity, node: &str) -> Result<Tls, Wrong> {
    let chain = certificates("certificate_file", &files.certificate)?;
    let path = files.certificate.display();
    if !chain.first().is_some_and(|own| is_of(own, node)) {
        return Err(wrong(
            "certificate_file",
            format!("{path}: it is not for {node:?}, the name of this node"),
        ));
    }
    let key = || {
        PrivateKeyDer::from_pem_slice(&read("key_file", &files.key)?)
            .map_err(|error| wrong("key_file", format!("{}: {error}", files.key.display())))
    };
    let ca = files.authority.display();
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", &files.authority)? {
        roots.add(certificate).map_err(|error| wrong("ca_file", format!("{ca}: {error}")))?;
    }
    let roots = Arc::new(roots);
    let provider = Arc::new(ring::default_provider());
    let fits = |error| wrong("key_file", format!("{} with {path}: {error}", files.key.display()));
    let version = |error| wrong("certificate_file", format!("{path}: {error}"));
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&version::TLS13])
        .map_err(version)?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain.clone(), key()?)
        .map_err(fits)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| wrong("ca_file", format!("{ca}: {error}")))?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&version::TLS13])
        .map_err(version)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key()?)
        .map_err(fits)?;
    Ok(Tls { client: Arc::new(client), server: Arc::new(server) })
}

/// Whether a certificate bears a node's name.
pub(crate) fn is_of(certificate: &CertificateDer<'_>, node: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(node))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}
