use std::process::Stdio;

use super::*;

/// A directory with a certificate, its key, and the web configuration `text`.
fn directory(text: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for name in ["cert.pem", "key.pem"] {
        let pem = match name {
            "cert.pem" => include_str!("testdata/cert.pem"),
            _ => include_str!("testdata/key.pem"),
        };
        fs::write(directory.path().join(name), pem).unwrap();
    }
    fs::write(directory.path().join("web.yml"), text).unwrap();
    directory
}

fn load(text: &str) -> Result<WebConfig, String> {
    let directory = directory(text);
    let path = directory.path().join("web.yml");
    WebConfig::load(&path).map_err(|error| {
        let error = format!("{:#}", anyhow::Error::from(error));
        error.replace(directory.path().to_str().unwrap(), "")
    })
}

/// Whether Prometheus's own reader takes the file.
#[expect(clippy::disallowed_methods, reason = "promtool is the oracle")]
fn promtool(text: &str) -> bool {
    let directory = directory(text);
    std::process::Command::new("promtool")
        .args(["check", "web-config"])
        .arg(directory.path().join("web.yml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("promtool is installed: apt-get install prometheus")
        .success()
}

const HASH: &str = "$2y$05$YEfZVDwThj8E7jxdxb566u.SeaUnFHRFJwqgm9JbacehOseeM6aem";

fn tls(more: &str) -> String {
    format!("tls_server_config:\n  cert_file: cert.pem\n  key_file: key.pem\n{more}")
}

#[test]
fn what_promtool_says_of_a_file_we_say_too() {
    let good = [
        String::new(),
        "# nothing\n".to_string(),
        "{}\n".to_string(),
        "tls_server_config:\n".to_string(),
        "tls_server_config: {}\n".to_string(),
        "basic_auth_users:\n".to_string(),
        format!("basic_auth_users:\n  Bob: {HASH}\n  bob.jones: {HASH}\n  7: {HASH}\n"),
        tls(""),
        tls("  client_auth_type: NoClientCert\n"),
        tls("  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n"),
        tls("  client_auth_type: VerifyClientCertIfGiven\n  client_ca_file: cert.pem\n"),
        tls("  min_version: TLS10\n"),
        tls("  min_version: TLS13\n  max_version: TLS13\n"),
        tls("  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n"),
        tls("  curve_preferences: [X25519, CurveP256]\n  prefer_server_cipher_suites: false\n"),
        "http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n".to_string(),
        "http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=1\n".to_string(),
    ];
    for text in good {
        assert!(promtool(&text), "promtool refuses:\n{text}");
        assert_eq!(load(&text).map(|_| ()), Ok(()), "{text}");
    }
    let bad = [
        ("basic_auth_user:\n  Bob: x\n".to_string(), "basic_auth_user"),
        ("basic_auth_users:\n  Bob: hello\n".to_string(), "basic_auth_users.Bob: not a bcrypt hash"),
        ("basic_auth_users:\n  Bob:\n".to_string(), "basic_auth_users.Bob: not a bcrypt hash"),
        ("basic_auth_users: []\n".to_string(), "basic_auth_users: "),
        ("a: b: c\n".to_string(), "web.yml: "),
        ("rate: 1\n".to_string(), "unknown field `rate`"),
        ("tls_server_config:\n  cert_file: cert.pem\n".to_string(), "tls_server_config.key_file: missing"),
        ("tls_server_config:\n  key_file: key.pem\n".to_string(), "tls_server_config.cert_file: missing"),
        (
            "tls_server_config:\n  cert_file: cert.pem\n  key_file: no.pem\n".to_string(),
            "tls_server_config.key_file: /no.pem: No such file",
        ),
        (
            "tls_server_config:\n  cert_file: key.pem\n  key_file: key.pem\n".to_string(),
            "tls_server_config.cert_file: /key.pem: no certificate in it",
        ),
        (tls("  client_ca_file: cert.pem\n"), "tls_server_config.client_auth_type: client_ca_file is given"),
        (tls("  client_auth_type: Always\n"), "tls_server_config.client_auth_type: \"Always\" is unknown"),
        (tls("  min_version: TLS14\n"), "tls_server_config.min_version: \"TLS14\" is unknown"),
        (tls("  cipher_suites: [ROT13]\n"), "tls_server_config.cipher_suites: \"ROT13\" is unknown"),
        (tls("  curve_preferences: [Curve1]\n"), "tls_server_config.curve_preferences: \"Curve1\""),
        (tls("  certfile: cert.pem\n"), "unknown field `certfile`"),
        (
            "http_server_config:\n  headers:\n    X-Frame-Options: bad\n".to_string(),
            "http_server_config.headers.X-Frame-Options: \"bad\" is none of deny, sameorigin",
        ),
        (
            "http_server_config:\n  headers:\n    x-frame-options: deny\n".to_string(),
            "http_server_config.headers.x-frame-options: this header can't be set",
        ),
    ];
    for (text, words) in bad {
        assert!(!promtool(&text), "promtool accepts:\n{text}");
        let error = load(&text).expect_err(&text);
        assert!(error.contains(words), "{error:?} should contain {words:?}");
    }
}

#[test]
fn what_only_pretends_to_protect_is_refused_though_promtool_takes_it() {
    let table = [
        ("  client_auth_type: RequestClientCert\n", "verifies nothing"),
        ("  client_auth_type: RequireAnyClientCert\n", "verifies nothing"),
        ("  client_auth_type: RequireClientCert\n", "verifies nothing"),
        ("  client_auth_type: RequireAndVerifyClientCert\n", "client_ca_file: missing"),
        ("  max_version: TLS11\n", "max_version: leaves no version"),
        ("  min_version: TLS13\n  max_version: TLS12\n", "max_version: leaves no version"),
    ];
    for (more, words) in table {
        assert!(promtool(&tls(more)), "promtool refuses it too:\n{more}");
        let error = load(&tls(more)).expect_err(more);
        assert!(error.contains(words), "{error:?} should contain {words:?}");
    }
}

#[test]
fn names_of_users_and_of_clients_are_kept_as_written() {
    let config = load(&format!("basic_auth_users:\n  Bob: {HASH}\n  a.b[0]: {HASH}\n")).unwrap();
    assert_eq!(config.users.keys().collect::<Vec<_>>(), ["Bob", "a.b[0]"]);
    let names = |sans: &str| {
        let more = format!(
            "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: cert.pem\n  client_allowed_sans: {sans}\n"
        );
        load(&tls(&more)).map(|_| ())
    };
    assert_eq!(names("[prometheus.example.org, 10.0.0.1]"), Ok(()));
    assert!(names("[me@example.org]").unwrap_err().contains("neither a DNS name nor an IP address"));
}

#[tokio::test]
async fn a_broken_file_leaves_the_one_before_in_force() {
    let directory = directory(&format!("basic_auth_users:\n  Bob: {HASH}\n"));
    let path = directory.path().join("web.yml");
    let file = WebConfigFile::open(&path).unwrap();
    let users = async || {
        file.seen.lock().await.at = Instant::now().checked_sub(LOOK_AGAIN).unwrap();
        file.current().await.users.keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(users().await, ["Bob"]);
    fs::write(&path, "basic_auth_users:\n  Eve: nothing\n").unwrap();
    assert_eq!(users().await, ["Bob"]);
    fs::remove_file(&path).unwrap();
    assert_eq!(users().await, ["Bob"]);
    fs::write(&path, format!("basic_auth_users:\n  Eve: {HASH}\n  Bob: {HASH}\n")).unwrap();
    assert_eq!(users().await, ["Bob", "Eve"]);
}

#[tokio::test]
async fn a_certificate_that_comes_after_the_file_that_names_it_is_taken() {
    let directory = directory("");
    let path = directory.path().join("web.yml");
    let file = WebConfigFile::open(&path).unwrap();
    let look = async || {
        file.seen.lock().await.at = Instant::now().checked_sub(LOOK_AGAIN).unwrap();
        let tls = file.current().await.tls.is_some();
        (tls, file.seen.lock().await.wrong.clone())
    };
    let cert = directory.path().join("cert.pem");
    let late = directory.path().join("late.pem");
    fs::rename(&cert, &late).unwrap();
    fs::write(&path, tls("")).unwrap();
    for _ in 0..2 {
        let (tls, wrong) = look().await;
        assert!(
            !tls && wrong.as_ref().is_some_and(|wrong| wrong.contains("cert.pem: No such file")),
            "{wrong:?}"
        );
    }
    fs::rename(&late, &cert).unwrap();
    assert_eq!(look().await, (true, None));

    // The certificate is one of the files that are looked at now.
    let in_force = file.current().await;
    assert_eq!(look().await, (true, None));
    assert!(Arc::ptr_eq(&in_force, &file.current().await), "nothing changed, nothing was read");
    fs::write(&cert, format!("{}\n", include_str!("testdata/cert.pem"))).unwrap();
    assert_eq!(look().await, (true, None));
    assert!(!Arc::ptr_eq(&in_force, &file.current().await));
}
