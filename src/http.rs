//! The web server: several TCP addresses and a Unix socket, one handler.
//!
//! It must stay up and small beside jobs that own the node, whatever it is sent: every wait has an
//! end, every size and count a bound. It never starts work of its own; who may ask for what is
//! decided in [`auth`], and what is answered in [`route`].

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use hyper::{
    Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{HeaderValue, WWW_AUTHENTICATE},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{
    agent::Agent,
    config::Config,
    http::{
        auth::{Caller, Denied, Passwords, Peer},
        patient::Patient,
    },
    web_config::WebConfigFile,
};

mod api;
mod auth;
mod config;
mod evidence;
mod metrics;
mod page;
mod patient;
mod probe;
pub(crate) mod query;
mod route;
mod status;
pub(crate) mod style;
mod tree;

/// The body of every answer: they are small and made whole.
pub(crate) type Body = http_body_util::Full<Bytes>;

/// How long a connection may take to send a request's head, and how long it may idle between two:
/// longer than the usual scrape interval of a minute, so that Prometheus keeps its connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a TLS handshake may take. It has a few round trips, between continents 0.3 s each.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a caller may take to read the next bytes of an answer. A lossy line between continents
/// stalls for seconds; answers are up to some MB, and they stay in memory until they are read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// What a connection may make us buffer: a head with a long cookie is 8 kB.
const BUFFER_BYTES: usize = 64 * 1024;

/// Open connections on all addresses together. A node is scraped by a handful of servers; the
/// bound keeps idle connections from using up our file descriptors, of which systemd grants 1024.
const MAX_CONNECTIONS: usize = 256;

/// Connections over the Unix socket, counted apart: an operator must get through when TCP is full.
const MAX_LOCAL_CONNECTIONS: usize = 64;

/// How long requests under way may take to end when the agent stops. Runs are cancelled at the
/// same moment, so their answers come soon.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause after a failed accept, when file descriptors are used up, before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// When a caller for whom there is no room may come back.
const RETRY: Duration = Duration::from_secs(1);

/// Connections that the kernel holds for us while we are busy.
const BACKLOG: u32 = 128;

/// Owner and group may connect, nobody else: the mode decides who is trusted.
const SOCKET_MODE: u32 = 0o660;

/// The bound sockets, before anything is served.
#[derive(Debug)]
pub(crate) struct Servers {
    tcp: Vec<TcpListener>,
    unix: Option<(UnixListener, SocketFile)>,
    web_config: Option<WebConfigFile>,
    max_requests: usize,
    read_timeout: Duration,
}

/// The socket's path, which goes with us.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0) {
            debug!(path = %self.0.display(), %error, "socket could not be removed");
        }
    }
}

/// Binds every address of the configuration, and logs each.
pub(crate) async fn bind(config: &Config) -> anyhow::Result<Servers> {
    let web = &config.web;
    let web_config = web
        .config_file
        .as_deref()
        .map(|path| WebConfigFile::open(path).context("web configuration"))
        .transpose()?;
    let tls = match &web_config {
        Some(file) => file.current().await.tls.is_some(),
        None => false,
    };
    let mut tcp = Vec::new();
    for address in &web.listen {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            let advice = advice(*address, &error);
            anyhow::Error::new(error).context(format!("can't listen on {address}: {advice}"))
        })?;
        info!(addr = %listener.local_addr()?, tls, "listening");
        tcp.push(listener);
    }
    let unix = match bind_unix(&web.socket).await {
        Ok(listener) => {
            info!(path = %web.socket.display(), "listening for the command line");
            Some((listener, SocketFile(web.socket.clone())))
        }
        // Somebody who tries the program out as an ordinary user has no /run to write to; the
        // exporter is useful without the command line.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            warn!(path = %web.socket.display(), %error, "no socket for the command line: set web.socket to a path that can be written");
            None
        }
        Err(error) => {
            return Err(anyhow::Error::new(error).context(format!(
                "can't listen on {}: set web.socket to another path",
                web.socket.display()
            )));
        }
    };
    Ok(Servers { tcp, unix, web_config, max_requests: web.max_requests, read_timeout: READ_TIMEOUT })
}

/// What to do about an address that can't be had.
fn advice(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program has this port (`ss -ltnp sport = :{}` shows which); stop it or choose another with --web.listen-address",
            address.port()
        ),
        io::ErrorKind::AddrNotAvailable => {
            format!(
                "this node has no address {}; choose one of its own with --web.listen-address",
                address.ip()
            )
        }
        io::ErrorKind::PermissionDenied => {
            "this port needs privilege; choose one above 1023 with --web.listen-address".to_string()
        }
        _ => "choose another with --web.listen-address".to_string(),
    }
}

/// Binds the socket with its mode set before the first connection can be made.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if path.symlink_metadata().is_ok() {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another agent answers there"));
        }
        // What an agent left that was killed. Anything else than a socket is not ours to remove.
        use std::os::unix::fs::FileTypeExt as _;
        if !path.symlink_metadata()?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
        }
        std::fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    socket.listen(BACKLOG)
}

