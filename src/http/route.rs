//! What is answered where: one match over method and path.

use std::{sync::Arc, time::Duration};

use governor::clock::DefaultClock;
use http_body_util::{BodyExt as _, Limited};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Bytes,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde::Serialize;

use crate::{
    agent::Agent,
    http::{
        Body, api,
        auth::{self, Caller},
        config, metrics, page, probe, query,
        status::{self, Status},
    },
};

/// The largest body that is read: requests are a few names and a sentence.
const BODY_BYTES: usize = 64 * 1024;

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// A page loads nothing and runs nothing; its style is in it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is said before the first listing of the parts.
pub(crate) const NOT_READY: &str = "fabricpulse is not ready: the node's parts are not listed yet";

/// An answer that ends a request early. Boxed, since it is large and rare.
pub(crate) type Refusal = Box<Response<Body>>;

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) agent: Arc<Agent>,
    pub(crate) asks: api::Asks,
    pub(crate) asked: probe::Asked,
    scraped: metrics::Newest,
}

impl Site {
    pub(crate) fn new(agent: Arc<Agent>) -> Site {
        Site {
            agent,
            asks: api::Asks::default(),
            asked: probe::Asked::new(DefaultClock::default()),
            scraped: metrics::Newest::default(),
        }
    }
}

/// Answers a request.
pub(crate) async fn answer<B>(site: &Arc<Site>, caller: &Caller, request: Request<B>) -> Response<Body>
where
    B: hyper::body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (head, body) = request.into_parts();
    let (agent, headers, asked) = (&site.agent, &head.headers, head.uri.query());
    // The server leaves out the body of an answer to HEAD by itself.
    let method = if head.method == Method::HEAD { &Method::GET } else { &head.method };
    let path = head.uri.path();
    let (place, name) = split(path);
    match (method.as_str(), place) {
        ("GET", "/") => html(StatusCode::OK, page::front(&status::Snapshot::take(agent, caller))),
        ("GET", "/metrics") => site.scraped.answer(headers, |format| agent.metrics(format)),
        ("GET", "/probe") => probe::answer(site, caller, headers, asked).await,
        ("GET", "/config") => json(StatusCode::OK, &config::view(&agent.config.borrow())),
        ("GET", "/-/healthy") => words(StatusCode::OK, "fabricpulse is healthy"),
        ("GET", "/-/ready") if agent.ready() => words(StatusCode::OK, "fabricpulse is ready"),
        ("GET", "/-/ready") => words(StatusCode::SERVICE_UNAVAILABLE, NOT_READY),
        ("GET", "/api/v1/status") => json(StatusCode::OK, &Status::of(agent)),
        ("GET", "/api/v1/baseline") => api::baseline(agent),
        ("GET", "/api/v1/runs") => api::runs(site, asked),
        ("GET", "/api/v1/runs/") => api::run(site, caller, name),
        ("GET", "/run/") => match name.parse().ok().and_then(|id| status::find_run(agent, id)) {
            Some(run) => html(StatusCode::OK, page::run(&status::Snapshot::take(agent, caller), &run)),
            None => words(
                StatusCode::NOT_FOUND,
                "this run is not kept: the newest runs and the bad ones before them are",
            ),
        },
        ("GET", "/part/") => {
            let snapshot = status::Snapshot::take(agent, caller);
            match query::decode(name).and_then(|name| page::part(&snapshot, &name)) {
                Some(text) => html(StatusCode::OK, text),
                None => words(StatusCode::NOT_FOUND, "this node has no such part; / lists them"),
            }
        }
        (
            "POST",
            "/api/v1/runs"
            | "/api/v1/hold"
            | "/api/v1/release"
            | "/api/v1/inventory/accept"
            | "/api/v1/baseline/accept"
            | "/api/v1/baseline/reset"
            | "/-/reload",
        ) => match may_act(site, caller, headers) {
            Err(refused) => *refused,
            Ok(()) => match read(body).await {
                Ok(body) => act(site, caller, path, body).await,
                Err(refused) => *refused,
            },
        },
        (_, place) => otherwise(place),
    }
}

/// Takes a path that ends in a name apart: the place, and the name.
fn split(path: &str) -> (&str, &str) {
    for place in ["/api/v1/runs/", "/run/", "/part/"] {
        if let Some(name) = path.strip_prefix(place) {
            return (place, name);
        }
    }
    (path, "")
}

