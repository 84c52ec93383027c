//! Routes requests to answers.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::sync::mpsc;

use crate::body::Sent;
use crate::page;
use crate::sample::Sampler;

/// Interval of a stream's events, unless the request sets one.
const EVERY_MS: u64 = 1000;
/// Content security policy: load only from this server, and allow no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub async fn answer<B>(request: &Request<B>, may_look: bool, sampler: &Arc<Sampler>) -> Response<Sent> {
    let mut response = if !is_for_here(request.headers()) {
        refusal(StatusCode::MISDIRECTED_REQUEST, "this server is for 127.0.0.1 and localhost only")
    } else if !may_look {
        refusal(StatusCode::FORBIDDEN, "this user may not read the store")
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "nothing can be changed here");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        response
    } else {
        content(request, sampler).await
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn content<B>(request: &Request<B>, sampler: &Arc<Sampler>) -> Response<Sent> {
    let path = request.uri().path();
    match path {
        "/metrics" => match sampler.sample().await {
            Ok(sample) => {
                let text = cenote_telemetry::prometheus(sampler.store(), &sample.telemetry);
                whole(StatusCode::OK, cenote_telemetry::CONTENT_TYPE, text.into())
            }
            Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        },
        "/api/telemetry" => match sampler.sample().await {
            Ok(sample) => whole(StatusCode::OK, "application/json", sample.json.clone()),
            Err(error) => refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        },
        "/api/stream" if request.method() == Method::HEAD => whole(StatusCode::OK, "text/event-stream", Bytes::new()),
        "/api/stream" => stream(sampler, every(request.uri().query())),
        _ => match page::file(path) {
            Some((kind, bytes)) => whole(StatusCode::OK, kind, Bytes::from_static(bytes)),
            None => refusal(StatusCode::NOT_FOUND, "there is no such page; begin at /"),
        },
    }
}

/// Returns true if the request names this machine as its host: another site's name that leads here is
/// an attack.
fn is_for_here(headers: &HeaderMap) -> bool {
    let is_here = |host: &str| {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
            None => host.split_once(':').map_or(host, |(name, _)| name),
        };
        matches!(name, "127.0.0.1" | "localhost" | "::1")
    };
    let host = headers.get_all(header::HOST).iter().collect::<Vec<_>>();
    let [host] = host.as_slice() else { return false };
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or("?"));
    let from_here = origin.is_none_or(|origin| origin.strip_prefix("http://").is_some_and(is_here));
    host.to_str().is_ok_and(is_here) && from_here
}

/// Interval of events: `every=N` milliseconds, 200 to 60,000.
fn every(query: Option<&str>) -> Duration {
    let asked = query.unwrap_or("").split('&').find_map(|pair| pair.strip_prefix("every=")?.parse().ok());
    Duration::from_millis(asked.unwrap_or(EVERY_MS).clamp(200, 60_000))
}

/// Streams events until the client or the store is gone.
fn stream(sampler: &Arc<Sampler>, every: Duration) -> Response<Sent> {
    // A slow reader gets fewer events, and little memory waits for it.
    let (send, events) = mpsc::channel(1);
    let sampler = sampler.clone();
    tokio::spawn(async move {
        loop {
            let Ok(sample) = sampler.sample().await else { return };
            let event = [b"data: ".as_slice(), &sample.json, b"\n\n"].concat();
            if send.send(event.into()).await.is_err() {
                return;
            }
            drop(sample);
            if tokio::time::timeout(every, send.closed()).await.is_ok() {
                return;
            }
        }
    });
    let mut response = Response::new(Sent::Events(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
}

fn whole(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response<Sent> {
    let mut response = Response::new(Sent::Whole(Some(bytes)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn refusal(status: StatusCode, why: &str) -> Response<Sent> {
    whole(status, "text/plain; charset=utf-8", format!("{why}\n").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machines_names_will_do() {
        let with = |host: &[&'static str], origin: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            for host in host {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            is_for_here(&headers)
        };
        for host in ["127.0.0.1", "127.0.0.1:7117", "localhost:1", "[::1]:7117", "[::1]"] {
            assert!(with(&[host], None), "{host}");
        }
        for host in ["", "evil.example", "evil.example:7117", "127.0.0.1.evil.example", "localhost.evil", "[::2]:1"] {
            assert!(!with(&[host], None), "{host}");
        }
        assert!(!with(&[], None) && !with(&["127.0.0.1", "evil.example"], None));
        assert!(with(&["localhost:1"], Some("http://localhost:1")));
        assert!(!with(&["localhost:1"], Some("https://evil.example")) && !with(&["localhost:1"], Some("null")));
    }

    #[test]
    fn the_pace_of_a_stream_is_bounded() {
        let ms = |query| every(query).as_millis();
        assert_eq!(
            (ms(None), ms(Some("every=1")), ms(Some("a=b&every=500")), ms(Some("every=x"))),
            (1000, 200, 500, 1000)
        );
    }
}
