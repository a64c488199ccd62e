//! The opener's connection to a partner. A lease lives as long as it: whoever goes away without a
//! word takes the lease with it.

use std::{io, time::Duration};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Method, Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};
use tokio_util::sync::CancellationToken;

use super::{
    identity::Tls,
    message::{MESSAGE_BYTES, Refusal, plain},
};

/// How long TCP and TLS may take. Both need a few round trips inside a cluster.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Why a partner gave no answer that helps.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("no answer at {address}: {why}")]
    Away { address: String, why: String },
    #[error("who answers at {address} is not trusted: {why}")]
    Untrusted { address: String, why: String },
    #[error("{}", .0.detail)]
    Refused(Refusal),
    #[error("the answer is not understood: {0}; is it another version?")]
    Answer(String),
}

/// A connection over which one lease is asked for and used.
#[derive(Debug)]
pub(crate) struct Link {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Cancelled when the connection is gone.
    pub(crate) over: CancellationToken,
    address: String,
}

impl Link {
    /// Connects to `host`, whose certificate must be that of `node`.
    pub(crate) async fn connect(tls: &Tls, node: &str, host: &str, port: u16) -> Result<Link, LinkError> {
        let address = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let away = |why: String| LinkError::Away { address: address.clone(), why };
        let name = ServerName::try_from(node.to_string()).map_err(|_| LinkError::Untrusted {
            address: address.clone(),
            why: format!("{node:?} is no DNS name"),
        })?;
        let stream = timeout(CONNECT_WITHIN, TcpStream::connect((host, port)))
            .await
            .map_err(|_| away("it takes too long; is a firewall in the way?".into()))?
            .map_err(|error| away(error.to_string()))?;
        let _ = stream.set_nodelay(true);
        let stream = timeout(CONNECT_WITHIN, TlsConnector::from(tls.client.clone()).connect(name, stream))
            .await
            .map_err(|_| away("the TLS handshake takes too long".into()))?
            .map_err(|error| distrust(&address, &error))?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| away(error.to_string()))?;
        let over = CancellationToken::new();
        let gone = over.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to a partner broke");
            }
            gone.cancel();
        });
        Ok(Link { sender, over, address })
    }

    /// Sends a message and reads the answer.
    pub(crate) async fn ask<A: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        message: &impl Serialize,
        within: Duration,
    ) -> Result<A, LinkError> {
        let away = |why: String| LinkError::Away { address: self.address.clone(), why };
        let body = serde_json::to_vec(message).map_err(|error| LinkError::Answer(error.to_string()))?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "fabricpulse")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| LinkError::Answer(error.to_string()))?;
        let exchange = async {
            let response =
                self.sender.send_request(request).await.map_err(|error| (error.to_string(), error))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MESSAGE_BYTES).collect().await;
            Ok::<_, (String, hyper::Error)>((status, body.map(|body| body.to_bytes())))
        };
        let (status, body) = timeout(within, exchange)
            .await
            .map_err(|_| away(format!("silent for {} s", within.as_secs())))?
            // TLS 1.3 tells a client that its certificate is not liked only with the first answer.
            .map_err(|(why, error)| match alert(&error) {
                Some(alert) => LinkError::Untrusted { address: self.address.clone(), why: alert },
                None => away(why),
            })?;
        let body = body.map_err(|error| LinkError::Answer(error.to_string()))?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| LinkError::Answer(error.to_string()));
        }
        let mut refusal: Refusal = match serde_json::from_slice(&body) {
            Ok(refusal) => refusal,
            Err(_) if status == StatusCode::NOT_FOUND => {
                return Err(LinkError::Answer(format!("it knows no {path}")));
            }
            Err(_) => return Err(LinkError::Answer(format!("status {status}"))),
        };
        refusal.reason = plain(&refusal.reason);
        refusal.detail = plain(&refusal.detail);
        Err(LinkError::Refused(refusal))
    }
}

/// A handshake that failed: for want of trust, or of a connection.
fn distrust(address: &str, error: &io::Error) -> LinkError {
    let tls = error.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>());
    let (address, why) = (address.to_string(), error.to_string());
    if tls { LinkError::Untrusted { address, why } } else { LinkError::Away { address, why } }
}

/// The TLS alert that ended a connection.
fn alert(error: &hyper::Error) -> Option<String> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(cause) = source {
        let tls = cause.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
        if let Some(tls) = tls.and_then(|inner| inner.downcast_ref::<tokio_rustls::rustls::Error>()) {
            return Some(tls.to_string());
        }
        source = cause.source();
    }
    None
}
