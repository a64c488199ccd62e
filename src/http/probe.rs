//! `/probe?test=`: a run now, in blackbox_exporter's manners.
//!
//! A run that happened is 200 with `probe_success`, good or bad; what could not start is a status
//! of its own with the reason, so that a scraper never takes "busy" for "broken".

use std::{
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};
use hyper::{HeaderMap, Response, StatusCode};
use probes::{Cost, Target, Verdict};

use crate::{
    agent::Lookup,
    http::{
        Body, api,
        auth::Caller,
        metrics, query,
        route::{self, Site, later},
    },
    metrics::{self as exposition, Format},
    run::{Outcome, Run, Skip, SkipReason},
    words,
};

/// Prometheus says how long it waits; the answer must be there before.
const ANSWER_BEFORE: Duration = Duration::from_millis(500);

/// When a lane that has a request waiting already is worth asking again.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// When an agent that has just started may know its parts.
const START_RETRY: Duration = Duration::from_secs(1);

/// What anybody may ask of each probe at once: as much as a person and two scripts could want. A
/// run costs some 10 ms of a core, and a second brings one more.
const OPEN_BURST: NonZeroU32 = NonZeroU32::new(30).unwrap();

/// Bounds how often callers whom nobody knows may ask for a run of a probe.
#[derive(Debug)]
pub(crate) struct Asked<C: Clock = DefaultClock> {
    clock: C,
    by_probe: ByProbe<C>,
}

type ByProbe<C> =
    RateLimiter<&'static str, HashMapStateStore<&'static str>, C, NoOpMiddleware<<C as Clock>::Instant>>;

impl<C: Clock + Clone> Asked<C> {
    pub(crate) fn new(clock: C) -> Asked<C> {
        let quota = Quota::per_second(NonZeroU32::MIN).allow_burst(OPEN_BURST);
        Asked { by_probe: RateLimiter::hashmap_with_clock(quota, clock.clone()), clock }
    }

    /// Takes one of a probe, or says when there will be one.
    fn take(&self, probe: &'static str) -> Result<(), Duration> {
        let taken = self.by_probe.check_key(&probe);
        taken.map_err(|not_until| not_until.wait_time_from(self.clock.now()))
    }
}

/// Answers `/probe`.
pub(crate) async fn answer(
    site: &Arc<Site>,
    caller: &Caller,
    headers: &HeaderMap,
    asked: Option<&str>,
) -> Response<Body> {
    let bad = |what: &str| route::words(StatusCode::BAD_REQUEST, what);
    let query = match query::parse(asked, &["test", "target", "peer", "debug"]) {
        Ok(query) => query,
        Err(what) => return bad(&what),
    };
    let debug = match query.get("debug").map(String::as_str) {
        None | Some("false" | "0") => false,
        Some("true" | "1") => true,
        Some(_) => return bad("debug must be true or false"),
    };
    let Some(test) = query.get("test") else {
        return bad(&format!("parameter \"test\" is missing; known are {}", words::known_tests()));
    };
    let (lane, target) = match site.agent.find(test, query.get("target").map(String::as_str)) {
        Ok(found) => found,
        Err(unknown @ (Lookup::Test(..) | Lookup::Off(_))) => return bad(&unknown.to_string()),
        Err(Lookup::Target { .. } | Lookup::NoTarget(_) | Lookup::TargetMissing { .. })
            if !site.agent.ready() =>
        {
            return not_ready();
        }
        Err(
            unknown @ (Lookup::Target { .. }
            | Lookup::NoTarget(_)
            | Lookup::TargetMissing { .. }
            | Lookup::Alone(_)
            | Lookup::Peer { .. }),
        ) => return bad(&unknown.to_string()),
    };
    let peer = match site.agent.find_peer(&lane, query.get("peer").map(String::as_str)) {
        Ok(peer) => peer,
        Err(unknown) => return bad(&unknown.to_string()),
    };
    let probe = lane.probe.name();
    let cost = {
        let config = site.agent.config.borrow();
        lane.probe.cost(&config.settings, target.as_ref().or(lane.target.as_ref()).unwrap_or(&Target::Node))
    };
    match cost {
        Cost::Passive => {}
        Cost::Light | Cost::Heavy => {
            if let Err(refused) = route::may_act(site, caller, headers) {
                return *refused;
            }
        }
    }
    if debug && !caller.trusted() {
        return route::forbidden(site, "debug shows command lines and logs");
    }
    let own = site.agent.longest(&lane);
    let shortened = match patience(headers) {
        Ok(patience) => patience.filter(|patience| *patience < own),
        Err(what) => return bad(&what),
    };
    if !site.agent.ready() {
        return not_ready();
    }
    if !caller.trusted()
        && let Err(wait) = site.asked.take(probe)
    {
        site.agent.totals().refuse(probe, SkipReason::Budget);
        return refused(SkipReason::Budget, &format!("{probe} is asked for more than once a second"), wait);
    }
    let began = Instant::now();
    let until = shortened.map(|patience| tokio::time::Instant::from_std(began) + patience);
    let run = match lane.run_now(until, peer).await {
        Ok(run) => run,
        Err(_) => {
            site.agent.totals().refuse(probe, SkipReason::Busy);
            return refused(SkipReason::Busy, "another request for this run is waiting already", BUSY_RETRY);
        }
    };
    if let Outcome::Skipped(Skip { reason, detail, retry_after }) = &run.outcome {
        return refused(*reason, detail, *retry_after);
    }
    let answer = Answer {
        run: &run,
        target: target.as_ref(),
        took: began.elapsed(),
        timeout: shortened.unwrap_or(own),
    };
    if debug {
        return route::words(StatusCode::OK, answer.debug().trim_end());
    }
    metrics::answer(headers, |format| answer.encode(format))
}

