//! The JSON interface: runs that are asked for and fetched later, the hold, the inventory.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{
    Response, StatusCode,
    header::{HeaderValue, LOCATION},
};
use probes::Target;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    agent::Agent,
    hold::HoldError,
    http::{
        Body,
        auth::Caller,
        query,
        route::{Refusal, Site, json, json_error},
        status::{Value, find_run},
    },
    judge::book::Which,
    run::{Evidence, Outcome, Run},
    runner::epoch_seconds,
};

/// Runs in one answer unless the caller says how many.
const RUNS: usize = 50;

/// Runs in one answer at most: all that a node of 16 devices keeps of a few probes.
const MAX_RUNS: usize = 500;

/// Requests for runs that are remembered. Each is an id and a pointer, and callers look within
/// minutes.
const ASKS: usize = 256;

/// Requests for runs, by id. A request gets an id of its own, since a run gets one when it starts.
#[derive(Debug, Default)]
pub(crate) struct Asks(Mutex<AskList>);

#[derive(Debug, Default)]
struct AskList {
    last: u64,
    asks: VecDeque<(u64, Ask)>,
}

#[derive(Clone, Debug)]
enum Ask {
    Waiting,
    Refused,
    Ended(Arc<Run>),
}

impl Asks {
    fn begin(&self) -> u64 {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.last += 1;
        let id = list.last;
        list.asks.push_back((id, Ask::Waiting));
        if list.asks.len() > ASKS {
            list.asks.pop_front();
        }
        id
    }

    fn end(&self, id: u64, ask: Ask) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = list.asks.iter_mut().find(|(known, _)| *known == id) {
            entry.1 = ask;
        }
    }

    fn find(&self, id: u64) -> Option<Ask> {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.asks.iter().find(|(known, _)| *known == id).map(|(_, ask)| ask.clone())
    }
}

/// A run for those who read JSON.
#[derive(Debug, Serialize)]
pub(crate) struct RunView<'a> {
    id: u64,
    probe: &'static str,
    trigger: crate::run::Trigger,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    started: f64,
    took_seconds: f64,
    outcome: &'static str,
    /// The outcome in words, with its reason.
    detail: String,
    verdict: probes::Verdict,
    reports: Vec<ReportView<'a>>,
    /// What was executed; only for trusted callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<&'a [Evidence]>,
}

/// A run in a list: what can be shown of hundreds. The rest is under its id.
#[derive(Debug, Serialize)]
struct RunLine<'a> {
    id: u64,
    probe: &'static str,
    trigger: crate::run::Trigger,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<&'a str>,
    started: f64,
    took_seconds: f64,
    outcome: &'static str,
    verdict: probes::Verdict,
    targets: Vec<TargetLine<'a>>,
}

#[derive(Debug, Serialize)]
struct TargetLine<'a> {
    target: &'a str,
    verdict: probes::Verdict,
}

impl RunLine<'_> {
    fn of(run: &Run) -> RunLine<'_> {
        RunLine {
            id: run.id,
            probe: run.probe,
            trigger: run.trigger,
            peer: run.peer.as_deref(),
            started: run.started,
            took_seconds: run.took.as_secs_f64(),
            outcome: run.outcome.word(),
            verdict: run.worst(),
            targets: run
                .reports
                .iter()
                .map(|report| TargetLine { target: report.target.id(), verdict: report.verdict })
                .collect(),
        }
    }
}

#[derive(Debug, Serialize)]
struct ReportView<'a> {
    target: String,
    verdict: probes::Verdict,
    reason: &'a str,
    findings: &'a [probes::Finding],
    values: Vec<Value>,
}

impl RunView<'_> {
    pub(crate) fn of<'a>(run: &'a Run, caller: &Caller) -> RunView<'a> {
        RunView {
            id: run.id,
            probe: run.probe,
            trigger: run.trigger,
            peer: run.peer.as_deref(),
            started: run.started,
            took_seconds: run.took.as_secs_f64(),
            outcome: run.outcome.word(),
            detail: outcome_for(&run.outcome, caller.trusted()),
            verdict: run.worst(),
            reports: run
                .reports
                .iter()
                .map(|report| ReportView {
                    target: report.target.to_string(),
                    verdict: report.verdict,
                    reason: &report.reason,
                    findings: &report.findings,
                    values: report.measurements.iter().map(Value::of).collect(),
                })
                .collect(),
            evidence: caller.trusted().then_some(&run.evidence),
        }
    }
}

/// The outcome in words. What a program printed may quote anything, so not everybody sees it.
pub(crate) fn outcome_for(outcome: &Outcome, trusted: bool) -> String {
    match outcome {
        Outcome::Unreadable(_) if !trusted => {
            "unreadable: the program printed something unexpected".to_string()
        }
        Outcome::Completed
        | Outcome::Skipped(_)
        | Outcome::Unsupported(_)
        | Outcome::Failed(_)
        | Outcome::Unreadable(_) => outcome.to_string(),
    }
}

