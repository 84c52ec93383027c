//! An HTTP client for `opendal` that runs on the calling thread: no runtime, no threads that a fork would lose, and a
//! time-out for everything.

use std::fmt::{self, Write as _};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, ETAG, IF_NONE_MATCH, RANGE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use md5::{Digest, Md5};
use opendal_core::{Buffer, Error, ErrorKind, HttpBody, HttpTransport};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, SendBody};

/// Time limits of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timeouts {
    /// To resolve the service's name and connect.
    pub connect: Duration,
    /// From the last byte of a request to the first of the answer.
    pub answer: Duration,
    /// The same limit while others wait for a tier to be opened.
    pub answer_soon: Duration,
    /// For a request with all its bytes, in both directions.
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            answer: Duration::from_secs(30),
            answer_soon: Duration::from_secs(10),
            whole: Duration::from_mins(2),
        }
    }
}

/// Answers slower than this are abandoned, but not before the time limit for a first byte.
const BYTES_PER_S_MIN: u64 = 64 << 10;
const IDLE_MAX: usize = 16;
/// Upper bound of the service's error text that is repeated.
const TEXT_BYTES: usize = 300;

/// Makes requests. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub(super) struct Http {
    agent: Agent,
    settings: Settings,
    timeouts: Timeouts,
    /// Others wait for the current requests.
    is_in_haste: Arc<AtomicBool>,
}

/// Settings that `opendal` cannot express.
#[derive(Clone, Copy, Default)]
pub(super) struct Settings {
    /// A put must not replace an existing object.
    pub only_new: bool,
    /// Let the service check a put by the MD5 in `ETag`, as Swift does.
    pub etag: bool,
}

/// Why there is no successful answer.
#[derive(Debug)]
pub(super) enum HttpFailure {
    /// The service refuses; its status and text.
    Status(StatusCode, String),
    /// No answer.
    Nothing(String),
    /// The range ends early; these bytes are all of it.
    Short(Bytes),
}

impl fmt::Display for HttpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status, text) if text.is_empty() => write!(f, "the service answers {status}"),
            Self::Status(status, text) => write!(f, "the service answers {status}: {text}"),
            Self::Nothing(why) => f.write_str(why),
            Self::Short(bytes) => write!(f, "the object ends after {} bytes of the range", bytes.len()),
        }
    }
}
impl std::error::Error for HttpFailure {}

impl Http {
    /// `local`: the service is on this machine, so no proxy is used.
    pub fn new(local: bool, timeouts: Timeouts) -> Self {
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let mut config = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(4)
            .max_idle_connections(IDLE_MAX)
            .max_idle_connections_per_host(IDLE_MAX)
            .timeout_connect(Some(timeouts.connect))
            .timeout_resolve(Some(timeouts.connect))
            .timeout_per_call(Some(timeouts.whole))
            .timeout_global(Some(timeouts.whole))
            .user_agent("cenote");
        if local {
            config = config.proxy(None);
        }
        Self {
            agent: Agent::new_with_config(config.build()),
            settings: Settings::default(),
            timeouts,
            is_in_haste: Arc::default(),
        }
    }
    /// Sets whether others wait for the requests from now on.
    pub fn hasten(&self, is_in_haste: bool) {
        self.is_in_haste.store(is_in_haste, Ordering::Relaxed);
    }
    pub fn with(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// Makes a request and reads the whole answer, whatever its status.
    pub fn ask(&self, request: Request<Buffer>) -> Result<Response<Bytes>, HttpFailure> {
        let nothing = |error: &ureq::Error| HttpFailure::Nothing(format!("{error}"));
        let (mut parts, body) = request.into_parts();
        parts.extensions.clear();
        if parts.method == Method::PUT {
            self.describe(&mut parts.headers, &body);
        }
        let haste = self.is_in_haste.load(Ordering::Relaxed);
        let answer_in = if haste { self.timeouts.answer_soon } else { self.timeouts.answer };
        let answer = if parts.method == Method::PUT || parts.method == Method::POST {
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(body.len()));
            let mut body = body;
            let request = Request::from_parts(parts, SendBody::from_reader(&mut body));
            let request = self.agent.configure_request(request).timeout_recv_response(Some(answer_in));
            self.agent.run(request.build())
        } else {
            // Detects a service that falls silent during an answer before the limit for long answers has passed.
            let slowest = Duration::from_secs(range_len(&parts.headers).unwrap_or(0) / BYTES_PER_S_MIN);
            let request = self.agent.configure_request(Request::from_parts(parts, ()));
            let request = request.timeout_recv_response(Some(answer_in));
            self.agent.run(request.timeout_recv_body(Some(answer_in.max(slowest))).build())
        };
        let (parts, body) = answer.map_err(|error| nothing(&error))?.into_parts();
        let mut bytes = Vec::new();
        body.into_reader()
            .read_to_end(&mut bytes)
            .map_err(|error| HttpFailure::Nothing(format!("the answer ends: {error}")))?;
        Ok(Response::from_parts(parts, bytes.into()))
    }

    fn describe(&self, headers: &mut http::HeaderMap, body: &Buffer) {
        if self.settings.only_new {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        if self.settings.etag {
            let mut md5 = Md5::new();
            body.clone().for_each(|part: Bytes| md5.update(&part));
            let digits = md5.finalize().iter().fold(String::new(), |mut digits, byte| {
                let _ = write!(digits, "{byte:02x}"); // writes to memory
                digits
            });
            headers.extend(HeaderValue::try_from(digits).map(|digits| (ETAG, digits)));
        }
    }

    /// Like [`Http::ask`], but a status other than success is an error.
    pub fn ask_well(&self, request: Request<Buffer>) -> Result<Response<Bytes>, HttpFailure> {
        let answer = self.ask(request)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        Err(HttpFailure::Status(status, shortened(answer.body())))
    }
}

/// Number of bytes in a request's range, if it has one.
fn range_len(headers: &http::HeaderMap) -> Option<u64> {
    let (first, last) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
}

/// The text of a service, on one line and shortened.
fn shortened(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * TEXT_BYTES)]);
    let field = |name: &str| {
        let from = text.find(&format!("<{name}>"))? + name.len() + 2;
        Some(text[from..].split('<').next().unwrap_or_default().to_owned())
    };
    if let (Some(code), Some(message)) = (field("Code"), field("Message")) {
        return format!("{code}: {message}");
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(TEXT_BYTES).collect()
}

impl HttpTransport for Http {
    async fn fetch(&self, request: Request<Buffer>) -> opendal_core::Result<Response<HttpBody>> {
        let wanted = range_len(request.headers());
        let answer = match self.ask_well(request) {
            Err(HttpFailure::Status(StatusCode::RANGE_NOT_SATISFIABLE, _)) if wanted.is_some() => {
                Err(HttpFailure::Short(Bytes::new()))
            }
            Ok(answer) if wanted.is_some_and(|wanted| (answer.body().len() as u64) < wanted) => {
                Err(HttpFailure::Short(answer.into_body()))
            }
            answer => answer,
        };
        match answer {
            Ok(answer) => {
                let (parts, bytes) = answer.into_parts();
                let len = bytes.len() as u64;
                let stream = futures::stream::iter([Ok(Buffer::from(bytes))]);
                Ok(Response::from_parts(parts, HttpBody::new(stream, Some(len))))
            }
            Err(said) => Err(Error::new(ErrorKind::Unexpected, said.to_string()).set_source(said)),
        }
    }
}
