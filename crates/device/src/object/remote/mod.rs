//! S3 and Swift through `opendal`, with credentials that may be renewed while the tier is in use.

pub(crate) mod approved;
pub(super) mod credentials;
mod http;
mod swift;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use ::http::StatusCode;
use bytes::Bytes;
use cenote_model::{DeviceKind, DeviceSpec, Error, ErrorKind, Result};
use opendal_core::options::{ListOptions, ReadOptions};
use opendal_core::{Buffer, HttpTransporter, OperationContext, Operator};
use opendal_service_s3::S3;
use opendal_service_swift::Swift;
use parking_lot::Mutex;

use super::service::{Answer, ObjectService, Refusal};
use credentials::{Credentials, Secrets};
pub use http::Timeouts;
use http::{Http, HttpFailure, Settings};

/// A bucket of a real service.
pub struct Remote {
    kind: DeviceKind,
    tier: String,
    bucket: String,
    endpoint: Option<String>,
    region: Option<String>,
    credentials: Credentials,
    http: Http,
    /// The session in use until the credentials change.
    session: Mutex<Option<Arc<Session>>>,
    /// The service supports no conditional puts: check for the object first.
    looks_first: AtomicBool,
}

/// What stays valid until the credentials change.
struct Session {
    operator: Operator,
    /// The same operator for objects that must not exist yet.
    creator: Operator,
}

impl Remote {
    /// The bucket of a tier, with default time-outs.
    pub fn new(spec: &DeviceSpec) -> Result<Self> {
        Self::with_timeouts(spec, Timeouts::default())
    }

    /// The bucket of a tier. Checks only its options and makes no request: `InvalidInput` names the invalid option.
    pub fn with_timeouts(spec: &DeviceSpec, timeouts: Timeouts) -> Result<Self> {
        Self::of_owner(spec, timeouts, None)
    }

    /// Like [`Remote::with_timeouts`] for a store of `owner`: not everybody's secrets serve everybody's stores.
    pub fn of_owner(spec: &DeviceSpec, timeouts: Timeouts, owner: Option<u32>) -> Result<Self> {
        let refuse = |option: &str, why: &str, next: &str| {
            Error::new(ErrorKind::InvalidInput, format!("tier `{}`, option `{option}`", spec.name))
                .because(why)
                .try_next(next)
        };
        let endpoint = spec.options.get("endpoint").map(|url| url.trim_end_matches('/').to_owned());
        if let Some(url) = &endpoint {
            check_url(url).map_err(|why| refuse("endpoint", why, "write endpoint=https://HOST[:PORT]"))?;
        }
        let credentials = Credentials::of(spec.kind, spec.options.get("credentials"), owner).map_err(|why| {
            refuse("credentials", why, "name a file, FILE#PROFILE or env:PREFIX; the secret itself belongs there")
        })?;
        let path = spec.path.to_string_lossy();
        let bucket = path.split_once('/').map_or(&*path, |(bucket, _)| bucket).to_owned();
        let local = endpoint.as_deref().is_some_and(is_on_this_machine);
        Ok(Self {
            kind: spec.kind,
            tier: spec.name.clone(),
            bucket,
            endpoint,
            region: spec.options.get("region").map(str::to_owned),
            credentials,
            http: Http::new(local, timeouts),
            session: Mutex::new(None),
            looks_first: AtomicBool::new(false),
        })
    }

    /// Runs `act` with a session; once more with a new session if the service refuses this one.
    fn with<T>(&self, act: impl Fn(&Session) -> opendal_core::Result<T>) -> Answer<T> {
        let session = self.session(None)?;
        match act(&session).map_err(|error| refusal_of(&error)) {
            Err(refusal) if refusal.kind == ErrorKind::PermissionDenied => {
                let renewed = self.session(Some(&session))?;
                act(&renewed).map_err(|error| refusal_of(&error))
            }
            answer => answer,
        }
    }

    /// The current session; a new one if the current session is the refused one.
    fn session(&self, refused: Option<&Arc<Session>>) -> Answer<Arc<Session>> {
        let mut current = self.session.lock();
        if let Some(session) = current.as_ref().filter(|now| !refused.is_some_and(|was| Arc::ptr_eq(now, was))) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.begin()?);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    fn swift(&self, secrets: &Secrets) -> Answer<opendal_core::Result<Operator>> {
        let grant = swift::sign_in(&self.http, self.endpoint.as_deref(), self.region.as_deref(), secrets)?;
        let builder = Swift::default().endpoint(&grant.storage_url).container(&self.bucket);
        Ok(Operator::new(builder.token(&grant.token).root("/")))
    }

    fn s3(&self, secrets: &Secrets) -> Answer<opendal_core::Result<Operator>> {
        let (Some(id), Some(key)) = (secrets.get("access_key_id"), secrets.get("secret_access_key")) else {
            let why = format!("no access_key_id and secret_access_key in {}", self.credentials);
            return Err(Refusal::new(ErrorKind::PermissionDenied, why));
        };
        let region = self.region.clone().or_else(|| secrets.get("region"));
        let mut builder = S3::default()
            .root("/")
            .bucket(&self.bucket)
            .region(region.as_deref().unwrap_or("us-east-1"))
            .access_key_id(&id)
            .secret_access_key(&key)
            .disable_config_load()
            .disable_ec2_metadata()
            .checksum_algorithm("md5");
        if let Some(url) = self.endpoint.clone().or_else(|| secrets.get("endpoint_url")) {
            builder = builder.endpoint(&url);
        }
        if let Some(token) = secrets.get("session_token") {
            builder = builder.session_token(&token);
        }
        Ok(Operator::new(builder))
    }

