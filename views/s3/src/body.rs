//! Bodies: from a socket into a file, and from a file to a socket. Memory holds only the piece in transfer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use cenote::BorrowedBytes;
use cenote_posix::{File, FsError};
use futures::{Stream, StreamExt};
use s3s::dto::{ETag, StreamingBlob};
use s3s::{Body, S3Request, S3Result, s3_error};

use crate::checksum::{Claims, Summed, Sums};
use crate::failure::failed;
use crate::summing::Summing;

/// S3's limit of one PUT in bytes.
pub const PUT_BYTES_MAX: u64 = 5 << 30;
/// Smaller pieces are gathered up to this size, so that a file does not consist of fragments.
const GATHER_BYTES: usize = 256 << 10;
/// Once the file exists, pieces of at least this size are written as they arrive.
const CRUMB_BYTES: usize = 128 << 10;
/// Bytes sent to the socket at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Bodies up to this size are sent as one piece.
const SMALL_BYTES: u64 = 64 << 10;
/// Maximum number of views (bytes by reference) that wait for sockets; a client of the store can hold 64.
const VIEWS_MAX: usize = 32;

/// A received body.
pub struct Received {
    /// The bytes.
    pub content: Content,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Checksums.
    pub sums: Summed,
}

/// Received bytes: few in memory, so that file and name are created in one transaction; many in a file without a name.
pub enum Content {
    /// At most [`GATHER_BYTES`].
    Few(BytesMut),
    /// Any number.
    Many(File),
}

impl Content {
    /// Returns the source for putting.
    pub fn source(&self) -> Source<'_> {
        match self {
            Self::Few(bytes) => Source::Bytes(bytes),
            Self::Many(file) => Source::File(file),
        }
    }
}

/// Bytes to be put under a name.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// In a file without a name.
    File(&'a File),
}

/// Returns the number of bytes that the client announces, without the framing of signed chunks.
pub fn announced<T>(request: &S3Request<T>) -> S3Result<Option<u64>> {
    let number =
        |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    let announced = number("x-amz-decoded-content-length").or_else(|| {
        // A chunked transfer has no length; that of a framed one includes the frames.
        let is_framed =
            request.headers.get("x-amz-content-sha256").is_some_and(|sum| sum.as_bytes().starts_with(b"STREAMING-"));
        if is_framed { None } else { number("content-length") }
    });
    if announced.is_some_and(|bytes| bytes > PUT_BYTES_MAX) {
        return Err(s3_error!(EntityTooLarge, "one PUT takes {PUT_BYTES_MAX} bytes at most; upload it in parts"));
    }
    Ok(announced)
}

/// Receives a body, and compares it with the client's checksums. `make` creates a file for a large one.
pub async fn receive(
    body: Option<StreamingBlob>,
    make: impl Fn() -> S3Result<File>,
    claims: &Claims,
    announced: Option<u64>,
    trailers: Option<s3s::TrailingHeaders>,
) -> S3Result<Received> {
    let mut writer = Writer { make, claims, begun: None, written: 0, gathered: BytesMut::new() };
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            writer.write(piece.map_err(|error| broken(&*error))?).await?;
            if writer.len() > announced.unwrap_or(PUT_BYTES_MAX) {
                return Err(s3_error!(InvalidRequest, "more bytes came than were announced"));
            }
        }
    }
    let size_bytes = writer.len();
    if announced.is_some_and(|announced| announced != size_bytes) {
        return Err(s3_error!(IncompleteBody, "{} of {} bytes came", size_bytes, announced.unwrap_or_default()));
    }
    let (content, sums) = writer.finish().await?;
    sums.check(claims, trailers.and_then(|trailers| trailers.take()).as_ref())?;
    Ok(Received { content, size_bytes, sums })
}

/// Receives a body of at most `most` bytes in memory, compares it with the client's checksums, and returns it with its ETag.
pub async fn gathered(
    body: Option<StreamingBlob>,
    claims: &Claims,
    announced: Option<u64>,
    most: u64,
    trailers: Option<s3s::TrailingHeaders>,
) -> S3Result<(Vec<u8>, ETag)> {
    let (mut sums, mut bytes) = (Sums::of(claims), Vec::new());
    if let Some(mut body) = body {
        while let Some(piece) = body.next().await {
            let piece = piece.map_err(|error| broken(&*error))?;
            sums.update(&piece);
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > announced.unwrap_or(most) {
                return Err(s3_error!(InvalidRequest, "more bytes came than were announced, or than can be taken"));
            }
        }
    }
    if announced.is_some_and(|announced| announced != bytes.len() as u64) {
        return Err(s3_error!(IncompleteBody, "{} of {} bytes came", bytes.len(), announced.unwrap_or_default()));
    }
    let sums = sums.finish();
    sums.check(claims, trailers.and_then(|trailers| trailers.take()).as_ref())?;
    Ok((bytes, ETag::Strong(sums.etag())))
}

