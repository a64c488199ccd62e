//! The server alone, with a handler that says who asks.

use std::{net::Shutdown, os::unix::fs::MetadataExt as _};

use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::rustls::{
    self, ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};

use super::*;
use crate::client::Client;

const CERTIFICATE: &str = include_str!("../web_config/testdata/cert.pem");
const KEY: &str = include_str!("../web_config/testdata/key.pem");

const LARGE: usize = 32 << 20;

/// A server in a directory of its own.
struct Server {
    directory: tempfile::TempDir,
    address: SocketAddr,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Serves with the web configuration `yaml`, if any, and at most two requests at a time.
    async fn start(yaml: Option<&str>) -> Server {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("cert.pem", CERTIFICATE), ("key.pem", KEY), ("web.yml", yaml.unwrap_or_default())]
        {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = directory.path().join("run/agent.sock");
        let servers = Servers {
            tcp: vec![tcp],
            unix: Some((bind_unix(&socket).await.unwrap(), SocketFile(socket))),
            web_config: yaml.map(|_| WebConfigFile::open(&directory.path().join("web.yml")).unwrap()),
            max_requests: 2,
            read_timeout: Duration::from_millis(300),
        };
        let (address, stop) = (servers.addresses()[0], CancellationToken::new());
        let served = tokio::spawn(servers.serve_with(handler, stop.clone()));
        Server { directory, address, stop, served }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("run/agent.sock")
    }

    /// Sends a request over plain TCP; the whole answer.
    async fn ask(&self, path: &str, more: &str) -> String {
        let stream = TcpStream::connect(self.address).await.unwrap();
        ask(stream, path, more).await.unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        self.served.await.unwrap();
    }
}

/// Tells who asks; `/slow` takes a second, and `/large` is more than the kernel holds for a caller.
async fn handler(caller: Caller, request: Request<Incoming>) -> Response<Body> {
    match request.uri().path() {
        "/slow" => tokio::time::sleep(Duration::from_secs(1)).await,
        "/large" => return Response::new(Body::from(vec![b'x'; LARGE])),
        _ => {}
    }
    let _ = request.into_body().collect().await;
    route::words(StatusCode::OK, &caller.name())
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, path: &str, more: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: n1\r\nconnection: close\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn the_socket_knows_its_callers_and_its_file_comes_and_goes_with_the_agent() {
    let server = Server::start(None).await;
    let path = server.socket();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.mode() & 0o777, SOCKET_MODE);
    let (status, body) = Client::new(&path, Duration::from_secs(5)).get("/").await.unwrap();
    assert_eq!((status, body), (StatusCode::OK, format!("uid {}\n", metadata.uid())));
    let taken = bind_unix(&path).await.unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
    server.end().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_left_behind_is_replaced_and_a_file_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    drop(bind_unix(&path).await.unwrap());
    assert!(path.exists());
    drop(bind_unix(&path).await.unwrap());
    let file = directory.path().join("precious");
    std::fs::write(&file, "x").unwrap();
    assert_eq!(bind_unix(&file).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert!(file.exists());
}

#[tokio::test]
async fn too_many_requests_are_told_to_come_back_and_the_socket_is_still_open() {
    let server = Server::start(None).await;
    let slow = async || server.ask("/slow", "").await;
    let third = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let refused = server.ask("/", "").await;
        let local = Client::new(server.socket(), Duration::from_secs(5)).get("/").await.unwrap();
        (refused, local.0)
    };
    let (one, two, (refused, local)) = tokio::join!(slow(), slow(), third);
    assert!(one.ends_with("anybody\n") && two.ends_with("anybody\n"), "{one}");
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after: 1\r\n"), "{refused}");
    assert_eq!(local, StatusCode::OK);
    server.end().await;
}

#[tokio::test]
async fn what_is_under_way_is_answered_when_the_agent_stops_and_idle_connections_do_not_delay_it() {
    let server = Server::start(None).await;
    // One that never sends anything, and one that stopped in the middle of a request.
    let _idle = TcpStream::connect(server.address).await.unwrap();
    let mut half = TcpStream::connect(server.address).await.unwrap();
    half.write_all(b"GET / HT").await.unwrap();
    drop(half);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.stop.cancel();
    };
    let began = tokio::time::Instant::now();
    let (answer, ()) = tokio::join!(server.ask("/slow", ""), stopping);
    assert!(answer.ends_with("anybody\n"), "{answer}");
    let address = server.address;
    server.served.await.unwrap();
    assert!(began.elapsed() < DRAIN_TIMEOUT, "{:?}", began.elapsed());
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_caller_who_does_not_read_its_answer_is_left() {
    let tls_only = "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n";
    for yaml in [None, Some(tls_only)] {
        let server = Server::start(yaml).await;
        let request = b"GET /large HTTP/1.1\r\nhost: n1\r\n\r\n";
        let read = async |stream: &mut (dyn AsyncRead + Unpin + Send)| {
            // Longer than the server is patient.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut answer = Vec::new();
            let ended = stream.read_to_end(&mut answer);
            // A reset may end it too.
            let _ = timeout(Duration::from_secs(20), ended).await.expect("the connection is ended");
            answer.len()
        };
        let got = if yaml.is_some() {
            let mut stream = tls(&server, false).await.unwrap();
            stream.write_all(request).await.unwrap();
            read(&mut stream).await
        } else {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(request).await.unwrap();
            read(&mut stream).await
        };
        assert!(got < LARGE, "{yaml:?}: all of it came");
        server.end().await;
    }
}

