//! etcd's JSON gateway: calls by HTTP that try one endpoint after the other, within one time limit.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::{EtcdOptions, Login, Tls};

/// Longest answer: a record in base 64, with room.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How much of an endpoint's own words is repeated.
const TEXT_CHARS: usize = 300;

const NEXT: &str = "check etcd and the way to it (`etcdctl endpoint health`); the register works again by itself then";

/// Codes of gRPC, which the gateway passes on.
mod code {
    pub const INVALID: u64 = 3;
    pub const DEADLINE: u64 = 4;
    pub const DENIED: u64 = 7;
    pub const EXHAUSTED: u64 = 8;
    pub const UNIMPLEMENTED: u64 = 12;
    pub const UNAVAILABLE: u64 = 14;
    pub const UNAUTHENTICATED: u64 = 16;
}

pub(super) struct Gateway {
    agent: Agent,
    endpoints: Vec<String>,
    login: Option<Login>,
    timeout: Duration,
    subject: String,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    /// What etcd gave for user and password.
    pass: Mutex<Option<String>>,
}

/// Why a call has no good answer.
pub(super) struct Trouble {
    pub error: Error,
    /// The call may have been carried out, or may yet be.
    pub may_happen: bool,
}

/// Why one endpoint has no good answer.
enum Why {
    /// There was no answer. False: nothing was sent either.
    Silent(String, bool),
    /// It refused: HTTP status, code and words.
    Refused(u16, u64, String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent(why, _) => f.write_str(why),
            Self::Refused(_, _, words) => write!(f, "it answers: {words}"),
        }
    }
}

impl Why {
    /// Returns true if another endpoint may give another answer.
    fn is_passing(&self) -> bool {
        match self {
            Self::Silent(..) => true,
            Self::Refused(status, code, _) => {
                !is_definite(*code) && (*status >= 500 || matches!(*code, code::UNAVAILABLE | code::DEADLINE))
            }
        }
    }
    /// Returns true if the call may have been carried out.
    fn may_happen(&self) -> bool {
        match self {
            Self::Silent(_, was_sent) => *was_sent,
            Self::Refused(_, code, _) => self.is_passing() || !is_definite(*code),
        }
    }
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Silent(..) => ErrorKind::Disconnected,
            Self::Refused(_, code::DENIED | code::UNAUTHENTICATED, _) => ErrorKind::PermissionDenied,
            Self::Refused(_, code::INVALID, words)
                if words.contains("user name is empty") || words.contains("authentication") =>
            {
                ErrorKind::PermissionDenied
            }
            Self::Refused(_, code::EXHAUSTED, words) if words.contains("space") => ErrorKind::Full,
            Self::Refused(_, code::EXHAUSTED, _) => ErrorKind::Busy,
            Self::Refused(_, code::INVALID, _) => ErrorKind::InvalidInput,
            Self::Refused(404, ..) | Self::Refused(_, code::UNIMPLEMENTED, _) => ErrorKind::Unsupported,
            _ if self.is_passing() => ErrorKind::Disconnected,
            Self::Refused(..) => ErrorKind::Io,
        }
    }
}

/// Returns true for codes that come before anything is done.
fn is_definite(code: u64) -> bool {
    use code::{DENIED, EXHAUSTED, INVALID, UNAUTHENTICATED, UNIMPLEMENTED};
    matches!(code, INVALID | DENIED | EXHAUSTED | UNIMPLEMENTED | UNAUTHENTICATED)
}

/// Returns true if etcd does not know the pass, or gave it before its users changed.
fn is_stale_pass(code: u64, words: &str) -> bool {
    code == code::UNAUTHENTICATED || words.contains("invalid auth token") || words.contains("auth store is old")
}

fn next_step(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied => "check the user, its password, and that its role may read and write the key",
        ErrorKind::Full => "compact and defragment etcd, then disarm its alarm (`etcdctl alarm disarm`)",
        ErrorKind::Unsupported => "name the client address of an etcd from 3.4 on, with its gRPC gateway on",
        _ => NEXT,
    }
}

