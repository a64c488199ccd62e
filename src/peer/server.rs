//! Where partners ask for leases: `/peer/v1`, over mutual TLS only.
//!
//! A lease belongs to the connection that it was asked for on, and ends with it: an opener that is
//! killed leaves nothing behind here.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls::pki_types::CertificateDer};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    grant,
    identity::is_of,
    lease::Lease,
    message::{LeaseRequest, MESSAGE_BYTES, Refusal, StageRequest},
};
use crate::agent::Agent;

/// Connections at the same time, of whomever: a stranger holds one until its handshake fails.
const MAX_CONNECTIONS: usize = 256;
/// Connections of partners at the same time. A node has a lease for each of its devices at most.
const MAX_PARTNERS: usize = 64;
/// How long a TLS handshake may take.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// How long a partner may keep a connection without a request: its leases end before by themselves.
const HEADER_WITHIN: Duration = Duration::from_secs(300);
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(5);
/// The pause after a failed accept, when file descriptors are used up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// Binds the addresses where partners ask, if this agent has an identity and somebody to talk to.
pub(crate) async fn bind(addresses: &[SocketAddr]) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for address in addresses {
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("can't listen on {address} for other agents; set peers.listen_address")
        })?;
        tracing::info!(addr = %listener.local_addr()?, "listening for other agents");
        listeners.push(listener);
    }
    Ok(listeners)
}