    fn begin(&self) -> Answer<Session> {
        let secrets = self.credentials.read().map_err(|why| Refusal::new(ErrorKind::PermissionDenied, why))?;
        let built = if self.kind == DeviceKind::Swift { self.swift(&secrets)? } else { self.s3(&secrets)? };
        let base = built.map_err(|error| {
            Refusal::new(ErrorKind::InvalidInput, format!("tier `{}` cannot be set up: {error}", self.tier))
        })?;
        let with = |settings| {
            let transport = HttpTransporter::new(self.http.with(settings));
            base.clone().with_context(OperationContext::new().with_http_transport(transport))
        };
        let etag = self.kind == DeviceKind::Swift;
        let operator = with(Settings { only_new: false, etag });
        Ok(Session { operator, creator: with(Settings { only_new: true, etag }) })
    }
}

impl ObjectService for Remote {
    fn hasten(&self, is_in_haste: bool) {
        self.http.hasten(is_in_haste);
    }
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        let put = |only_new: bool| {
            self.with(|session| {
                let operator = if only_new { &session.creator } else { &session.operator };
                block_on(operator.write(key, Buffer::from(parts.to_vec()))).map(drop)
            })
        };
        if only_new && !self.looks_first.load(Ordering::Relaxed) {
            match put(true) {
                Err(refusal) if refusal.kind == ErrorKind::Unsupported => {
                    self.looks_first.store(true, Ordering::Relaxed);
                }
                answer => return answer,
            }
        }
        if only_new {
            match self.get(key, 0, 1) {
                Ok(_) => return Err(Refusal::new(ErrorKind::Exists, "there is an object of that name")),
                Err(refusal) if refusal.kind == ErrorKind::NotFound => {}
                Err(refusal) => return Err(refusal),
            }
        }
        put(false)
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        if len == 0 {
            return Ok(Bytes::new());
        }
        self.with(|session| {
            let options = ReadOptions { range: (from..from + len).into(), ..ReadOptions::default() };
            match block_on(session.operator.read_options(key, options)) {
                Err(error) => match said(&error) {
                    Some(HttpFailure::Short(bytes)) => Ok(bytes.clone()),
                    _ => Err(error),
                },
                answer => answer.map(|buffer| buffer.to_bytes()),
            }
        })
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        let entries = self.with(|session| {
            let options = ListOptions { recursive: true, ..ListOptions::default() };
            block_on(session.operator.list_options(prefix, options))
        })?;
        let files = entries.into_iter().filter(|entry| entry.metadata().is_file());
        Ok(files.map(|entry| (entry.path().to_owned(), entry.metadata().content_length())).collect())
    }
    fn delete(&self, key: &str) -> Answer<()> {
        match self.with(|session| block_on(session.operator.delete(key))) {
            Err(refusal) if refusal.kind == ErrorKind::NotFound => Ok(()),
            answer => answer,
        }
    }
}

/// The cause that [`Http`] reported.
fn said(error: &opendal_core::Error) -> Option<&HttpFailure> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Converts an error of the service or of the connection into a [`Refusal`].
fn refusal_of(error: &opendal_core::Error) -> Refusal {
    let Some(said) = said(error) else {
        return match error.kind() {
            opendal_core::ErrorKind::NotFound => Refusal::new(ErrorKind::NotFound, "the service does not have it"),
            _ => Refusal::passing(format!("what the service said makes no sense: {error}")),
        };
    };
    let HttpFailure::Status(status, text) = said else { return Refusal::passing(said.to_string()) };
    let (kind, again) = match *status {
        // Ceph reports a used-up quota so, and all S3 services a wrong clock.
        StatusCode::FORBIDDEN if text.contains("QuotaExceeded") => (ErrorKind::Full, false),
        StatusCode::FORBIDDEN if text.contains("RequestTimeTooSkewed") => (ErrorKind::Io, false),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (ErrorKind::PermissionDenied, false),
        StatusCode::NOT_FOUND => (ErrorKind::NotFound, false),
        StatusCode::NOT_IMPLEMENTED => (ErrorKind::Unsupported, false),
        StatusCode::PRECONDITION_FAILED => (ErrorKind::Exists, false),
        StatusCode::PAYLOAD_TOO_LARGE | StatusCode::INSUFFICIENT_STORAGE => (ErrorKind::Full, false),
        StatusCode::BAD_REQUEST if text.contains("ExpiredToken") || text.contains("InvalidToken") => {
            (ErrorKind::PermissionDenied, false)
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT => (ErrorKind::Io, true),
        status => (ErrorKind::Io, status.is_server_error() || status.as_u16() == 499 || text.contains("Timeout")),
    };
    Refusal { kind, cause: said.to_string(), again }
}

fn check_url(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let Some(rest) = rest else { return Err("it does not begin with https:// or http://") };
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Err("it has a user or a password in it, which does not belong there");
    }
    if host.is_empty() || url.contains(['?', '#', ' ']) {
        return Err("it is not the address of a service");
    }
    Ok(())
}

/// No proxy is used for this machine.
fn is_on_this_machine(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|here| rest.starts_with(here))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread. Whoever waits for a request makes it ([`Http`]), so the future hardly ever waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
}