impl Gateway {
    pub fn new(options: &EtcdOptions, subject: String) -> Result<Self> {
        if options.endpoints.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, subject)
                .because("no endpoint is named")
                .try_next("name one or more, such as `http://HOST:2379`"));
        }
        let config = Agent::config_builder()
            .tls_config(tls(&options.tls)?)
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent("cenote");
        Ok(Self {
            agent: Agent::new_with_config(config.build()),
            endpoints: options.endpoints.iter().map(|it| it.trim_end_matches('/').to_owned()).collect(),
            login: options.login.clone(),
            timeout: options.timeout,
            subject,
            preferred: AtomicUsize::new(0),
            pass: Mutex::default(),
        })
    }

    /// Calls one endpoint after the other until one answers or refuses for good, each once and the first one twice. So a call may be
    /// carried out more than once: callers send only what takes place once at most.
    pub fn call(&self, path: &str, body: &Value) -> Result<Value, Trouble> {
        let until = Instant::now() + self.timeout;
        let (first, tries) = (self.preferred.load(Ordering::Relaxed), self.endpoints.len() + 1);
        let mut may_happen = false;
        let mut last = None;
        for at in 0..tries {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let endpoint = (first + at) % self.endpoints.len();
            // A silent endpoint leaves time for those after it.
            match self.call_as_user(endpoint, path, body, left / (tries - at) as u32) {
                Ok(answer) => {
                    self.preferred.store(endpoint, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(why) => {
                    may_happen |= why.may_happen();
                    let is_over = !why.is_passing();
                    last = Some((endpoint, why));
                    if is_over {
                        break;
                    }
                }
            }
        }
        let error = self.error(last);
        Err(Trouble { error, may_happen })
    }

    #[cold]
    fn error(&self, last: Option<(usize, Why)>) -> Error {
        let Some((endpoint, why)) = last else {
            return super::super::away(self.subject.clone(), "its time-out is zero", NEXT);
        };
        let others = match self.endpoints.len() {
            1 => String::new(),
            all if why.is_passing() => format!(", the last of {all} that were tried"),
            _ => String::new(),
        };
        let kind = why.kind();
        Error::new(kind, self.subject.clone())
            .because(format!("{}{others}: {why}", self.endpoints[endpoint]))
            .try_next(next_step(kind))
    }

    /// Calls with a pass, if there is a user. One that etcd does not know any more is asked for again.
    fn call_as_user(&self, endpoint: usize, path: &str, body: &Value, within: Duration) -> Result<Value, Why> {
        let until = Instant::now() + within;
        let pass = self.pass(endpoint, within)?;
        let left = || until.saturating_duration_since(Instant::now());
        match self.post(endpoint, path, body, pass.as_deref(), left()) {
            Err(Why::Refused(_, code, words)) if pass.is_some() && is_stale_pass(code, &words) => {
                *self.pass.lock() = None;
                let pass = self.pass(endpoint, left())?;
                self.post(endpoint, path, body, pass.as_deref(), left())
            }
            answer => answer,
        }
    }

    fn pass(&self, endpoint: usize, within: Duration) -> Result<Option<String>, Why> {
        let Some(login) = &self.login else { return Ok(None) };
        if let Some(pass) = self.pass.lock().clone() {
            return Ok(Some(pass));
        }
        let body = json!({ "name": login.user, "password": login.password });
        let answer = self.post(endpoint, "/v3/auth/authenticate", &body, None, within).map_err(|why| match why {
            // What the pass was for has not been sent.
            Why::Silent(why, _) => Why::Silent(why, false),
            refused @ Why::Refused(..) => refused,
        })?;
        let pass = answer["token"].as_str().map(str::to_owned);
        self.pass.lock().clone_from(&pass);
        Ok(pass)
    }

    fn post(
        &self,
        endpoint: usize,
        path: &str,
        body: &Value,
        pass: Option<&str>,
        within: Duration,
    ) -> Result<Value, Why> {
        let mut answer = self.send(endpoint, path, body, pass, within)?;
        let status = answer.status().as_u16();
        let read = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = read.map_err(|error| Why::Silent(error.to_string(), true))?;
        judge(status, &bytes)
    }

    fn send(
        &self,
        endpoint: usize,
        path: &str,
        body: &Value,
        pass: Option<&str>,
        within: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, Why> {
        let url = format!("{}{path}", self.endpoints[endpoint]);
        let mut request = self.agent.post(&url).config().timeout_global(Some(within)).build();
        request = request.header("content-type", "application/json");
        if let Some(pass) = pass {
            request = request.header("authorization", pass);
        }
        request.send(body.to_string().as_bytes()).map_err(|error| Why::Silent(error.to_string(), was_sent(&error)))
    }

    /// Begins to watch a key, from before this returns; `None` if no endpoint lets it. It ends after `within`.
    pub fn watch(&self, key: &str, within: Duration) -> Option<Watch> {
        let endpoint = self.preferred.load(Ordering::Relaxed);
        let pass = self.pass(endpoint, within).ok()?;
        let body = json!({ "create_request": { "key": key } });
        let answer = self.send(endpoint, "/v3/watch", &body, pass.as_deref(), within).ok()?;
        if answer.status().as_u16() != 200 {
            return None;
        }
        let mut watch = Watch(BufReader::new(Box::new(answer.into_body().into_reader())));
        watch.line()?["result"]["created"].as_bool()?.then_some(watch)
    }
}

/// A key that is watched.
pub(super) struct Watch(BufReader<Box<dyn std::io::Read>>);

impl Watch {
    /// Waits until the key changes. False: the watch ended before.
    pub fn wait(mut self) -> bool {
        while let Some(line) = self.line() {
            if line["result"]["events"].as_array().is_some_and(|events| !events.is_empty()) {
                return true;
            }
        }
        false
    }
    /// The next message; `None` at the end.
    fn line(&mut self) -> Option<Value> {
        let mut line = Vec::new();
        std::io::Read::take(&mut self.0, ANSWER_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
        serde_json::from_slice(&line).ok()
    }
}

/// What an answer says.
fn judge(status: u16, bytes: &[u8]) -> Result<Value, Why> {
    let parsed = serde_json::from_slice::<Value>(bytes);
    if status == 200 {
        return parsed.map_err(|error| Why::Silent(format!("its answer is no JSON: {error}"), true));
    }
    let said = parsed.unwrap_or_default();
    let words = said["message"].as_str().or(said["error"].as_str()).map(str::to_owned);
    let words = words.unwrap_or_else(|| format!("status {status}: {}", String::from_utf8_lossy(bytes).trim()));
    Err(Why::Refused(status, said["code"].as_u64().unwrap_or(0), words.chars().take(TEXT_CHARS).collect()))
}

/// Returns false if the error certainly came before anything of the request was sent. A limit for the whole call does not tell; an
/// unreachable host may have become so after it.
fn was_sent(error: &ureq::Error) -> bool {
    use std::io::ErrorKind as Io;
    use ureq::{Error as E, Timeout};
    match error {
        E::BadUri(_) | E::Http(_) | E::HostNotFound | E::ConnectionFailed | E::Pem(_) => false,
        E::Timeout(limit) => !matches!(limit, Timeout::Resolve | Timeout::Connect),
        E::Io(error) => !matches!(error.kind(), Io::ConnectionRefused | Io::AddrNotAvailable),
        _ => true,
    }
}

fn tls(options: &Tls) -> Result<TlsConfig> {
    let mut config = TlsConfig::builder();
    config = config.root_certs(match &options.authority {
        Some(path) => RootCerts::new_with_certs(&certificates(path)?),
        None => RootCerts::PlatformVerifier,
    });
    if let Some((certificate, key)) = &options.certificate {
        let key = PrivateKey::from_pem(&read(key)?).map_err(|error| no_pem(&error.to_string(), "key"))?;
        config = config.client_cert(Some(ClientCert::new_with_certs(&certificates(certificate)?, key)));
    }
    Ok(config.build())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        Error::io(format!("file {} for etcd", path.display()), &error).try_next("check the path, and who may read it")
    })
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let bytes = read(path)?;
    let found = parse_pem(&bytes).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() { Err(no_pem("no certificate in it", &path.display().to_string())) } else { Ok(found) }
}

#[cold]
fn no_pem(why: &str, what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("file {what} for etcd"))
        .because(why)
        .try_next("name a file in PEM, as `etcdctl --cacert`, `--cert` and `--key` take them")
}