/// Serves partners until `stop`.
pub(crate) async fn serve(agent: Arc<Agent>, listeners: Vec<TcpListener>, stop: CancellationToken) {
    let tasks = TaskTracker::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let partners = Arc::new(Semaphore::new(MAX_PARTNERS));
    for listener in listeners {
        let (agent, stop, room, connections) = (agent.clone(), stop.clone(), room.clone(), tasks.clone());
        let partners = partners.clone();
        tasks.spawn(async move {
            loop {
                let Ok(permit) = room.clone().acquire_owned().await else { return };
                let stream = select! {
                    accepted = listener.accept() => accepted,
                    () = stop.cancelled() => return,
                };
                match stream {
                    Ok((stream, from)) => {
                        let (agent, stop, partners) = (agent.clone(), stop.clone(), partners.clone());
                        connections.spawn(async move {
                            let _permit = permit;
                            connection(agent, stream, from, &partners, stop).await;
                        });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a partner's connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }
    tasks.close();
    tasks.wait().await;
}

/// What a connection knows of who is at its other end.
struct Caller {
    agent: Arc<Agent>,
    certificate: CertificateDer<'static>,
    leases: Mutex<Vec<Arc<Lease>>>,
}

async fn connection(
    agent: Arc<Agent>,
    stream: TcpStream,
    from: SocketAddr,
    partners: &Semaphore,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let tls = match agent.peer_tls().await {
        Ok(tls) => tls,
        Err(outcome) => {
            tracing::debug!(%outcome, "a partner can't be answered");
            return;
        }
    };
    let handshake = timeout(HANDSHAKE_WITHIN, TlsAcceptor::from(tls.server.clone()).accept(stream));
    let stream = match handshake.await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%from, %error, "a partner's handshake failed");
            return;
        }
        Err(_) => return,
    };
    let Some(certificate) = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()) else {
        return;
    };
    let Ok(_partner) = partners.try_acquire() else { return };
    let certificate = certificate.clone().into_owned();
    let caller = Arc::new(Caller { agent: agent.clone(), certificate, leases: Mutex::default() });
    let service = service_fn(|request| {
        let caller = caller.clone();
        async move { Ok::<_, Infallible>(caller.answer(request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .max_buf_size(MESSAGE_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    select! {
        ended = served => if let Err(error) = ended {
            tracing::debug!(%from, %error, "a partner's connection ended early");
        },
        () = stop.cancelled() => {}
    }
    let left = std::mem::take(&mut *caller.leases());
    for lease in left {
        agent.leases().end(&lease, agent.core());
    }
}

impl Caller {
    async fn answer(self: &Arc<Caller>, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let id = path.strip_prefix("/peer/v1/leases/").map(str::parse::<u64>);
        let done = match (&head.method, path, id) {
            (&Method::POST, "/peer/v1/leases", _) => match read(body).await {
                Ok(request) => self.grant(request).await,
                Err(refusal) => Err(refusal),
            },
            (&Method::POST, _, Some(Ok(id))) => match read(body).await {
                Ok(request) => self.stage(id, &request).await,
                Err(refusal) => Err(refusal),
            },
            (&Method::DELETE, _, Some(Ok(id))) => self.close(id).await,
            _ => Err((StatusCode::NOT_FOUND, Refusal::new("unknown", "nothing is here", Duration::ZERO))),
        };
        done.unwrap_or_else(|(status, refusal)| refused(status, &refusal))
    }

    async fn grant(
        self: &Arc<Caller>,
        request: LeaseRequest,
    ) -> Result<Response<Full<Bytes>>, (StatusCode, Refusal)> {
        if !is_of(&self.certificate, &request.opener) {
            let what = format!("the certificate is not for {:?}", super::message::plain(&request.opener));
            return Err((StatusCode::FORBIDDEN, Refusal::new("untrusted", what, grant::LATER)));
        }
        let (lease, granted) =
            grant::grant(&self.agent, &request).map_err(|refusal| (StatusCode::CONFLICT, refusal))?;
        self.leases().push(lease.clone());
        let caller = self.clone();
        tokio::spawn(async move {
            lease.expired().await;
            caller.leases().retain(|kept| kept.id != lease.id);
            caller.agent.leases().end(&lease, caller.agent.core());
        });
        Ok(json(StatusCode::CREATED, &granted))
    }

    async fn stage(
        &self,
        id: u64,
        request: &StageRequest,
    ) -> Result<Response<Full<Bytes>>, (StatusCode, Refusal)> {
        let lease = self.lease(id)?;
        let lane = grant::lane(&self.agent, &lease, &request.probe);
        let lane = lane.map_err(|refusal| (StatusCode::CONFLICT, refusal))?;
        lease.stage(request, &lane).await.map_err(|refusal| (StatusCode::CONFLICT, refusal))?;
        Ok(json(StatusCode::OK, &serde_json::json!({})))
    }

    async fn close(&self, id: u64) -> Result<Response<Full<Bytes>>, (StatusCode, Refusal)> {
        let lease = self.lease(id)?;
        lease.close().await;
        self.leases().retain(|kept| kept.id != id);
        self.agent.leases().end(&lease, self.agent.core());
        Ok(json(StatusCode::OK, &serde_json::json!({})))
    }

    fn leases(&self) -> MutexGuard<'_, Vec<Arc<Lease>>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease that was asked for on this connection.
    fn lease(&self, id: u64) -> Result<Arc<Lease>, (StatusCode, Refusal)> {
        let leases = self.leases();
        let found = leases.iter().find(|lease| lease.id == id && !lease.over.is_cancelled());
        found
            .cloned()
            .ok_or_else(|| (StatusCode::CONFLICT, Refusal::new("over", "this lease is over", Duration::ZERO)))
    }
}

async fn read<T: DeserializeOwned>(body: Incoming) -> Result<T, (StatusCode, Refusal)> {
    let wrong = |what: String| (StatusCode::BAD_REQUEST, Refusal::new("not_understood", what, grant::LATER));
    let body = timeout(BODY_WITHIN, Limited::new(body, MESSAGE_BYTES).collect())
        .await
        .map_err(|_| wrong("the message did not arrive in time".to_string()))?
        .map_err(|error| wrong(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| wrong(format!("{error}; is the other agent of another version?")))
}

fn refused(status: StatusCode, refusal: &Refusal) -> Response<Full<Bytes>> {
    let mut response = json(status, refusal);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an hour at most")]
    let seconds = refusal.retry_after.clamp(1.0, 3600.0).ceil() as u64;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn json(status: StatusCode, value: &impl Serialize) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(serde_json::to_vec(value).unwrap_or_default())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