/// Converts the error of a broken body for the client.
fn broken(error: &(dyn std::error::Error + Send + Sync + 'static)) -> s3s::S3Error {
    tracing::debug!(%error, "a body ended badly");
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains("signature") {
        s3_error!(SignatureDoesNotMatch, "a chunk's signature does not match")
    } else if lower.contains("checksum") || lower.contains("sha256") || lower.contains("hash") {
        let mut error = crate::failure::custom("XAmzContentSHA256Mismatch", 400);
        error.set_message("The provided 'x-amz-content-sha256' header does not match what was computed.");
        error
    } else {
        s3_error!(IncompleteBody, "the body ended before it was whole: {text}")
    }
}

/// Destination of a body: memory until it grows too large, then a file.
struct Writer<'a, F> {
    make: F,
    claims: &'a Claims,
    /// The file, and the checksums of its bytes.
    begun: Option<(File, Summing)>,
    written: u64,
    gathered: BytesMut,
}

impl<F: Fn() -> S3Result<File>> Writer<'_, F> {
    fn len(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }
    async fn write(&mut self, piece: Bytes) -> S3Result<()> {
        if self.gathered.len() + piece.len() <= GATHER_BYTES && (self.begun.is_none() || piece.len() < CRUMB_BYTES) {
            self.gathered.extend_from_slice(&piece);
            return Ok(());
        }
        let gathered = std::mem::take(&mut self.gathered);
        if !gathered.is_empty() {
            self.put(gathered.freeze()).await?;
        }
        self.put(piece).await
    }
    /// Sums bytes and writes them, in parallel.
    async fn put(&mut self, bytes: Bytes) -> S3Result<()> {
        let (file, sums) = match &self.begun {
            Some(begun) => begun,
            None => self.begun.insert(((self.make)()?, Summing::new(Sums::of(self.claims)))),
        };
        sums.update(bytes.clone()).await?;
        file.write_at(&bytes, self.written).map_err(|error| failed(&error, "body"))?;
        self.written += bytes.len() as u64;
        Ok(())
    }
    async fn finish(mut self) -> S3Result<(Content, Summed)> {
        if self.begun.is_some() && !self.gathered.is_empty() {
            let gathered = std::mem::take(&mut self.gathered);
            self.put(gathered.freeze()).await?;
        }
        if let Some((file, sums)) = self.begun {
            return Ok((Content::Many(file), sums.finish().await?));
        }
        let mut sums = Sums::of(self.claims);
        sums.update(&self.gathered);
        Ok((Content::Few(self.gathered), sums.finish()))
    }
}

/// A view of a file's bytes, while a socket takes them.
struct Lent(BorrowedBytes);

static LENT: AtomicUsize = AtomicUsize::new(0);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        LENT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns bytes of a file: by reference if they lie in mapped memory and not too many views are in use, otherwise copied.
fn piece(file: &File, offset: u64, len: usize) -> Result<Bytes, FsError> {
    if len as u64 > SMALL_BYTES && LENT.fetch_add(1, Ordering::Relaxed) < VIEWS_MAX {
        match file.view(offset, len) {
            Ok(Some(view)) if view.len() == len => return Ok(Bytes::from_owner(Lent(view))),
            _ => {
                LENT.fetch_sub(1, Ordering::Relaxed);
            }
        }
    } else if len as u64 > SMALL_BYTES {
        LENT.fetch_sub(1, Ordering::Relaxed);
    }
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(Bytes::from(bytes))
}

/// Returns `len` bytes of a file from `offset` as a body.
pub fn send(file: File, offset: u64, len: u64) -> S3Result<StreamingBlob> {
    if len <= SMALL_BYTES {
        let bytes = piece(&file, offset, len as usize).map_err(|error| failed(&error, "body"))?;
        if bytes.len() as u64 != len {
            return Err(s3_error!(OperationAborted, "the file became shorter while it was read"));
        }
        return Ok(StreamingBlob::from(Body::from(bytes)));
    }
    Ok(StreamingBlob::wrap(pieces(Arc::new(file), offset, offset + len)))
}

fn pieces(
    file: Arc<File>,
    offset: u64,
    end: u64,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + Sync + 'static {
    futures::stream::iter(Pieces { file, offset, end })
}

struct Pieces {
    file: Arc<File>,
    offset: u64,
    end: u64,
}

impl Iterator for Pieces {
    type Item = Result<Bytes, std::io::Error>;
    fn next(&mut self) -> Option<Self::Item> {
        let len = (self.end - self.offset).min(PIECE_BYTES);
        if len == 0 {
            return None;
        }
        let read = piece(&self.file, self.offset, len as usize);
        let done = match read {
            Ok(bytes) if bytes.len() as u64 == len => {
                self.offset += len;
                return Some(Ok(bytes));
            }
            Ok(_) => Err(std::io::Error::other("the file became shorter while it was read")),
            Err(error) => Err(std::io::Error::other(error.to_string())),
        };
        self.offset = self.end;
        Some(done)
    }
}
