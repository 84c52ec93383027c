//! The server: connections, TLS, and limits of size and time.
//!
//! Each connection has a thread for its lifetime, which serves its requests itself: calls of the store mostly access
//! memory, and where they do not, nobody else waits (`alive`). Further threads compute checksums of large bodies
//! (`summing`); the runtime's own threads only wake the others.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote::{Error, ErrorKind, Result, Store};
use cenote_posix::{Caller, FileSystem, Ino, Options};
use http::header::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::SingleDomain;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use s3s::{Body, HttpError, HttpResponse};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::alive::{ABANDONED_MAX, Steps, Watch};
use crate::amend;
use crate::api::{Peer, Service};
use crate::cors;
use crate::gateway::Gateway;
use crate::keyed::Keyed;
use crate::keys::Keys;
use crate::name::may_be_bucket;
use crate::patience::{More, Patient};
use crate::unread::{self, Watched};

/// Maximum number of connections; more wait in the listener's queue.
const CONNECTIONS_MAX: usize = 1024;
/// Time limit of a request's head.
const HEAD_PATIENCE: Duration = Duration::from_secs(15);
/// Time limit of a TLS handshake.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
/// A connection on which nothing moves for this long is closed, whatever it is doing.
const STILL_MAX: Duration = Duration::from_mins(1);
/// Maximum size of a request's head, and of read-ahead.
const BUFFER_BYTES: usize = 512 << 10;
/// Maximum number of headers of a request.
const HEADERS_MAX: usize = 128;
/// Maximum size of an XML request: a list of 10,000 parts has about 2 MB.
const XML_BYTES_MAX: usize = 8 << 20;
/// Maximum size of a file in a form, since the library gathers it in memory.
const FORM_FILE_BYTES_MAX: u64 = 64 << 20;
/// Time for requests in progress when the server stops.
const FAREWELL: Duration = Duration::from_secs(10);
/// Interval of checks for uploads that rules abort.
const SWEEP: Duration = Duration::from_mins(10);
/// Pause after a failed accept: most likely too many open files.
const PAUSE: Duration = Duration::from_millis(200);
/// Threads of the runtime.
const THREADS: usize = 2;
/// Threads for checksums and the like, besides those of connections.
const THREADS_MORE: usize = 128;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on; port 0 for a free one.
    pub listen: SocketAddr,
    /// Files with TLS certificates and key.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Domain whose subdomains are buckets, in addition to paths.
    pub domain: Option<String>,
    /// The region reported to clients.
    pub region: String,
    /// Options for containers that requests create as buckets.
    pub files: Options,
    /// Buckets whose keys another crate provides.
    pub keyed: Option<Arc<dyn Keyed>>,
}

/// A server that listens.
pub struct Server {
    runtime: tokio::runtime::Runtime,
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    service: S3Service,
    gateway: Arc<Gateway>,
    tls: Option<TlsAcceptor>,
    domain: Option<String>,
    requests: AtomicU64,
    stopping: watch::Sender<bool>,
    watch: Watch,
}

/// Accepts any container name, so that containers of other views are buckets too.
struct Names;

impl NameValidation for Names {
    fn validate_bucket_name(&self, name: &str) -> bool {
        may_be_bucket(name)
    }
}