/// `GET /api/v1/runs`
pub(crate) fn runs(site: &Site, asked: Option<&str>) -> Response<Body> {
    let bad = |what: &str| json_error(StatusCode::BAD_REQUEST, what);
    let query = match query::parse(asked, &["test", "target", "limit"]) {
        Ok(query) => query,
        Err(what) => return bad(&what),
    };
    let limit = match query.get("limit").map(|text| text.parse::<usize>()) {
        None => RUNS,
        Some(Ok(limit)) if (1..=MAX_RUNS).contains(&limit) => limit,
        Some(_) => return bad(&format!("limit must be a number from 1 to {MAX_RUNS}")),
    };
    let target = query.get("target").map(String::as_str);
    let (lanes, target) = match query.get("test") {
        Some(test) => match site.agent.find(test, target) {
            Ok((lane, target)) => (vec![lane], target.map(|target| target.to_string())),
            // Without a target, all lanes of an active probe are meant.
            Err(crate::agent::Lookup::TargetMissing { .. }) => {
                let name = probes::find(test).map_or(test.as_str(), |probe| probe.name());
                let lanes = site.agent.lanes().into_iter().filter(|lane| lane.probe.name() == name);
                (lanes.collect(), None)
            }
            Err(unknown) => return bad(&unknown.to_string()),
        },
        None => (site.agent.lanes(), target.map(str::to_string)),
    };
    let mut runs: Vec<_> = lanes.iter().flat_map(|lane| lane.runs()).collect();
    if let Some(target) = &target {
        runs.retain(|run| run.reports.iter().any(|report| report.target.id() == target));
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run.id));
    runs.truncate(limit);
    let lines: Vec<_> = runs.iter().map(|run| RunLine::of(run)).collect();
    json(StatusCode::OK, &json!({ "runs": lines }))
}

/// `GET /api/v1/runs/<id>`: a run by its number, or what became of a request, `ask-<number>`.
pub(crate) fn run(site: &Site, caller: &Caller, id: &str) -> Response<Body> {
    let found = match id.strip_prefix("ask-") {
        Some(number) => number.parse().ok().and_then(|number| site.asks.find(number)),
        None => id.parse().ok().and_then(|id| find_run(&site.agent, id)).map(Ask::Ended),
    };
    match found {
        Some(Ask::Ended(run)) => {
            json(StatusCode::OK, &json!({ "state": "ended", "run": RunView::of(&run, caller) }))
        }
        Some(Ask::Waiting) => json(StatusCode::OK, &json!({ "state": "waiting" })),
        Some(Ask::Refused) => json(
            StatusCode::OK,
            &json!({ "state": "refused", "reason": "another request for the same run was waiting already" }),
        ),
        None => json_error(StatusCode::NOT_FOUND, "this run is not kept: the newest and the bad ones are"),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    test: String,
    target: Option<String>,
    peer: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldFor {
    /// `2h`, `30m`
    #[serde(rename = "for", with = "humantime_serde")]
    lasting: Duration,
    reason: String,
}

fn body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| json_error(StatusCode::BAD_REQUEST, &format!("the body: {error}")).into())
}

/// `POST /api/v1/runs`: starts a run and answers at once.
pub(crate) fn start(site: &Arc<Site>, text: &[u8]) -> Response<Body> {
    let wanted: Start = match body(text) {
        Ok(wanted) => wanted,
        Err(refused) => return *refused,
    };
    let lane = match site.agent.find(&wanted.test, wanted.target.as_deref()) {
        Ok((lane, _)) => lane,
        Err(unknown) => return json_error(StatusCode::BAD_REQUEST, &unknown.to_string()),
    };
    let peer = match site.agent.find_peer(&lane, wanted.peer.as_deref()) {
        Ok(peer) => peer,
        Err(unknown) => return json_error(StatusCode::BAD_REQUEST, &unknown.to_string()),
    };
    let id = site.asks.begin();
    let site = site.clone();
    tokio::spawn(async move {
        let ended = match lane.run_now(None, peer).await {
            Ok(run) => Ask::Ended(run),
            Err(_) => Ask::Refused,
        };
        site.asks.end(id, ended);
    });
    let location = format!("/api/v1/runs/ask-{id}");
    let mut response =
        json(StatusCode::ACCEPTED, &json!({ "id": format!("ask-{id}"), "location": location.as_str() }));
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// `POST /api/v1/hold`
pub(crate) fn hold(agent: &Agent, by: &str, text: &[u8]) -> Response<Body> {
    let wanted: HoldFor = match body(text) {
        Ok(wanted) => wanted,
        Err(refused) => return *refused,
    };
    match agent.place_hold(wanted.lasting, wanted.reason, by.to_string()) {
        Ok(hold) => json(
            StatusCode::OK,
            &json!({ "since": hold.since, "until": hold.until, "reason": hold.reason, "by": hold.by }),
        ),
        Err(error) => hold_refused(error),
    }
}

/// What was asked for is the caller's to mend, and a file that can't be written is ours.
fn hold_refused(error: HoldError) -> Response<Body> {
    let status = match error {
        HoldError::Length(_) | HoldError::Reason => StatusCode::BAD_REQUEST,
        HoldError::File { .. } => StatusCode::INTERNAL_SERVER_ERROR,
    };
    json_error(status, &format!("{:#}", anyhow::Error::from(error)))
}

/// `POST /api/v1/release`
pub(crate) fn release(agent: &Agent, by: &str) -> Response<Body> {
    match agent.release(by) {
        Ok(released) => json(StatusCode::OK, &json!({ "released": released })),
        Err(error) => hold_refused(error),
    }
}

/// `POST /api/v1/inventory/accept`
pub(crate) fn accept(agent: &Agent, by: &str) -> Response<Body> {
    json(StatusCode::OK, &json!({ "forgotten": agent.accept_inventory(by) }))
}

/// Which baselines are meant; none means all.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Baselines {
    test: Option<String>,
    target: Option<String>,
}

