//! Multipart uploads: each is a directory that no path leads to, with its parts as files. Completion shares the parts' extents with the
//! object.

use std::collections::BTreeMap;

use cenote_posix::{File, Ino, Kind, Make, New, OpenFlags, Over, SetXattr};
use md5::{Digest as _, Md5};
use s3s::dto::CompletedPart;
use s3s::{S3Error, S3Result, s3_error};

use crate::alive;
use crate::body::Source;
use crate::bucket::Bucket;
use crate::checksum::{Algorithm, combined, composite};
use crate::failure::{failed, is_gone};
use crate::gateway::{Gateway, again, is_aborted};
use crate::keys::User;
use crate::meta::{META, Meta, encode, hex, now};
use crate::name::KeyPath;

/// Largest part number.
pub const PARTS_MAX: i32 = 10_000;
/// Minimum size of all parts but the last.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Permissions of objects' files: S3 enforces its own rights.
pub const FILE_MODE: u32 = 0o644;
const UPLOADS: &str = "uploads";
/// Entries fetched at a time.
const PAGE: usize = 1000;

/// An upload in progress.
pub struct Upload {
    /// Its id.
    pub id: String,
    /// Its directory.
    pub directory: Ino,
    /// Metadata from its beginning.
    pub meta: Meta,
}

/// An uploaded part.
pub struct Part {
    /// Part number.
    pub number: i32,
    /// Its file.
    pub ino: Ino,
    /// Its metadata.
    pub meta: Meta,
}

/// The assembled parts.
pub struct Whole {
    /// File with their bytes.
    pub file: File,
    /// Metadata: those from the beginning of the upload, with checksums.
    pub meta: Meta,
    /// Checksums of the parts, in stored form.
    pub parts: Option<Vec<u8>>,
}

fn no_upload() -> S3Error {
    s3_error!(
        NoSuchUpload,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )
}

/// Returns whether a text can be the id of an upload: nothing else is ever looked up.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn part_name(number: i32) -> String {
    format!("{number:05}")
}