#[tokio::test]
async fn nonsense_is_answered_or_dropped_and_nothing_else_is_lost() {
    let server = Server::start(None).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(BUFFER_BYTES * 2));
    for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"GET\r\n\r\n", b"\0\0\0\0\r\n\r\n", long.as_bytes()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        let bytes = bytes.to_vec();
        tokio::task::spawn_blocking(move || {
            use std::io::{Read as _, Write as _};
            // The server may close before all is sent or read.
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(!answer.starts_with(b"HTTP/1.1 200"));
        })
        .await
        .unwrap();
    }
    assert!(server.ask("/", "").await.starts_with("HTTP/1.1 200 "));
    server.end().await;
}

#[tokio::test]
async fn with_users_tcp_needs_a_password_and_the_socket_does_not() {
    let yaml = format!(
        "basic_auth_users:\n  Bob: {}\nhttp_server_config:\n  headers:\n    X-Frame-Options: deny\n",
        bcrypt::hash("s3cret", 4).unwrap()
    );
    let server = Server::start(Some(&yaml)).await;
    let refused = server.ask("/", "").await;
    assert!(
        refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Basic "),
        "{refused}"
    );
    assert!(refused.contains("x-frame-options: deny\r\n"), "{refused}");
    let known = server.ask("/", "authorization: Basic Qm9iOnMzY3JldA==\r\n").await;
    assert!(known.starts_with("HTTP/1.1 200 ") && known.ends_with("Bob\n"), "{known}");
    let (status, _) = Client::new(server.socket(), Duration::from_secs(5)).get("/").await.unwrap();
    assert_eq!(status, StatusCode::OK);
    server.end().await;
}

#[tokio::test]
async fn wrong_passwords_take_no_room_from_those_who_are_known() {
    // A hash that takes some 100 ms here, and a server that answers two requests at a time.
    let yaml = format!("basic_auth_users:\n  Bob: {}\n", bcrypt::hash("s3cret", 7).unwrap());
    let server = Server::start(Some(&yaml)).await;
    let known = "authorization: Basic Qm9iOnMzY3JldA==\r\n";
    assert!(server.ask("/", known).await.ends_with("Bob\n"));
    let wrong = async || server.ask("/", "authorization: Basic Qm9iOnMzY3JlVA==\r\n").await;
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.ask("/", known).await
    };
    let (one, two, three, four, known) = tokio::join!(wrong(), wrong(), wrong(), wrong(), meanwhile);
    assert!(known.starts_with("HTTP/1.1 200 "), "{known}");
    for refused in [one, two, three, four] {
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    }
    server.end().await;
}

/// A TLS connection that trusts the server's certificate, and shows it as its own if asked to.
async fn tls(server: &Server, certificate: bool) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(CERTIFICATE.as_bytes()).collect::<Result<_, _>>().unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = if certificate {
        builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap()).unwrap()
    } else {
        builder.with_no_client_auth()
    };
    let stream = TcpStream::connect(server.address).await?;
    tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(ServerName::try_from("localhost").unwrap(), stream)
        .await
}

#[tokio::test]
async fn a_client_certificate_is_verified_and_its_name_is_looked_at() {
    let section = |kind: &str, sans: &str| {
        format!(
            "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n  client_ca_file: cert.pem\n  client_auth_type: {kind}\n{sans}"
        )
    };
    let required = "RequireAndVerifyClientCert";
    let table = [
        // (configuration, shows a certificate, who that is)
        (
            "tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n".to_string(),
            false,
            Some("anybody"),
        ),
        (section(required, ""), true, Some("a client certificate")),
        (section(required, ""), false, None),
        (section("VerifyClientCertIfGiven", ""), true, Some("a client certificate")),
        (section("VerifyClientCertIfGiven", ""), false, Some("anybody")),
        (
            section(required, "  client_allowed_sans: [prometheus.example.org, localhost]\n"),
            true,
            Some("a client certificate"),
        ),
        (section(required, "  client_allowed_sans: [prometheus.example.org]\n"), true, None),
    ];
    for (yaml, certificate, expected) in table {
        let server = Server::start(Some(&yaml)).await;
        let answer = match tls(&server, certificate).await {
            // With TLS 1.3 a client learns of the refusal when it reads.
            Ok(stream) => ask(stream, "/", "").await,
            Err(error) => Err(error),
        };
        match expected {
            Some(name) => {
                let answer = answer.unwrap();
                assert!(answer.ends_with(&format!("{name}\n")), "{yaml}: {answer}");
            }
            None => assert!(answer.is_err(), "{yaml}: {answer:?}"),
        }
        let plain = TcpStream::connect(server.address).await.unwrap();
        let plain = ask(plain, "/", "").await.unwrap_or_default();
        assert!(!plain.contains("200 OK"), "{yaml}: {plain}");
        server.end().await;
    }
}

#[tokio::test]
async fn an_address_that_can_not_be_had_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let table = [
        (io::ErrorKind::AddrInUse, "stop it or choose another"),
        (io::ErrorKind::AddrNotAvailable, "no address 127.0.0.1"),
        (io::ErrorKind::PermissionDenied, "above 1023"),
        (io::ErrorKind::Other, "--web.listen-address"),
    ];
    for (kind, words) in table {
        let advice = advice(address, &io::Error::from(kind));
        assert!(advice.contains(words), "{advice}");
    }
    assert_eq!(TcpListener::bind(address).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
}