impl Server {
    /// Listens; requests are served by [`Server::run`].
    pub fn start(store: &Store, config: &Config) -> Result<Self> {
        let invalid = |what: &str, cause: String| Error::new(ErrorKind::InvalidInput, what).because(cause);
        let tls = config.tls.as_ref().map(|(chain, key)| acceptor(chain, key)).transpose()?;
        let me = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Arc::from([]),
            is_checked: true,
        };
        let fs = FileSystem::new(store, config.files.clone()).map_err(|error| {
            error.cause.map_or_else(|| invalid("files of the store", format!("errno {}", error.errno)), |cause| *cause)
        })?;
        let gateway = Arc::new(Gateway::new(fs, me, Keys::open(store)?, config.region.clone(), config.keyed.clone()));
        let mut builder = S3ServiceBuilder::new(Service(gateway.clone()));
        builder.set_auth(Service(gateway.clone()));
        builder.set_access(Service(gateway.clone()));
        builder.set_validation(Names);
        let mut limits = S3Config::default();
        limits.xml_max_body_size = XML_BYTES_MAX;
        limits.post_object_max_file_size = FORM_FILE_BYTES_MAX;
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits))));
        if let Some(domain) = &config.domain {
            builder.set_host(SingleDomain::new(domain).map_err(|error| invalid(domain, error.to_string()))?);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(CONNECTIONS_MAX + ABANDONED_MAX + THREADS_MORE)
            .thread_name("cenote-s3")
            .enable_all()
            .build()
            .map_err(|error| Error::io("threads of the server", &error))?;
        let listener = runtime.block_on(TcpListener::bind(config.listen));
        let listener = listener.map_err(|error| Error::io(format!("address {}", config.listen), &error))?;
        let shared = Arc::new(Shared {
            service: builder.build(),
            gateway,
            tls,
            domain: config.domain.clone(),
            requests: AtomicU64::new(0),
            stopping: watch::channel(false).0,
            watch: Watch::default(),
        });
        allow_descriptors();
        Ok(Self { runtime, listener, shared })
    }
    /// Returns the address it listens on.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|error| Error::io("the server's address", &error))
    }
    /// Serves until `SIGINT` or `SIGTERM`; requests in progress may finish.
    pub fn run(self) -> Result<()> {
        let Self { runtime, listener, shared } = self;
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        runtime
            .block_on(async {
                let ended = ended()?;
                tokio::spawn(sweep(shared.gateway.clone()));
                tokio::select! {
                    () = accept(listener, shared.clone(), room.clone()) => {}
                    () = shared.watch.look_after() => {}
                    () = ended => {}
                }
                let _ = shared.stopping.send(true);
                let _ = tokio::time::timeout(FAREWELL, room.acquire_many(CONNECTIONS_MAX as u32)).await;
                Ok(())
            })
            // Calls still running are not waited for.
            .inspect(|()| runtime.shutdown_background())
    }
}

/// Completes when the process is told to end.
fn ended() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let of = |kind| signal(kind).map_err(|error| Error::io("signals", &error));
    let (mut interrupt, mut terminate) = (of(SignalKind::interrupt())?, of(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Reads a file that nobody else controls: it belongs to this user or root, and others cannot write to it.
fn own_file(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let name = || path.display().to_string();
    let failed = |error: std::io::Error| Error::io(name(), &error);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let me = rustix::process::geteuid().as_raw();
    let why = if !meta.is_file() {
        Some("it is no plain file".to_owned())
    } else if ![0, me].contains(&meta.uid()) {
        Some(format!("it belongs to user {}, this process runs as user {me}", meta.uid()))
    } else {
        (meta.mode() & 0o022 != 0).then(|| "others may write to it".to_owned())
    };
    if let Some(why) = why {
        return Err(Error::new(ErrorKind::PermissionDenied, name()).because(why).try_next("chown and `chmod 600` it"));
    }
    if meta.mode() & 0o004 != 0 {
        tracing::warn!(file = name(), "everybody can read this private key: `chmod 600` it");
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn acceptor(chain: &Path, key: &Path) -> Result<TlsAcceptor> {
    let bad =
        |file: &Path, cause: String| Error::new(ErrorKind::InvalidInput, file.display().to_string()).because(cause);
    let certificates: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(chain)
            .and_then(Iterator::collect)
            .map_err(|error| bad(chain, format!("no certificates in PEM: {error}")))?;
    if certificates.is_empty() {
        return Err(bad(chain, "there is no certificate in it".into()));
    }
    let secret = own_file(key)?;
    let secret =
        PrivateKeyDer::from_pem_slice(&secret).map_err(|error| bad(key, format!("no private key in PEM: {error}")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, secret))
        .map_err(|error| bad(chain, error.to_string()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, room: Arc<Semaphore>) {
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let one = match shared.watch.add(&stream, place) {
            Ok(one) => one,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be served");
                continue;
            }
        };
        let (shared, runtime) = (shared.clone(), tokio::runtime::Handle::current());
        tokio::task::spawn_blocking(move || runtime.block_on(Steps::new(greet(stream, from.ip(), shared), one)));
    }
}

/// Raises the limit of descriptors to the maximum: each connection takes two.
fn allow_descriptors() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit });
}

async fn greet(stream: TcpStream, from: IpAddr, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, STILL_MAX);
    let more = stream.more();
    match &shared.tls {
        None => converse(stream, more, Peer { address: from, is_secure: false }, shared).await,
        Some(tls) => match tokio::time::timeout(GREETING_PATIENCE, tls.accept(stream)).await {
            Ok(Ok(stream)) => converse(stream, more, Peer { address: from, is_secure: true }, shared).await,
            Ok(Err(error)) => tracing::debug!(%error, "no TLS"),
            Err(_) => tracing::debug!("no TLS in time"),
        },
    }
}

