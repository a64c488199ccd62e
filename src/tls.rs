//! The server's side of TLS, from the files that the web configuration names.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_rustls::rustls::{
    self, CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
    client::danger::HandshakeSignatureValid,
    client::verify_server_name,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::{
        ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};

use crate::web_config::RawTls;

/// Go's names of the TLS 1.3 suites differ from ours by the prefix only.
const TLS13: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// What is wrong with a key of the section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) key: &'static str,
    pub(crate) what: String,
}

/// The server's configuration and the files that it came from.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) files: Vec<PathBuf>,
}

pub(crate) fn wrong(key: &'static str, what: impl Into<String>) -> Wrong {
    Wrong { key, what: what.into() }
}

/// Builds the server's configuration; none if the section is empty, which is plain HTTP. Relative paths are taken from `directory`.
pub(crate) fn server(section: &RawTls, directory: &Path) -> Result<Option<Built>, Wrong> {
    let named = |path: &Option<PathBuf>| {
        path.as_ref().filter(|path| !path.as_os_str().is_empty()).map(|path| directory.join(path))
    };
    let client_auth = section.client_auth_type.as_deref().unwrap_or_default();
    let (cert, key, ca) =
        (named(&section.cert_file), named(&section.key_file), named(&section.client_ca_file));
    if cert.is_none() && key.is_none() && ca.is_none() && client_auth.is_empty() {
        return Ok(None);
    }
    let cert = cert.ok_or_else(|| wrong("cert_file", "missing: TLS needs a certificate"))?;
    let key = key.ok_or_else(|| wrong("key_file", "missing: TLS needs the certificate's key"))?;
    let provider = Arc::new(CryptoProvider {
        cipher_suites: suites(section.cipher_suites.as_deref().unwrap_or_default())?,
        kx_groups: curves(section.curve_preferences.as_deref().unwrap_or_default())?,
        ..ring::default_provider()
    });
    let versions = versions(section.min_version.as_deref(), section.max_version.as_deref())?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|error| wrong("cipher_suites", format!("no suite for the versions asked for: {error}")))?;
    let sans = section.client_allowed_sans.as_deref().unwrap_or_default();
    let builder = match verifier(client_auth, ca.as_deref(), sans, &provider)? {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let chain = certificates("cert_file", &cert)?;
    let secret = PrivateKeyDer::from_pem_slice(&read("key_file", &key)?)
        .map_err(|error| wrong("key_file", format!("{}: {error}", key.display())))?;
    let mut server = builder
        .with_single_cert(chain, secret)
        .map_err(|error| wrong("key_file", format!("{} with {}: {error}", key.display(), cert.display())))?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let files = [Some(cert), Some(key), ca].into_iter().flatten().collect();
    Ok(Some(Built { server: Arc::new(server), files }))
}

pub(crate) fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, Wrong> {
    fs::read(path).map_err(|error| wrong(key, format!("{}: {error}", path.display())))
}

pub(crate) fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Wrong> {
    let pem = read(key, path)?;
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(key, format!("{}: {error}", path.display())))?;
    if chain.is_empty() {
        return Err(wrong(key, format!("{}: no certificate in it", path.display())));
    }
    Ok(chain)
}

fn suites(names: &[String]) -> Result<Vec<rustls::SupportedCipherSuite>, Wrong> {
    if names.is_empty() {
        return Ok(ring::default_provider().cipher_suites);
    }
    // As in Go, the list is about TLS 1.2; the suites of 1.3 can't be chosen.
    let mut chosen: Vec<_> =
        ring::ALL_CIPHER_SUITES.iter().copied().filter(|suite| suite.tls13().is_some()).collect();
    for name in names {
        // Go calls two suites by a short name too.
        let full = match name.as_str() {
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            other => other,
        };
        let suite = ring::ALL_CIPHER_SUITES.iter().find(|suite| suite.suite().as_str() == Some(full));
        match suite {
            Some(suite) => chosen.push(*suite),
            None if TLS13.contains(&full) => {}
            None => {
                let known: Vec<_> = ring::ALL_CIPHER_SUITES
                    .iter()
                    .filter(|suite| suite.tls13().is_none())
                    .filter_map(|suite| suite.suite().as_str())
                    .collect();
                return Err(wrong(
                    "cipher_suites",
                    format!("{name:?} is unknown or no longer safe; known are {}", known.join(", ")),
                ));
            }
        }
    }
    Ok(chosen)
}

