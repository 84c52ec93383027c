"""Directories and files as S3 shows them: buckets and keys."""

import email.utils
import errno
import urllib.parse
import xml.etree.ElementTree as ET

from .seen import Seen
from .signed import S3Failed, Signed

# What a status is as a number of POSIX's, to say that both refused. Statuses are compared where the rules name them.
NUMBERS = {404: errno.ENOENT, 409: errno.EEXIST, 412: errno.EEXIST, 403: errno.EACCES, 400: errno.EINVAL}
PAGE = "17"


class S3View:
    """A store by S3. Paths begin with the bucket's name."""

    def __init__(self, port: int, key: str, secret: str) -> None:
        self.s3 = Signed(port, key, secret)
        self.looks = 0

    def ask(self, method: str, path: str, **options: object) -> tuple[dict[str, str], bytes]:
        """A request whose failure is an OSError."""
        try:
            return self.s3.request(method, f"/{path}", **options)
        except S3Failed as failed:
            raise OSError(NUMBERS.get(failed.status, errno.EIO), str(failed), path) from failed

    # Changes.

    def put(self, path: str, value: bytes, meta: dict[str, str] | None = None) -> None:
        headers = {f"x-amz-meta-{name}": text for name, text in (meta or {}).items()}
        self.ask("PUT", path, body=value, headers=headers)

    def put_new(self, path: str, value: bytes) -> None:
        """Only if no object is there."""
        self.ask("PUT", path, body=value, headers={"If-None-Match": "*"})

    def put_over(self, path: str, value: bytes) -> None:
        """Only if the object is what it was a moment ago."""
        tag = self.ask("HEAD", path)[0]["etag"]
        self.ask("PUT", path, body=value, headers={"If-Match": tag})

    def put_in_parts(self, path: str, parts: list[bytes]) -> None:
        """By an upload; parts but the last have 5 MiB at least."""
        made = ET.fromstring(self.ask("POST", path, query={"uploads": ""})[1])
        number = next(one.text for one in made.iter() if one.tag.endswith("UploadId"))
        tags = []
        for place, part in enumerate(parts, 1):
            query = {"partNumber": str(place), "uploadId": number}
            tags.append(self.ask("PUT", path, query=query, body=part)[0]["etag"])
        lines = "".join(
            f"<Part><PartNumber>{place}</PartNumber><ETag>{tag}</ETag></Part>" for place, tag in enumerate(tags, 1)
        )
        whole = f"<CompleteMultipartUpload>{lines}</CompleteMultipartUpload>".encode()
        _, said = self.ask("POST", path, query={"uploadId": number}, body=whole)
        if b"<Error>" in said:
            raise OSError(errno.EEXIST, said.decode(), path)

    def copy_whole(self, old: str, new: str) -> None:
        source = urllib.parse.quote(f"/{old}", safe="/-_.~")
        _, said = self.ask("PUT", new, headers={"x-amz-copy-source": source})
        if b"<Error>" in said:
            raise OSError(errno.EIO, said.decode(), new)

    def unlink(self, path: str) -> None:
        self.ask("DELETE", path)

    def unlink_many(self, paths: list[str]) -> None:
        bucket = paths[0].partition("/")[0]
        whole = ET.Element("Delete")
        for path in paths:
            ET.SubElement(ET.SubElement(whole, "Object"), "Key").text = path.partition("/")[2]
        body = ET.tostring(whole)
        import base64
        import hashlib

        sum_of = base64.b64encode(hashlib.md5(body).digest()).decode()
        _, said = self.ask("POST", bucket, query={"delete": ""}, body=body, headers={"content-md5": sum_of})
        if b"<Error>" in said:
            raise OSError(errno.EIO, said.decode(), bucket)

    def mkdir(self, path: str) -> None:
        """A directory as a key."""
        self.ask("PUT", f"{path}/")

    def rmdir(self, path: str) -> None:
        self.ask("DELETE", f"{path}/")

    def make(self, bucket: str) -> None:
        self.ask("PUT", bucket)

    def publish(self, path: str) -> None:
        """S3 answers when all see what was done."""

    # What is seen.

    def see(self, path: str) -> Seen:
        bucket, _, key = path.partition("/")
        try:
            if key:
                return self.look(path)
            return Seen("dir", names=self.names(bucket, ""))
        except OSError as error:
            if error.errno != errno.ENOENT:
                return Seen("error", errno=error.errno, note=str(error))
        try:
            names = self.names(bucket, f"{key}/") if key else ()
        except FileNotFoundError:
            names = ()
        return Seen("dir", names=names) if names else Seen("error", errno=errno.ENOENT)

    def look(self, path: str) -> Seen:
        """An object: what GET says, and each fourth time HEAD and a GET of a part."""
        got, content = self.ask("GET", path)
        self.looks += 1
        if self.looks % 4 == 0:
            self.look_again(path, got, content)
        modified = int(email.utils.parsedate_to_datetime(got["last-modified"]).timestamp()) * 10**9
        meta = [
            (name.removeprefix("x-amz-meta-"), text) for name, text in got.items() if name.startswith("x-amz-meta-")
        ]
        return Seen(
            "file",
            size=int(got["content-length"]),
            content=content,
            modified=modified,
            etag=got["etag"].strip('"'),
            meta=tuple(sorted(meta)),
        )

    def look_again(self, path: str, got: dict[str, str], content: bytes) -> None:
        """HEAD and parts must say the same.

        The time that a writer has kept may become known between two requests, once: the bytes are the same then.
        """
        head, _ = self.ask("HEAD", path)
        if head["etag"] != got["etag"]:
            got, again = self.ask("GET", path)
            if again != content:
                raise OSError(errno.EIO, "two GET have other bytes", path)
        for name in ("etag", "content-length", "last-modified"):
            if head[name] != got[name]:
                raise OSError(errno.EIO, f"HEAD says {head[name]}, GET {got[name]}", path)
        if len(content) > 2:
            begin, end = len(content) // 3, 2 * len(content) // 3
            part = self.ask("GET", path, headers={"Range": f"bytes={begin}-{end}"})[1]
            if part != content[begin : end + 1]:
                raise OSError(errno.EIO, f"bytes {begin} to {end} are others than in the whole", path)

    def pages(self, bucket: str, **query: str) -> list[str]:
        """Keys and common prefixes of a list, by pages."""
        found: list[str] = []
        more: dict[str, str] = {}
        while True:
            asked = {"list-type": "2", "encoding-type": "url"} | {
                name.replace("_", "-"): v for name, v in query.items()
            }
            page = ET.fromstring(self.ask("GET", bucket, query=asked | more)[1])
            space = page.tag.partition("}")[0] + "}"
            texts = [one.findtext(f"{space}Key") for one in page.iter(f"{space}Contents")]
            texts += [one.findtext(f"{space}Prefix") for one in page.iter(f"{space}CommonPrefixes")]
            found += [urllib.parse.unquote(text or "") for text in texts]
            token = page.findtext(f"{space}NextContinuationToken")
            if token is None:
                return found
            more = {"continuation-token": token}

    def names(self, bucket: str, prefix: str) -> tuple[str, ...]:
        """Names right below a prefix; those that are prefixes end in a slash, the prefix itself is "." if a key."""
        found = self.pages(bucket, prefix=prefix, delimiter="/")
        return tuple(sorted(name.removeprefix(prefix) or "." for name in found))

    def top(self) -> list[str]:
        said = ET.fromstring(self.ask("GET", "")[1])
        space = said.tag.partition("}")[0] + "}"
        return sorted(one.findtext(f"{space}Name") or "" for one in said.iter(f"{space}Bucket"))

    def everything(self, container: str) -> dict[str, Seen]:
        """All keys, in the order that they are listed in; by small pages."""
        keys = self.pages(container, max_keys=PAGE)
        found = {"": Seen("keys", names=tuple(keys))}
        found |= {f"{container}/{key}": self.see(f"{container}/{key}") for key in keys if not key.endswith("/")}
        return found