/// `GET /api/v1/baseline`
pub(crate) fn baseline(agent: &Agent) -> Response<Body> {
    let book = agent.core().baseline.book();
    json(StatusCode::OK, &json!({ "series": book.entries().collect::<Vec<_>>() }))
}

/// `POST /api/v1/baseline/accept` and `/reset`
pub(crate) fn change_baseline(agent: &Agent, by: &str, path: &str, text: &[u8]) -> Response<Body> {
    let wanted: Baselines = match body(text) {
        Ok(wanted) => wanted,
        Err(refused) => return *refused,
    };
    let probe = match wanted.test.as_deref().map(|test| (test, probes::find(test))) {
        None => None,
        Some((_, Some(probe))) => Some(probe.name()),
        Some((test, None)) => {
            let known = crate::words::known_tests();
            return json_error(
                StatusCode::BAD_REQUEST,
                &format!("there is no test {test:?}; known are {known}"),
            );
        }
    };
    let which = Which { probe, target: wanted.target.as_deref() };
    let accept = path.ends_with("accept");
    let changed = agent.core().baseline.change(|book| match accept {
        true => book.accept(&which, epoch_seconds()),
        false => book.reset(&which),
    });
    tracing::info!(by, test = probe, target = wanted.target, accept, changed, "baselines were changed");
    json(StatusCode::OK, &json!({ if accept { "accepted" } else { "forgotten" }: changed }))
}

/// `POST /-/reload`
pub(crate) async fn reload(agent: &Agent) -> Response<Body> {
    match agent.request_reload().await {
        Ok(()) => crate::http::route::words(StatusCode::OK, "the configuration was read again"),
        Err(what) => crate::http::route::words(
            StatusCode::INTERNAL_SERVER_ERROR,
            &format!("the configuration is broken, the one before stays in force: {what}"),
        ),
    }
}

/// Which of a run's reports answer for the asked target; none asks for all of them.
pub(crate) fn reports<'a>(
    run: &'a Run,
    target: Option<&'a Target>,
) -> impl Iterator<Item = &'a crate::run::Report> + Clone {
    run.reports.iter().filter(move |report| target.is_none_or(|target| report.target == *target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_requests_are_forgotten_and_the_others_found() {
        let asks = Asks::default();
        let first = asks.begin();
        let second = asks.begin();
        asks.end(second, Ask::Refused);
        assert!(matches!(asks.find(first), Some(Ask::Waiting)));
        assert!(matches!(asks.find(second), Some(Ask::Refused)));
        for _ in 0..ASKS - 1 {
            asks.begin();
        }
        assert!(asks.find(first).is_none());
        asks.end(first, Ask::Refused);
        assert!(asks.find(second).is_some());
    }

    #[test]
    fn a_body_that_is_not_meant_is_refused_by_name() {
        let held: HoldFor = body(br#"{"for": "2h", "reason": "swap"}"#).unwrap();
        assert_eq!((held.lasting, held.reason.as_str()), (Duration::from_secs(7200), "swap"));
        for wrong in [
            r#"{"for": "2h"}"#,
            r#"{"for": "soon", "reason": ""}"#,
            r#"{"for": "2h", "reason": "", "x": 1}"#,
            "",
        ] {
            assert_eq!(
                body::<HoldFor>(wrong.as_bytes()).unwrap_err().status(),
                StatusCode::BAD_REQUEST,
                "{wrong}"
            );
        }
    }
}