impl Gateway {
    /// Begins an upload.
    pub fn begin_upload(&self, bucket: &Bucket, key: &str, mut meta: Meta) -> S3Result<String> {
        KeyPath::parse(key)?;
        let time = now();
        key.clone_into(&mut meta.key);
        meta.began = Some((time.s, time.ns));
        let mut salt = [0; 8];
        let _ = rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty());
        let ns = time.s as u64 * 1_000_000_000 + u64::from(time.ns);
        let id = format!("{ns:016x}{}", hex(&salt));
        let uploads = self.behind(bucket, UPLOADS, true)?.ok_or_else(no_upload)?;
        let what = Make { kind: Kind::Directory, mode: 0o700, rdev: 0, target: Vec::new() };
        let made = self.fs.make(&self.me, uploads, id.as_bytes(), &what).map_err(|error| failed(&error, key))?;
        self.fs
            .set_xattr(&self.me, made.ino, META, &meta.encode(), SetXattr::Any)
            .map_err(|error| failed(&error, key))?;
        Ok(id)
    }
    /// Returns an upload by id; its key must match.
    pub fn upload(&self, bucket: &Bucket, key: &str, id: &str) -> S3Result<Upload> {
        if !is_id(id) {
            return Err(no_upload());
        }
        let uploads = self.behind(bucket, UPLOADS, false)?.ok_or_else(no_upload)?;
        let directory = match self.fs.lookup(&self.me, uploads, id.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(error) if is_gone(&error) => return Err(no_upload()),
            Err(error) => return Err(failed(&error, key)),
        };
        let meta = match self.meta(directory) {
            Err(error) if is_aborted(&error) => None, // completed or aborted meanwhile
            meta => meta?,
        };
        let meta = meta.filter(|meta| meta.key == key).ok_or_else(no_upload)?;
        Ok(Upload { id: id.to_owned(), directory, meta })
    }
    /// Lists all uploads of a bucket, by key and then by age.
    pub fn uploads(&self, bucket: &Bucket) -> S3Result<Vec<Upload>> {
        again(|| {
            let Some(uploads) = self.behind(bucket, UPLOADS, false)? else { return Ok(Vec::new()) };
            let mut all = Vec::new();
            let mut after: Option<Vec<u8>> = None;
            loop {
                alive::check()?;
                let page =
                    self.fs.list(uploads, after.as_deref(), PAGE).map_err(|error| failed(&error, &bucket.name))?;
                let is_end = page.len() < PAGE;
                after = page.last().map(|(name, _)| name.clone());
                for (name, attr) in page {
                    if let (Ok(id), Some(meta)) = (String::from_utf8(name), self.meta(attr.ino)?) {
                        all.push(Upload { id, directory: attr.ino, meta });
                    }
                }
                if is_end || after.is_none() {
                    break;
                }
            }
            all.sort_by(|a, b| (&a.meta.key, &a.id).cmp(&(&b.meta.key, &b.id)));
            Ok(all)
        })
    }
    /// Creates a file for a body: it is deleted unless it is placed.
    pub fn new_file(&self, bucket: &Bucket, user: Option<&User>) -> S3Result<File> {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        self.fs
            .open_unnamed(&self.caller(user), bucket.root, flags, FILE_MODE)
            .map_err(|error| failed(&error, &bucket.name))
    }
    /// Makes received bytes a part of an upload, and replaces a part of the same number.
    pub fn put_part(
        &self,
        upload: &Upload,
        number: i32,
        (source, user): (Source<'_>, Option<&User>),
        meta: &Meta,
    ) -> S3Result<()> {
        let name = part_name(number);
        let (to, value) = ((upload.directory, name.as_bytes()), meta.encode());
        let placed = match source {
            Source::File(file) => self.fs.place(&self.me, file, to, &[(META, &value)], Over::Any, None),
            Source::Bytes(bytes) => {
                let mut describe = |_| vec![(META, value.clone())];
                self.fs.put(
                    &self.caller(user),
                    to,
                    New { bytes, mode: FILE_MODE, describe: &mut describe },
                    Over::Any,
                    None,
                )
            }
        };
        match placed {
            Err(error) if is_gone(&error) => Err(no_upload()),
            done => done.map(drop).map_err(|error| failed(&error, &upload.meta.key)),
        }
    }
    /// Lists parts of an upload after `after`, at most `limit`, and whether there are more.
    pub fn parts(&self, upload: &Upload, after: i32, limit: usize) -> S3Result<(Vec<Part>, bool)> {
        again(|| {
            let mut all = Vec::new();
            let mut from = part_name(after.clamp(0, PARTS_MAX)).into_bytes();
            loop {
                let wanted = (limit + 1 - all.len()).min(PAGE);
                let page = match self.fs.list(upload.directory, Some(&from), wanted) {
                    Err(error) if is_gone(&error) => return Err(no_upload()),
                    page => page.map_err(|error| failed(&error, &upload.meta.key))?,
                };
                let is_end = page.len() < wanted;
                for (name, attr) in page {
                    let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse().ok());
                    if let (Some(number), Some(meta)) = (number, self.meta(attr.ino)?) {
                        all.push(Part { number, ino: attr.ino, meta });
                    }
                    from = name;
                }
                if all.len() > limit {
                    all.truncate(limit);
                    return Ok((all, true));
                }
                if is_end {
                    return Ok((all, false));
                }
            }
        })
    }
    /// Assembles the parts that the client names.
    pub fn assemble(
        &self,
        bucket: &Bucket,
        user: Option<&User>,
        upload: &Upload,
        named: &[CompletedPart],
    ) -> S3Result<Whole> {
        let chosen = self.chosen(upload, named)?;
        let file = self.new_file(bucket, user)?;
        let mut meta = Meta {
            key: String::new(),
            began: None,
            waiting: None,
            upload: Some(upload.id.clone()),
            ..upload.meta.clone()
        };
        let mut sums = Md5::new();
        let mut offset = 0;
        let flags = OpenFlags { read: true, ..OpenFlags::default() };
        for part in &chosen {
            let size = part.meta.size_bytes;
            if size > 0 {
                let from = self.fs.open(&self.me, part.ino, flags).map_err(|error| failed(&error, "part"))?;
                let copied = file.copy_from(&from, 0, offset, size).map_err(|error| failed(&error, "part"))?;
                if copied != size {
                    return Err(s3_error!(InternalError, "part {} lost bytes", part.number));
                }
            }
            sums.update(unhex(&part.meta.etag));
            meta.push_part(size);
            offset += size;
        }
        meta.etag = format!("{}-{}", hex(&sums.finalize()), chosen.len());
        let parts = sum_up(&mut meta, &chosen);
        Ok(Whole { file, meta, parts })
    }
    /// Returns the parts that the client names, if they exist and are in order.
    fn chosen(&self, upload: &Upload, named: &[CompletedPart]) -> S3Result<Vec<Part>> {
        if named.is_empty() {
            return Err(s3_error!(MalformedXML, "You must specify at least one part"));
        }
        if named.len() > PARTS_MAX as usize {
            return Err(s3_error!(InvalidArgument, "{} parts; {PARTS_MAX} are the most", named.len()));
        }
        if !named.is_sorted_by(|before, part| before.part_number < part.part_number) {
            return Err(s3_error!(
                InvalidPartOrder,
                "The list of parts was not in ascending order. Parts must be ordered by part number."
            ));
        }
        let (there, _) = self.parts(upload, 0, PARTS_MAX as usize)?;
        let mut there: BTreeMap<i32, Part> = there.into_iter().map(|part| (part.number, part)).collect();
        let mut chosen: Vec<Part> = Vec::with_capacity(named.len());
        for (place, wanted) in named.iter().enumerate() {
            let number = wanted.part_number.unwrap_or_default();
            let invalid = || {
                s3_error!(
                    InvalidPart,
                    "One or more of the specified parts could not be found: part {number} was not uploaded, or its sum is another."
                )
            };
            let part = there.remove(&number).ok_or_else(invalid)?;
            let etag = wanted.e_tag.as_ref().map(|etag| etag.value().trim_matches('"'));
            if etag != Some(part.meta.etag.as_str()) {
                return Err(invalid());
            }
            for (algorithm, sum) in [
                (Algorithm::Crc32, &wanted.checksum_crc32),
                (Algorithm::Crc32c, &wanted.checksum_crc32c),
                (Algorithm::Crc64Nvme, &wanted.checksum_crc64nvme),
                (Algorithm::Sha1, &wanted.checksum_sha1),
                (Algorithm::Sha256, &wanted.checksum_sha256),
            ] {
                if let (Some(sum), Some(known)) = (sum, part.meta.checksums.get(algorithm.word()))
                    && sum != known
                {
                    return Err(invalid());
                }
            }
            if place + 1 < named.len() && part.meta.size_bytes < PART_BYTES_MIN {
                return Err(s3_error!(
                    EntityTooSmall,
                    "part {number} has {} bytes; all but the last have {PART_BYTES_MIN} at least",
                    part.meta.size_bytes
                ));
            }
            chosen.push(part);
        }
        Ok(chosen)
    }
    /// Aborts an upload and deletes its parts.
    pub fn drop_upload(&self, bucket: &Bucket, upload: &Upload) -> S3Result<()> {
        let uploads = self.behind(bucket, UPLOADS, false)?.ok_or_else(no_upload)?;
        loop {
            let page = match self.fs.list(upload.directory, None, PAGE) {
                Err(error) if is_gone(&error) => return Ok(()),
                page => page.map_err(|error| failed(&error, &upload.meta.key))?,
            };
            for (name, _) in &page {
                match self.fs.unlink(&self.me, upload.directory, name) {
                    Err(error) if !is_gone(&error) => return Err(failed(&error, &upload.meta.key)),
                    _ => {}
                }
            }
            match self.fs.rmdir(&self.me, uploads, upload.id.as_bytes()) {
                Err(error) if error.errno == libc::ENOTEMPTY => {} // a part arrived meanwhile
                Err(error) if !is_gone(&error) => return Err(failed(&error, &upload.meta.key)),
                _ => return Ok(()),
            }
        }
    }
}

