//! The routes, over a real agent that has not listed its parts yet.

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;

#[test]
fn a_wrong_method_is_told_the_right_one_and_a_wrong_path_where_to_look() {
    let table = [
        ("/metrics", 405, Some("GET, HEAD")),
        ("/-/reload", 405, Some("POST")),
        ("/api/v1/runs", 405, Some("GET, HEAD, POST")),
        ("/api/v1/runs/7", 405, Some("GET, HEAD")),
        ("/part/x", 405, Some("GET, HEAD")),
        ("/metrics/", 404, None),
        ("/favicon.ico", 404, None),
    ];
    for (path, status, allow) in table {
        let response = otherwise(split(path).0);
        let found = response.headers().get(ALLOW).map(|value| value.to_str().unwrap());
        assert_eq!((response.status().as_u16(), found), (status, allow), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_or_never_comes_is_refused() {
    let read_full = |size: usize| read(Body::from(vec![b'x'; size]));
    assert_eq!(read_full(BODY_BYTES).await.unwrap().len(), BODY_BYTES);
    assert_eq!(read_full(BODY_BYTES + 1).await.unwrap_err().status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(read(Never).await.unwrap_err().status(), StatusCode::REQUEST_TIMEOUT);
}

/// A body of a caller that has stopped sending.
struct Never;

impl hyper::body::Body for Never {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

/// A site over an agent in a directory of its own, with one of the operator's checks, which is not
/// passive, and active probes switched off.
fn site(directory: &std::path::Path) -> Arc<Site> {
    let file = directory.join("config.toml");
    let text = format!(
        "node_name = \"n1\"\n[web]\nsocket = \"{0}/agent.sock\"\n[state]\ndirectory = \"{0}/state\"\n\
         [[probe.exec.check]]\nname = \"burn\"\nargv = [\"/bin/true\", \"s3cret\"]\ncost = \"light\"\n\
         interval = \"1h\"\ntimeout = \"5s\"\ngpu_seconds = 0.1\n",
        directory.display()
    );
    std::fs::write(&file, text).unwrap();
    std::fs::create_dir_all(directory.join("state")).unwrap();
    let overrides = crate::config::Overrides { file: Some(file), ..Default::default() };
    let config = crate::config::load(&overrides).unwrap();
    Arc::new(Site::new(Agent::new(config, overrides, CancellationToken::new())))
}

/// Who asks in the tests.
const OPEN: Caller = Caller::Open;
const ROOT: Caller = Caller::Socket { uid: 0 };

async fn ask(
    site: &Arc<Site>,
    caller: &Caller,
    line: &str,
    body: &str,
    origin: Option<&str>,
) -> (u16, String) {
    let (method, path) = line.split_once(' ').unwrap();
    let mut request = Request::builder().method(method).uri(path).header("host", "n1:10950");
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    let response = answer(site, caller, request.body(Body::from(body.to_string())).unwrap()).await;
    let status = response.status().as_u16();
    let text = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(text.into()).unwrap())
}

#[tokio::test]
async fn everybody_is_answered_what_is_theirs_and_told_how_to_get_more() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let hold = r#"{"for": "2h", "reason": "NIC swap"}"#;
    let run = r#"{"test": "exec", "target": "burn"}"#;
    let sock = "agent.sock";
    let table = [
        // (caller, request, body, status, words)
        (&OPEN, "GET /", "", 200, "Nothing could be judged yet"),
        (&OPEN, "GET /metrics", "", 200, "fabricpulse_build_info"),
        (&OPEN, "GET /-/healthy", "", 200, "healthy"),
        (&OPEN, "GET /-/ready", "", 503, "not listed yet"),
        (&OPEN, "GET /api/v1/status", "", 200, "\"node\": \"n1\""),
        (&OPEN, "GET /api/v1/runs", "", 200, "\"runs\": []"),
        (&OPEN, "GET /api/v1/runs?test=exec", "", 200, "\"runs\": []"),
        (&OPEN, "GET /api/v1/runs?limit=0", "", 400, "limit must be"),
        (&OPEN, "GET /api/v1/runs?test=gem", "", 400, "there is no test"),
        (&OPEN, "GET /api/v1/runs/999", "", 404, "not kept"),
        (&OPEN, "GET /api/v1/runs/ask-9", "", 404, "not kept"),
        (&OPEN, "GET /run/999", "", 404, "not kept"),
        (&OPEN, "GET /part/burn", "", 200, "never measured"),
        (&OPEN, "GET /part/mlx5_9", "", 404, "no such part"),
        (&OPEN, "GET /config", "", 200, "<masked>"),
        (&OPEN, "GET /probe", "", 400, "\"test\" is missing; known are node, pcie"),
        (&OPEN, "GET /probe?test=gem", "", 400, "there is no test \"gem\""),
        (&OPEN, "GET /probe?test=exec&target=x", "", 503, "not listed yet"),
        (&OPEN, "GET /probe?test=node", "", 503, "not listed yet"),
        (&OPEN, "GET /probe?test=exec&size=8", "", 400, "no parameter \"size\""),
        (&OPEN, "GET /probe?test=exec&target=burn&peer=n2", "", 400, "it takes no peer"),
        (&OPEN, "GET /probe?test=exec&target=burn&debug=maybe", "", 400, "true or false"),
        (&OPEN, "GET /probe?test=exec&target=burn", "", 403, sock),
        (&OPEN, "GET /probe?test=node&debug=true", "", 403, sock),
        (&OPEN, "POST /api/v1/hold", hold, 403, sock),
        (&OPEN, "POST /api/v1/release", "", 403, sock),
        (&OPEN, "POST /api/v1/runs", run, 403, sock),
        (&OPEN, "POST /api/v1/inventory/accept", "", 403, sock),
        (&OPEN, "POST /-/reload", "", 403, sock),
        (&OPEN, "DELETE /metrics", "", 405, "GET, HEAD"),
        (&OPEN, "GET /nothing", "", 404, "links"),
        (&ROOT, "GET /probe?test=exec&target=burn", "", 503, "not listed yet"),
        (&ROOT, "POST /api/v1/hold", "{}", 400, "missing field"),
        (&ROOT, "POST /api/v1/hold", r#"{"for": "2h", "reason": 7}"#, 400, "reason"),
        (&ROOT, "POST /api/v1/hold", hold, 200, "NIC swap"),
        (&OPEN, "GET /", "", 200, "Held"),
        (&OPEN, "GET /api/v1/status", "", 200, "\"by\": \"uid 0\""),
        (&ROOT, "POST /api/v1/release", "", 200, "\"released\": true"),
        (&ROOT, "POST /api/v1/release", "", 200, "\"released\": false"),
        (&ROOT, "POST /api/v1/inventory/accept", "", 200, "\"forgotten\": 0"),
        (&ROOT, "POST /api/v1/runs", r#"{"test": "gem"}"#, 400, "there is no test"),
        (&ROOT, "POST /-/reload", "", 200, "read again"),
    ];
    for (caller, line, body, status, words) in table {
        let (found, text) = ask(&site, caller, line, body, None).await;
        assert_eq!(found, status, "{line} by {caller:?}: {text}");
        assert!(text.contains(words), "{line}: {words:?} is missing in:\n{text}");
        assert!(!text.contains("s3cret"), "{line}: {text}");
    }
    std::fs::write(directory.path().join("config.toml"), "nonsense = 1\n").unwrap();
    let (status, text) = ask(&site, &ROOT, "POST /-/reload", "", None).await;
    assert!(status == 500 && text.contains("nonsense"), "{text}");
}

#[tokio::test]
async fn a_hold_that_can_not_be_written_says_why_and_is_not_the_callers_fault() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    // A directory where the file should be can neither be replaced nor removed as one.
    std::fs::create_dir_all(directory.path().join("state/hold.json/full")).unwrap();
    let hold = r#"{"for": "2h", "reason": "NIC swap"}"#;
    for (line, body) in [("POST /api/v1/hold", hold), ("POST /api/v1/release", "")] {
        let (status, text) = ask(&site, &ROOT, line, body, None).await;
        assert_eq!(status, 500, "{line}: {text}");
        assert!(text.contains("hold.json: ") && text.contains("os error"), "{line}: {text}");
    }
    let long = r#"{"for": "9999d", "reason": ""}"#;
    let (status, text) = ask(&site, &ROOT, "POST /api/v1/hold", long, None).await;
    assert!(status == 400 && text.contains("30 days"), "{status} {text}");
}

#[tokio::test]
async fn a_page_of_another_site_can_not_act_even_for_those_who_may() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    for line in ["POST /api/v1/release", "POST /-/reload", "GET /probe?test=exec&target=burn"] {
        let (status, text) = ask(&site, &ROOT, line, "", Some("http://evil.example")).await;
        assert!(status == 403 && text.contains("another site"), "{line}: {status} {text}");
    }
    let (status, _) = ask(&site, &ROOT, "POST /api/v1/release", "", Some("http://n1:10950")).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_run_that_was_asked_for_is_found_by_its_request() {
    let directory = tempfile::tempdir().unwrap();
    let site = site(directory.path());
    let run = r#"{"test": "exec", "target": "burn"}"#;
    let (status, text) = ask(&site, &ROOT, "POST /api/v1/runs", run, None).await;
    assert_eq!(status, 202, "{text}");
    let location = serde_json::from_str::<Value>(&text).unwrap()["location"].as_str().unwrap().to_string();
    for _ in 0..200 {
        let (status, text) = ask(&site, &OPEN, &format!("GET {location}"), "", None).await;
        assert_eq!(status, 200, "{text}");
        let found: Value = serde_json::from_str(&text).unwrap();
        if found["state"] == "ended" {
            assert_eq!(found["run"]["outcome"], "skipped", "{text}");
            assert_eq!(found["run"].get("evidence"), None, "{text}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the run did not end");
}
