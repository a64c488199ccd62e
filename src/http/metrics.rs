//! `/metrics`: which format and encoding the scraper wants. What is in it comes from memory.

use std::{
    io::Write as _,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use flate2::{Compression, write::GzEncoder};
use hyper::{
    HeaderMap, Response,
    body::Bytes,
    header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY},
};

use crate::{http::Body, metrics::Format};

/// Below this a packet holds the answer anyhow, and packing it only takes time.
const GZIP_FROM_BYTES: usize = 1024;

/// The exact content type; Prometheus 3 fails a scrape whose type it can't parse.
fn content_type(format: Format) -> &'static str {
    match format {
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Text => "text/plain; version=0.0.4; charset=utf-8",
    }
}

/// How long an answer serves everybody who asks for the same: scrapers that come at once get one
/// that was made once, and whoever floods us makes us work twenty times a second at most.
const SHARED: Duration = Duration::from_millis(50);

/// What a scraper wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    format: Format,
    gzip: bool,
}

impl Wanted {
    fn of(headers: &HeaderMap) -> Wanted {
        let gzip = gzip(all(headers, &ACCEPT_ENCODING).as_deref());
        Wanted { format: format(all(headers, &ACCEPT).as_deref()), gzip }
    }
}

/// The body of an answer.
#[derive(Clone, Debug)]
struct Made {
    packed: bool,
    bytes: Bytes,
}

impl Made {
    fn of(text: String, gzip: bool) -> Made {
        if gzip && text.len() >= GZIP_FROM_BYTES {
            let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 8), Compression::fast());
            // Writing to memory does not fail; if it did, the plain text is as good.
            if let Ok(packed) = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish()) {
                return Made { packed: true, bytes: Bytes::from(packed) };
            }
        }
        Made { packed: false, bytes: Bytes::from(text) }
    }

    fn answer(self, format: Format) -> Response<Body> {
        let mut response = Response::new(Body::from(self.bytes));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static(content_type(format)));
        fields.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
        if self.packed {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// The newest answers, one for each thing that can be wanted.
#[derive(Debug, Default)]
pub(crate) struct Newest(Mutex<Vec<(Wanted, Instant, Made)>>);

impl Newest {
    /// Answers with metrics in the format that was negotiated. Who asks while an answer is made
    /// waits for that one.
    pub(crate) fn answer(
        &self,
        headers: &HeaderMap,
        encode: impl FnOnce(Format) -> String,
    ) -> Response<Body> {
        let wanted = Wanted::of(headers);
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.retain(|(_, at, _)| at.elapsed() < SHARED);
        if let Some((_, _, made)) = newest.iter().find(|(known, _, _)| *known == wanted) {
            return made.clone().answer(wanted.format);
        }
        let made = Made::of(encode(wanted.format), wanted.gzip);
        newest.push((wanted, Instant::now(), made.clone()));
        made.answer(wanted.format)
    }

    /// Something was changed by somebody who may look at once.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Answers with metrics of one run.
pub(crate) fn answer(headers: &HeaderMap, encode: impl FnOnce(Format) -> String) -> Response<Body> {
    let wanted = Wanted::of(headers);
    Made::of(encode(wanted.format), wanted.gzip).answer(wanted.format)
}

/// All values of a header as one list; none if it is absent.
fn all(headers: &HeaderMap, name: &hyper::header::HeaderName) -> Option<String> {
    let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

/// One entry of an `Accept` list: `type;parameter=value;q=0.5`.
struct Entry<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

fn entries(list: &str) -> impl Iterator<Item = Entry<'_>> {
    list.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let mut entry = Entry { name, parameters: Vec::new(), quality: 1.0 };
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            if key.eq_ignore_ascii_case("q") {
                // A quality that is no number was not meant to forbid.
                entry.quality = value.parse().unwrap_or(1.0);
            } else {
                entry.parameters.push((key, value.trim_matches('"')));
            }
        }
        entry
    })
}