/// How long Prometheus waits for us, less what the way takes; none if it does not say.
fn patience(headers: &HeaderMap) -> Result<Option<Duration>, String> {
    let Some(value) = headers.get("x-prometheus-scrape-timeout-seconds") else { return Ok(None) };
    let seconds = value.to_str().ok().and_then(|text| text.parse::<f64>().ok());
    let timeout = seconds
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            format!("X-Prometheus-Scrape-Timeout-Seconds: {value:?} is not a number of seconds")
        })?;
    // With a timeout too short for the allowance, half of it is still better than nothing.
    Ok(Some(timeout.saturating_sub(ANSWER_BEFORE).max(timeout / 2)))
}

/// Before the parts are known, a run would say of none of them that it failed.
fn not_ready() -> Response<Body> {
    later(StatusCode::SERVICE_UNAVAILABLE, route::NOT_READY, START_RETRY)
}

fn refused(reason: SkipReason, detail: &str, retry_after: Duration) -> Response<Body> {
    let status = match reason {
        SkipReason::Budget => StatusCode::TOO_MANY_REQUESTS,
        SkipReason::Inactive
        | SkipReason::Held
        | SkipReason::Busy
        | SkipReason::Locked
        | SkipReason::Occupied
        | SkipReason::NoPartner
        | SkipReason::Refused
        | SkipReason::Away
        | SkipReason::Untrusted => StatusCode::CONFLICT,
    };
    later(status, &format!("{}: {detail}", reason.word()), retry_after)
}

/// A finished run, for the caller who waited for it.
struct Answer<'a> {
    run: &'a Arc<Run>,
    target: Option<&'a Target>,
    took: Duration,
    timeout: Duration,
}

impl Answer<'_> {
    fn success(&self) -> bool {
        let worst = Verdict::worst(api::reports(self.run, self.target).map(|report| report.verdict));
        self.run.outcome == Outcome::Completed && worst == Verdict::Pass
    }

    /// The metrics of this run and of nothing else.
    fn encode(&self, format: Format) -> String {
        let own = [
            (
                "probe_success",
                "1 if the run completed and everything asked for passed; the verdicts say why not.",
                f64::from(u8::from(self.success())),
            ),
            ("probe_duration_seconds", "Seconds from the request to the answer.", self.took.as_secs_f64()),
            (
                "probe_timeout_seconds",
                "Seconds after which the run would have been ended.",
                self.timeout.as_secs_f64(),
            ),
        ];
        let reports = api::reports(self.run, self.target).cloned().collect();
        exposition::encode_answer(own, self.run, reports, format)
    }

    /// Everything about the run, for a person.
    fn debug(&self) -> String {
        let run = self.run;
        let mut out = String::new();
        let mut line = |text: String| {
            out.push_str(&text);
            out.push('\n');
        };
        line(format!("run {} of {}, {}: {}", run.id, run.probe, run.occasion(), run.outcome));
        line(format!("took {:.3} s of at most {:.3} s", self.took.as_secs_f64(), self.timeout.as_secs_f64()));
        for report in api::reports(run, self.target) {
            line(format!("\n{}: {}: {}", report.target, report.verdict, report.reason));
            for finding in &report.findings {
                line(words::lines(finding).trim_end().to_string());
            }
        }
        for step in &run.evidence {
            line(format!("\nargv: {:?}", step.argv));
            line(format!("exit: {}, after {:.3} s", step.exit, step.took.as_secs_f64()));
            for (name, text) in [("standard output", &step.stdout), ("standard error", &step.stderr)] {
                match text.trim_end() {
                    "" => line(format!("{name}: empty")),
                    text => line(format!("{name}:\n{text}")),
                }
            }
        }
        line("\nmetrics:".to_string());
        line(self.encode(Format::Text));
        out
    }
}

#[cfg(test)]
#[path = "probe_tests.rs"]
mod tests;