/// Computes the checksum of the whole, as requested when the upload began; returns those of the parts, in stored form.
fn sum_up(meta: &mut Meta, parts: &[Part]) -> Option<Vec<u8>> {
    let algorithm = meta.checksum_algorithm.as_deref().and_then(Algorithm::parse)?;
    let sums: Option<Vec<String>> =
        parts.iter().map(|part| part.meta.checksums.get(algorithm.word()).cloned()).collect();
    let sums = sums?;
    let is_full = meta.checksum_type.as_deref() == Some("FULL_OBJECT");
    let sizes = parts.iter().map(|part| part.meta.size_bytes);
    let whole = if is_full { combined(algorithm, sums.iter().zip(sizes)) } else { composite(algorithm, &sums) };
    if let Some(whole) = whole {
        meta.checksums.insert(algorithm.word().to_owned(), whole);
    }
    if meta.checksum_type.is_none() {
        meta.checksum_type = Some("COMPOSITE".into());
    }
    Some(encode(&(algorithm.word(), sums)))
}
/// Reads a file once for a checksum of all of it.
pub fn sum_of_file(algorithm: Algorithm, file: &File) -> S3Result<Option<String>> {
    let claims = crate::checksum::Claims { algorithm: Some(algorithm), ..crate::checksum::Claims::default() };
    let mut sums = crate::checksum::Sums::of(&claims);
    let mut buffer = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        alive::check()?;
        let read = file.read_at(&mut buffer, offset).map_err(|error| failed(&error, "checksum"))?;
        if read == 0 {
            return Ok(sums.finish().checksums.remove(algorithm.word()));
        }
        sums.update(&buffer[..read]);
        offset += read as u64;
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().filter_map(|byte| char::from(byte).to_digit(16).map(|digit| digit as u8)).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}