/// Does what a trusted caller asks. In a task of its own, so that a caller who hangs up leaves
/// nothing half done.
async fn act(site: &Arc<Site>, caller: &Caller, path: &str, body: Bytes) -> Response<Body> {
    let (site, by, path) = (site.clone(), caller.name(), path.to_string());
    let done = tokio::spawn(async move {
        let answer = match path.as_str() {
            "/api/v1/runs" => api::start(&site, &body),
            "/api/v1/hold" => api::hold(&site.agent, &by, &body),
            "/api/v1/release" => api::release(&site.agent, &by),
            "/api/v1/inventory/accept" => api::accept(&site.agent, &by),
            "/api/v1/baseline/accept" | "/api/v1/baseline/reset" => {
                api::change_baseline(&site.agent, &by, &path, &body)
            }
            _ => api::reload(&site.agent).await,
        };
        site.scraped.forget();
        answer
    });
    done.await.unwrap_or_else(|error| {
        tracing::error!(%error, "request failed");
        words(StatusCode::INTERNAL_SERVER_ERROR, "this failed; the agent's log says why")
    })
}

/// Whether the caller may start or change something.
pub(crate) fn may_act(site: &Site, caller: &Caller, headers: &HeaderMap) -> Result<(), Refusal> {
    if auth::from_another_site(headers) {
        return Err(
            words(StatusCode::FORBIDDEN, "a page of another site may not do this in your name").into()
        );
    }
    if caller.trusted() { Ok(()) } else { Err(forbidden(site, "this needs to know who you are").into()) }
}

/// Says how to become somebody who may.
pub(crate) fn forbidden(site: &Site, what: &str) -> Response<Body> {
    let socket = site.agent.config.borrow().web.socket.display().to_string();
    words(StatusCode::FORBIDDEN, &format!("{what}: {}", how_to_be_trusted(&socket)))
}

/// Where trusted callers come in.
pub(crate) fn how_to_be_trusted(socket: &str) -> String {
    format!(
        "use the command line on the node, which comes through {socket}, or a password or client certificate over TCP, which --web.config.file sets up"
    )
}

async fn read<B>(body: B) -> Result<Bytes, Refusal>
where
    B: hyper::body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (status, what) =
        match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES).collect()).await {
            Ok(Ok(body)) => return Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {BODY_BYTES} bytes"))
            }
            Ok(Err(error)) => (StatusCode::BAD_REQUEST, format!("the body could not be read: {error}")),
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_string()),
        };
    Err(words(status, &what).into())
}

/// Nothing is there, or not for this method.
fn otherwise(path: &str) -> Response<Body> {
    let allowed = match path {
        "/" | "/metrics" | "/probe" | "/config" | "/-/healthy" | "/-/ready" | "/api/v1/status"
        | "/api/v1/baseline" | "/api/v1/runs/" | "/run/" | "/part/" => "GET, HEAD",
        "/api/v1/runs" => "GET, HEAD, POST",
        "/-/reload"
        | "/api/v1/hold"
        | "/api/v1/release"
        | "/api/v1/inventory/accept"
        | "/api/v1/baseline/accept"
        | "/api/v1/baseline/reset" => "POST",
        _ => return words(StatusCode::NOT_FOUND, "nothing is here; / links to what there is"),
    };
    let mut response = words(StatusCode::METHOD_NOT_ALLOWED, &format!("only {allowed} is answered here"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// A sentence as plain text.
pub(crate) fn words(status: StatusCode, text: &str) -> Response<Body> {
    made(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// Says why not now, and when to ask again.
pub(crate) fn later(status: StatusCode, why: &str, retry_after: Duration) -> Response<Body> {
    let mut response = words(status, why);
    let seconds = (retry_after.as_secs() + u64::from(retry_after.subsec_nanos() > 0)).max(1);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// A value as JSON, in lines for those who read it with curl.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_string_pretty(value) {
        Ok(text) => made(status, "application/json", text + "\n"),
        Err(error) => words(StatusCode::INTERNAL_SERVER_ERROR, &format!("not writable as JSON: {error}")),
    }
}

/// What is wrong, for callers that read JSON.
pub(crate) fn json_error(status: StatusCode, what: &str) -> Response<Body> {
    json(status, &serde_json::json!({ "error": what }))
}

fn html(status: StatusCode, text: String) -> Response<Body> {
    let mut response = made(status, "text/html; charset=utf-8", text);
    let headers = response.headers_mut();
    for (name, value) in [
        ("content-security-policy", PAGE_POLICY),
        ("x-frame-options", "deny"),
        ("referrer-policy", "same-origin"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}

fn made(status: StatusCode, content_type: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