fn curves(names: &[String]) -> Result<Vec<&'static dyn rustls::crypto::SupportedKxGroup>, Wrong> {
    if names.is_empty() {
        return Ok(ring::default_provider().kx_groups);
    }
    names
        .iter()
        .map(|name| match name.as_str() {
            "X25519" => Ok(ring::kx_group::X25519),
            "CurveP256" => Ok(ring::kx_group::SECP256R1),
            "CurveP384" => Ok(ring::kx_group::SECP384R1),
            _ => Err(wrong(
                "curve_preferences",
                format!("{name:?} is not supported; known are X25519, CurveP256, CurveP384"),
            )),
        })
        .collect()
}

fn versions(min: Option<&str>, max: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, Wrong> {
    let number = |key, name: &str| match name {
        "TLS10" => Ok(10),
        "TLS11" => Ok(11),
        "TLS12" => Ok(12),
        "TLS13" => Ok(13),
        _ => Err(wrong(key, format!("{name:?} is unknown; known are TLS10, TLS11, TLS12, TLS13"))),
    };
    let min = min.map_or(Ok(12), |name| number("min_version", name))?;
    let max = max.map_or(Ok(13), |name| number("max_version", name))?;
    let versions: Vec<_> = [(12, &rustls::version::TLS12), (13, &rustls::version::TLS13)]
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect();
    if versions.is_empty() {
        return Err(wrong("max_version", "leaves no version: this server speaks TLS12 and TLS13"));
    }
    Ok(versions)
}

fn verifier(
    kind: &str,
    ca: Option<&Path>,
    sans: &[String],
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, Wrong> {
    let optional = match kind {
        "" | "NoClientCert" => {
            if ca.is_some() {
                return Err(wrong(
                    "client_auth_type",
                    "client_ca_file is given, but no client is asked for a certificate: say RequireAndVerifyClientCert",
                ));
            }
            if !sans.is_empty() {
                return Err(wrong(
                    "client_allowed_sans",
                    "no client is asked for a certificate: set client_auth_type to RequireAndVerifyClientCert",
                ));
            }
            return Ok(None);
        }
        "VerifyClientCertIfGiven" => true,
        "RequireAndVerifyClientCert" => false,
        "RequestClientCert" | "RequireClientCert" | "RequireAnyClientCert" => {
            return Err(wrong(
                "client_auth_type",
                format!("{kind} verifies nothing, so it protects nothing: say RequireAndVerifyClientCert"),
            ));
        }
        _ => {
            return Err(wrong(
                "client_auth_type",
                format!(
                    "{kind:?} is unknown; known are NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert"
                ),
            ));
        }
    };
    let ca = ca.ok_or_else(|| wrong("client_ca_file", format!("missing: {kind} needs to know who signs")))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client_ca_file", ca)? {
        roots
            .add(certificate)
            .map_err(|error| wrong("client_ca_file", format!("{}: {error}", ca.display())))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder = if optional { builder.allow_unauthenticated() } else { builder };
    let signed =
        builder.build().map_err(|error| wrong("client_ca_file", format!("{}: {error}", ca.display())))?;
    if sans.is_empty() {
        return Ok(Some(signed));
    }
    let names = sans
        .iter()
        .map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| {
                wrong("client_allowed_sans", format!("{name:?} is neither a DNS name nor an IP address"))
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Some(Arc::new(Named { signed, names })))
}

/// Takes a certificate that is signed by the authority and bears one of the names.
#[derive(Debug)]
struct Named {
    signed: Arc<dyn ClientCertVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ClientCertVerifier for Named {
    fn offer_client_auth(&self) -> bool {
        self.signed.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.signed.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if self.names.iter().any(|name| verify_server_name(&certificate, name).is_ok()) {
            Ok(verified)
        } else {
            Err(rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