/// What every connection needs.
struct Shared<H> {
    handler: H,
    requests: Arc<Semaphore>,
    web_config: Option<WebConfigFile>,
    passwords: Passwords,
    read_timeout: Duration,
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Servers {
    /// The TCP addresses, with the ports that the kernel chose where 0 was asked for.
    #[cfg(test)]
    fn addresses(&self) -> Vec<SocketAddr> {
        self.tcp.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    }

    /// Serves the agent until `stop`, and then what is under way, within a bound.
    pub(crate) async fn serve(self, agent: Arc<Agent>, stop: CancellationToken) {
        let site = Arc::new(route::Site::new(agent));
        let handler = move |caller, request| {
            let site = site.clone();
            async move { route::answer(&site, &caller, request).await }
        };
        self.serve_with(handler, stop).await;
    }

    async fn serve_with<H, F>(self, handler: H, stop: CancellationToken)
    where
        H: Fn(Caller, Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            handler,
            requests: Arc::new(Semaphore::new(self.max_requests)),
            web_config: self.web_config,
            passwords: Passwords::default(),
            read_timeout: self.read_timeout,
            tracker: TaskTracker::new(),
            stop: stop.clone(),
        });
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let listeners = TaskTracker::new();
        for listener in self.tcp {
            listeners.spawn(shared.clone().accept_tcp(listener, connections.clone()));
        }
        // Held until the end, so that the path goes when the last answer is out.
        let mut socket_file = None;
        if let Some((listener, file)) = self.unix {
            socket_file = Some(file);
            listeners.spawn(shared.clone().accept_unix(listener));
        }
        stop.cancelled().await;
        listeners.close();
        listeners.wait().await;
        shared.tracker.close();
        if timeout(DRAIN_TIMEOUT, shared.tracker.wait()).await.is_err() {
            warn!(connections = shared.tracker.len(), "requests under way were cut off");
        }
        drop(socket_file);
    }
}

impl<H, F> Shared<H>
where
    H: Fn(Caller, Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    async fn accept_tcp(self: Arc<Self>, listener: TcpListener, connections: Arc<Semaphore>) {
        while let Some((stream, permit)) = self.next(&connections, || listener.accept()).await {
            let (stream, _) = stream;
            let shared = self.clone();
            self.tracker.spawn(async move {
                let _permit = permit;
                shared.connection_tcp(stream).await;
            });
        }
    }

    async fn accept_unix(self: Arc<Self>, listener: UnixListener) {
        let connections = Arc::new(Semaphore::new(MAX_LOCAL_CONNECTIONS));
        while let Some((stream, permit)) = self.next(&connections, || listener.accept()).await {
            let (stream, _) = stream;
            let uid = match stream.peer_cred() {
                Ok(credentials) => credentials.uid(),
                Err(error) => {
                    debug!(%error, "caller over the socket is gone");
                    continue;
                }
            };
            let shared = self.clone();
            self.tracker.spawn(async move {
                let _permit = permit;
                let stream = Patient::new(stream, shared.read_timeout);
                shared.requests(stream, Peer::Socket { uid }).await;
            });
        }
    }

    /// The next connection, once there is room for it; none when the agent stops.
    async fn next<S, A: Future<Output = io::Result<S>>>(
        &self,
        connections: &Arc<Semaphore>,
        accept: impl Fn() -> A,
    ) -> Option<(S, OwnedSemaphorePermit)> {
        let accepted = async {
            let permit = connections.clone().acquire_owned().await.ok()?;
            loop {
                match accept().await {
                    Ok(stream) => return Some((stream, permit)),
                    // The caller went away between the handshake and now.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) => {
                        warn!(%error, "connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            accepted = accepted => accepted,
            () = self.stop.cancelled() => None,
        }
    }

    async fn connection_tcp(self: Arc<Self>, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "caller is gone");
        }
        let stream = Patient::new(stream, self.read_timeout);
        let tls = match &self.web_config {
            Some(file) => file.current().await.tls.clone(),
            None => None,
        };
        let Some(tls) = tls else {
            return self.requests(stream, Peer::Tcp { certificate: false }).await;
        };
        let handshake = timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(tls).accept(stream));
        let stream = tokio::select! {
            done = handshake => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    debug!(%error, "tls handshake failed");
                    return;
                }
                Err(_) => {
                    debug!("tls handshake took too long");
                    return;
                }
            },
            () = self.stop.cancelled() => return,
        };
        let certificate = stream.get_ref().1.peer_certificates().is_some();
        self.requests(stream, Peer::Tcp { certificate }).await;
    }

    /// Answers the requests of one connection, one after the other.
    async fn requests<S>(self: Arc<Self>, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let shared = self.clone();
            async move { Ok::<_, Infallible>(shared.respond(peer, request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            debug!(%error, "connection ended early");
        }
    }

    async fn respond(&self, peer: Peer, request: Request<Incoming>) -> Response<Body> {
        let certificate = match peer {
            Peer::Socket { uid } => return (self.handler)(Caller::Socket { uid }, request).await,
            Peer::Tcp { certificate } => certificate,
        };
        let config = match &self.web_config {
            Some(file) => Some(file.current().await),
            None => None,
        };
        // Room is taken by those who are let in: wrong passwords in a queue are not requests.
        let caller = self.passwords.caller(config.as_deref(), request.headers(), certificate).await;
        let mut response = match (caller, self.requests.try_acquire()) {
            (Ok(caller), Ok(_permit)) => (self.handler)(caller, request).await,
            (Ok(_), Err(_)) => {
                route::later(StatusCode::SERVICE_UNAVAILABLE, "too many requests at the same time", RETRY)
            }
            (Err(Denied::Busy), _) => {
                route::later(StatusCode::TOO_MANY_REQUESTS, "too many passwords wait to be checked", RETRY)
            }
            (Err(Denied::Unproven), _) => {
                let mut refused = route::words(StatusCode::UNAUTHORIZED, "user name and password, please");
                let challenge = HeaderValue::from_static("Basic realm=\"fabricpulse\", charset=\"UTF-8\"");
                refused.headers_mut().insert(WWW_AUTHENTICATE, challenge);
                refused
            }
        };
        for (name, value) in config.iter().flat_map(|config| &config.headers) {
            response.headers_mut().insert(name.clone(), value.clone());
        }
        response
    }
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;