async fn converse<S>(stream: S, more: More, peer: Peer, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stopping = shared.stopping.subscribe();
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (shared, more) = (shared.clone(), more.clone());
        async move {
            let (head, body) = request.into_parts();
            let (body, rest) = unread::watch(&head.headers, body);
            let mut response = answer(http::Request::from_parts(head, body), peer, &shared).await?;
            more.set(!rest.settle(response.headers_mut()).await);
            std::result::Result::<_, HttpError>::Ok(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let done = tokio::select! {
        done = connection.as_mut() => done,
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, "a connection ended");
    }
}

async fn answer(
    request: http::Request<Watched>,
    peer: Peer,
    shared: &Shared,
) -> std::result::Result<HttpResponse, HttpError> {
    let number = shared.requests.fetch_add(1, Ordering::Relaxed);
    let origin =
        request.headers().get(http::header::ORIGIN).and_then(|origin| origin.to_str().ok()).map(ToOwned::to_owned);
    let about = amend::Request::of(request.method(), request.uri(), request.headers());
    let shared_rules = origin.as_ref().and_then(|_| rules(&request, shared));
    let mut response = if request.method() == http::Method::OPTIONS {
        preflight(&request, origin.as_deref(), shared_rules.as_deref())
    } else {
        let wanted = request.headers().get(http::header::ACCESS_CONTROL_REQUEST_METHOD);
        let method = wanted.and_then(|method| method.to_str().ok()).unwrap_or(request.method().as_str()).to_owned();
        let mut response = if let Some(refused) = amend::refusal(request.uri()) {
            refused
        } else {
            let mut request = request.map(Body::http_body);
            request.extensions_mut().insert(peer);
            amend::complete(request.headers_mut());
            shared.service.call(request).await?
        };
        if let (Some(origin), Some(rules)) = (&origin, &shared_rules) {
            let asked = cors::CorsRequest { origin, method: &method, headers: None };
            response.headers_mut().extend(cors::answer(rules, &asked).unwrap_or_default());
        }
        response
    };
    let number = format!("{number:016x}");
    amend::mend(&mut response, about, &number);
    let headers = response.headers_mut();
    headers.insert(http::header::SERVER, HeaderValue::from_static("Cenote"));
    if let Ok(number) = HeaderValue::from_str(&number) {
        headers.insert(HeaderName::from_static("x-amz-request-id"), number);
    }
    Ok(response)
}

/// Returns the CORS rules of a request's bucket.
fn rules(request: &http::Request<Watched>, shared: &Shared) -> Option<Vec<s3s::dto::CORSRule>> {
    let host = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let by_host = shared.domain.as_deref().and_then(|domain| host.strip_suffix(domain)?.strip_suffix('.'));
    let by_path = || request.uri().path().trim_start_matches('/').split('/').next();
    let name = by_host.or_else(by_path)?;
    shared.gateway.bucket(name).ok()?.record.cors.clone()
}

/// Answers a browser's preflight request.
fn preflight(
    request: &http::Request<Watched>,
    origin: Option<&str>,
    rules: Option<&[s3s::dto::CORSRule]>,
) -> HttpResponse {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let (status, headers) = match (origin, text("access-control-request-method")) {
        (Some(origin), Some(method)) => {
            let asked = cors::CorsRequest { origin, method, headers: text("access-control-request-headers") };
            match rules.and_then(|rules| cors::answer(rules, &asked)) {
                Some(headers) => (http::StatusCode::OK, headers),
                None => (http::StatusCode::FORBIDDEN, http::HeaderMap::new()),
            }
        }
        _ => (http::StatusCode::BAD_REQUEST, http::HeaderMap::new()),
    };
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Periodically aborts uploads by rules.
async fn sweep(gateway: Arc<Gateway>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let gateway = gateway.clone();
        let swept = tokio::task::spawn_blocking(move || sweep_all(&gateway)).await;
        if let Ok(Err(error)) = swept {
            tracing::warn!(%error, "uploads could not be looked at");
        }
    }
}

fn sweep_all(gateway: &Gateway) -> s3s::S3Result<()> {
    let now_s = crate::meta::now().s;
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = gateway
            .fs
            .list(Ino::TOP, after.as_deref(), 1000)
            .map_err(|error| crate::failure::failed(&error, "buckets"))?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (name, _) in &page {
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if let Some(bucket) = gateway.buckets.find(name)? {
                let given_up = crate::lifecycle::sweep(gateway, &bucket, now_s)?;
                if given_up > 0 {
                    tracing::info!(bucket = name, given_up, "uploads were given up, as the bucket's rules say");
                }
            }
        }
    }
}