/// The format that the caller likes best. Nothing that we have is answered with the older one,
/// which every Prometheus reads, and never with 406: a scrape must not fail over a header.
fn format(accept: Option<&str>) -> Format {
    let (mut open_metrics, mut text, mut anything) = (None::<f64>, None::<f64>, None::<f64>);
    for entry in entries(accept.unwrap_or_default()) {
        let version = entry.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case("version"));
        let best = match (entry.name.to_ascii_lowercase().as_str(), version.map(|(_, version)| *version)) {
            ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1")) => &mut open_metrics,
            ("text/plain", None | Some("0.0.4")) | ("text/*", _) => &mut text,
            ("*/*", _) => &mut anything,
            _ => continue,
        };
        *best = Some(best.unwrap_or(0.0).max(entry.quality));
    }
    let text = text.or(anything).unwrap_or(0.0);
    match open_metrics {
        Some(quality) if quality > 0.0 && quality >= text => Format::OpenMetrics,
        Some(_) | None => Format::Text,
    }
}

fn gzip(accept: Option<&str>) -> bool {
    let mut anything = false;
    for entry in entries(accept.unwrap_or_default()) {
        match entry.name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => return entry.quality > 0.0,
            "*" => anything = entry.quality > 0.0,
            _ => {}
        }
    }
    anything
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn the_format_that_the_scraper_likes_best_is_sent() {
        use Format::{OpenMetrics, Text};
        let table = [
            (None, Text),
            (Some(""), Text),
            (Some("*/*"), Text),
            // A browser.
            (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Text),
            // Prometheus 2.42.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                OpenMetrics,
            ),
            // Prometheus 3.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                ),
                OpenMetrics,
            ),
            // Prometheus 3 that prefers protobuf, which we don't have.
            (
                Some(
                    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                ),
                OpenMetrics,
            ),
            // Prometheus with scrape_protocols: [PrometheusText0.0.4].
            (Some("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Text),
            (Some("text/plain;version=0.0.4;q=0.9,application/openmetrics-text;version=1.0.0;q=0.2"), Text),
            (Some("application/openmetrics-text;version=1.0.0;q=0"), Text),
            (Some("application/openmetrics-text;version=2.0.0"), Text),
            (Some("application/openmetrics-text; version=\"1.0.0\" ; charset=utf-8"), OpenMetrics),
            (Some("APPLICATION/OpenMetrics-Text"), OpenMetrics),
            (Some("application/openmetrics-text;q=0.5,*/*;q=0.9"), Text),
            (Some(";;;,,q=,text/plain;q=x"), Text),
        ];
        for (accept, expected) in table {
            assert_eq!(format(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn gzip_is_sent_to_those_who_take_it() {
        let table = [
            (None, false),
            (Some("gzip"), true),
            (Some("deflate, gzip;q=0.5, br"), true),
            (Some("gzip;q=0"), false),
            (Some("*;q=0.1"), true),
            (Some("*, gzip;q=0"), false),
            (Some("br"), false),
        ];
        for (accept, expected) in table {
            assert_eq!(gzip(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn scrapers_that_come_at_once_share_an_answer_and_later_ones_do_not() {
        let (newest, mut headers) = (Newest::default(), HeaderMap::new());
        let made = std::cell::Cell::new(0);
        let encode = |_| {
            made.set(made.get() + 1);
            "up 1\n".to_string()
        };
        for _ in 0..10 {
            newest.answer(&headers, encode);
        }
        assert_eq!(made.get(), 1);
        headers.insert(ACCEPT, HeaderValue::from_static("application/openmetrics-text"));
        newest.answer(&headers, encode);
        assert_eq!(made.get(), 2, "another format is another answer");
        std::thread::sleep(SHARED);
        newest.answer(&headers, encode);
        assert_eq!(made.get(), 3);
    }

    #[tokio::test]
    async fn what_is_packed_unpacks_to_the_same_text() {
        use http_body_util::BodyExt as _;
        let text = "up 1\n".repeat(1000);
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        let response = answer(&headers, |_| text.clone());
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[CONTENT_TYPE], content_type(Format::Text));
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() < text.len() / 10);
        let mut unpacked = String::new();
        flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut unpacked).unwrap();
        assert_eq!(unpacked, text);
    }
}
