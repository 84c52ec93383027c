//! An S3 service on this machine for tests: the part of the protocol that tiers need, with faults on command. It
//! accepts every signature. It must not know what the objects are.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Behaviour of the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mood {
    /// Works normally.
    #[default]
    Well,
    /// Answers everything with this status.
    Says(u16),
    /// Accepts requests and never answers.
    Silent,
    /// Closes the connection.
    HangsUp,
    /// Delays each answer by this time.
    Slow(Duration),
}

#[derive(Default)]
struct Inside {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    mood: Mutex<Mood>,
    requests: AtomicU64,
    ends: AtomicBool,
}

/// The service. It ends when this value is dropped.
pub struct Bucket {
    inside: Arc<Inside>,
    address: SocketAddr,
}

impl Bucket {
    /// Starts serving on a free port of this machine.
    pub fn serve() -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let inside = Arc::new(Inside::default());
        let all = Arc::clone(&inside);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if all.ends.load(Ordering::Relaxed) {
                    return;
                }
                let one = Arc::clone(&all);
                std::thread::spawn(move || drop(one.converse(&stream)));
            }
        });
        Ok(Self { inside, address })
    }
    /// The URL of the service.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
    /// Sets the behaviour from now on.
    pub fn set_mood(&self, mood: Mood) {
        *lock(&self.inside.mood) = mood;
    }
    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.inside.requests.load(Ordering::Relaxed)
    }
    /// All keys, with the bucket's name before each.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.inside.objects).keys().cloned().collect()
    }
    /// Changes, creates or deletes an object on behalf of a third party.
    pub fn meddle(&self, key: &str, change: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>) {
        let mut objects = lock(&self.inside.objects);
        let before = objects.remove(key);
        if let Some(after) = change(before) {
            objects.insert(key.to_owned(), after);
        }
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.inside.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
    }
}

struct HttpRequest {
    method: String,
    path: String,
    query: String,
    range: Option<(usize, usize)>,
    only_new: bool,
    body: Vec<u8>,
}

struct HttpResponse {
    status: u16,
    /// Value of `Content-Range`.
    range: Option<String>,
    body: Vec<u8>,
    /// Value of `Content-Length`, if it is not the body's length.
    len: Option<usize>,
}

impl HttpResponse {
    fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, range: None, body: body.into(), len: None }
    }
}

impl Inside {
    fn converse(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        while let Some(asked) = read_request(&mut reader)? {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let mood = *lock(&self.mood);
            let said = match mood {
                Mood::HangsUp => return Ok(()),
                Mood::Silent => {
                    while *lock(&self.mood) == Mood::Silent && !self.ends.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    return Ok(());
                }
                Mood::Says(status) => HttpResponse::new(status, format!("<Error><Code>Status{status}</Code></Error>")),
                Mood::Slow(pause) => {
                    std::thread::sleep(pause);
                    self.answer(&asked)
                }
                Mood::Well => self.answer(&asked),
            };
            write_answer(stream, &said)?;
        }
        Ok(())
    }
    fn answer(&self, asked: &HttpRequest) -> HttpResponse {
        let mut objects = lock(&self.objects);
        let missing = || HttpResponse::new(404, "<Error><Code>NoSuchKey</Code></Error>");
        match asked.method.as_str() {
            "PUT" if asked.only_new && objects.contains_key(&asked.path) => {
                HttpResponse::new(412, "<Error><Code>PreconditionFailed</Code></Error>")
            }
            "PUT" => {
                objects.insert(asked.path.clone(), asked.body.clone());
                HttpResponse::new(200, "")
            }
            "DELETE" => {
                objects.remove(&asked.path);
                HttpResponse::new(204, "")
            }
            "GET" if asked.query.contains("list-type=2") => list(&objects, asked),
            "HEAD" => objects
                .get(&asked.path)
                .map_or_else(missing, |object| HttpResponse { len: Some(object.len()), ..HttpResponse::new(200, "") }),
            "GET" => objects.get(&asked.path).map_or_else(missing, |object| part(object, asked.range)),
            _ => HttpResponse::new(501, ""),
        }
    }
}

fn part(object: &[u8], range: Option<(usize, usize)>) -> HttpResponse {
    let Some((from, to)) = range else { return HttpResponse::new(200, object) };
    if from >= object.len() {
        return HttpResponse { range: Some(format!("bytes */{}", object.len())), ..HttpResponse::new(416, "") };
    }
    let end = to.saturating_add(1).min(object.len());
    let range = Some(format!("bytes {from}-{}/{}", end - 1, object.len()));
    HttpResponse { range, ..HttpResponse::new(206, &object[from..end]) }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, asked: &HttpRequest) -> HttpResponse {
    let prefix = asked.query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or("");
    let bucket = asked.path.split('/').next().unwrap_or("");
    let (prefix, mut text) = (format!("{bucket}/{}", decoded(prefix)), String::new());
    for (key, object) in objects.iter().filter(|(key, _)| key.starts_with(&prefix)) {
        let (key, size) = (&key[bucket.len() + 1..], object.len());
        let when = "2026-01-01T00:00:00.000Z";
        let _ = write!(
            text,
            "<Contents><Key>{key}</Key><LastModified>{when}</LastModified><ETag>\"x\"</ETag><Size>{size}</Size></Contents>"
        );
    }
    HttpResponse::new(200, format!("<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>"))
}

fn read_request(reader: &mut BufReader<TcpStream>) -> std::io::Result<Option<HttpRequest>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or("").to_owned(), words.next().unwrap_or("").to_owned());
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let path = decoded(path).trim_start_matches('/').to_owned();
    let mut asked =
        HttpRequest { method, path, query: query.to_owned(), range: None, only_new: false, body: Vec::new() };
    let mut len = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => len = value.parse().unwrap_or(0),
            "if-none-match" => asked.only_new = true,
            "range" => asked.range = range_of(value),
            _ => {}
        }
    }
    asked.body = vec![0; len];
    reader.read_exact(&mut asked.body)?;
    Ok(Some(asked))
}

fn range_of(value: &str) -> Option<(usize, usize)> {
    let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some((from.parse().ok()?, to.parse().unwrap_or(usize::MAX)))
}

fn write_answer(mut stream: &TcpStream, said: &HttpResponse) -> std::io::Result<()> {
    let len = said.len.unwrap_or(said.body.len());
    let mut text = format!("HTTP/1.1 {} Said\r\nContent-Length: {len}\r\nETag: \"x\"\r\n", said.status);
    if let Some(range) = &said.range {
        let _ = write!(text, "Content-Range: {range}\r\n");
    }
    text.push_str("\r\n");
    stream.write_all(text.as_bytes())?;
    stream.write_all(&said.body)
}

/// Decodes percent-encoded text.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let code = (byte == b'%').then(|| [rest.next().unwrap_or(b'0'), rest.next().unwrap_or(b'0')]);
        let number = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(&code).ok()?, 16).ok());
        bytes.push(number.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
