//! The command line's side of the agent's Unix socket.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, StatusCode, body::Bytes, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;

/// The largest answer that is read: the status of a node of 16 devices is some 500 kB.
const ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How long connecting and sending may take. The agent accepts at once or is not well.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no agent at {}: is the service running?", .0.display())]
    NoAgent(PathBuf),
    #[error("{}: not allowed to connect: be root, or join the group of this socket", .0.display())]
    NotAllowed(PathBuf),
    #[error("{}: no answer within {after:?}: the agent is stuck or very busy", path.display())]
    Slow { path: PathBuf, after: Duration },
    #[error("connection to {}", path.display())]
    Connection { path: PathBuf, source: io::Error },
    #[error("answer of {}", path.display())]
    Answer { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("request to {}", path.display())]
    Request { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

impl ClientError {
    /// Whether the agent is away, rather than that something is wrong between us.
    pub(crate) fn away(&self) -> bool {
        match self {
            ClientError::NoAgent(_) => true,
            ClientError::NotAllowed(_)
            | ClientError::Slow { .. }
            | ClientError::Connection { .. }
            | ClientError::Answer { .. }
            | ClientError::Request { .. } => false,
        }
    }
}

/// Asks the agent behind one socket.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    timeout: Duration,
}

impl Client {
    /// `timeout` is for the whole answer: a run that is waited for takes as long as its probe.
    pub(crate) fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Client {
        Client { socket: socket.into(), timeout }
    }

    pub(crate) async fn get(&self, path: &str) -> Result<(StatusCode, String), ClientError> {
        self.ask(Request::get(path), Bytes::new()).await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        json: &impl Serialize,
    ) -> Result<(StatusCode, String), ClientError> {
        let body = serde_json::to_vec(json).map_err(|error| self.request(error))?;
        self.ask(Request::post(path).header(header::CONTENT_TYPE, "application/json"), body.into()).await
    }

    async fn ask(
        &self,
        request: hyper::http::request::Builder,
        body: Bytes,
    ) -> Result<(StatusCode, String), ClientError> {
        let request = request
            .header(header::HOST, "localhost")
            .body(Full::new(body))
            .map_err(|error| self.request(error))?;
        let slow = |after| ClientError::Slow { path: self.socket.clone(), after };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connect(&self.socket))
            .await
            .map_err(|_| slow(CONNECT_TIMEOUT))??;
        let answer = async {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|error| self.answer(error))?;
            let exchange = async {
                let response = sender.send_request(request).await.map_err(|error| self.answer(error))?;
                let status = response.status();
                let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
                let body = body.map_err(|error| self.answer(error))?.to_bytes();
                let text = String::from_utf8(body.into()).map_err(|error| self.answer(error))?;
                Ok((status, text))
            };
            // The connection must be driven, but only the exchange has a result: an error of the
            // connection ends the exchange with an error of its own.
            let drive = async {
                let _ = connection.await;
                std::future::pending().await
            };
            tokio::select! {
                result = exchange => result,
                never = drive => never,
            }
        };
        tokio::time::timeout(self.timeout, answer).await.map_err(|_| slow(self.timeout))?
    }

    fn answer(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Answer { path: self.socket.clone(), source: source.into() }
    }

    fn request(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
        ClientError::Request { path: self.socket.clone(), source: source.into() }
    }
}

async fn connect(path: &Path) -> Result<UnixStream, ClientError> {
    UnixStream::connect(path).await.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ClientError::NoAgent(path.to_path_buf())
        }
        io::ErrorKind::PermissionDenied => ClientError::NotAllowed(path.to_path_buf()),
        _ => ClientError::Connection { path: path.to_path_buf(), source },
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_agent_that_is_away_is_told_from_one_that_is_slow_or_broken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("agent.sock");
        let client = Client::new(&path, Duration::from_millis(200));
        let error = client.get("/").await.unwrap_err();
        assert!(error.away() && error.to_string().contains("is the service running?"), "{error}");

        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let error = client.get("/").await.unwrap_err();
        assert!(matches!(error, ClientError::Slow { .. }), "{error}");
        drop(listener);
        // A socket that an agent left behind.
        assert!(client.get("/").await.unwrap_err().away());

        std::fs::remove_file(&path).unwrap();
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            for answer in ["nonsense\r\n\r\n", "HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\n\r\nok"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                let read = stream.read(&mut request).await.unwrap();
                assert!(request[..read].starts_with(b"POST /x HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let error = client.post("/x", &1).await.unwrap_err();
        assert!(matches!(error, ClientError::Answer { .. }), "{error}");
        assert_eq!(client.post("/x", &1).await.unwrap(), (StatusCode::ACCEPTED, "ok".to_string()));
        server.await.unwrap();
    }
}
