"""A small S3 client: requests with signature 4, and nothing else, so that one takes a fraction of a millisecond."""

import hashlib
import hmac
import http.client
import select
import time
import urllib.parse

EMPTY = hashlib.sha256(b"").hexdigest()


class S3Failed(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str, body: str) -> None:
        super().__init__(f"{status} {code}: {body[:300]}")
        self.status, self.code = status, code


class Broken(Exception):
    """The connection ended without an answer."""


class Signed:
    """A connection to an S3 server."""

    def __init__(self, port: int, key: str, secret: str) -> None:
        self.host, self.key, self.secret = f"127.0.0.1:{port}", key, secret
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def request(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> tuple[dict[str, str], bytes]:
        """Headers and body of the answer; raises `S3Failed`. path: `/bucket/key`, not yet encoded."""
        at = urllib.parse.quote(path, safe="/-_.~", errors="surrogateescape")
        asked = "&".join(
            f"{urllib.parse.quote(name, safe='-_.~')}={urllib.parse.quote(value, safe='-_.~')}"
            for name, value in sorted((query or {}).items())
        )
        signed = self.sign(method, at, asked, body, headers or {})
        answer, found = self.exchange(method, f"{at}?{asked}" if asked else at, body, signed)
        if answer.status >= 300:
            text = found.decode(errors="replace")
            code = text.partition("<Code>")[2].partition("</Code>")[0]
            raise S3Failed(answer.status, code, text)
        return {name.lower(): value for name, value in answer.getheaders()}, found

    def exchange(
        self, method: str, target: str, body: bytes, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """One request and its answer. A server may end a connection between requests, and does after one whose body it
        did not want to read: as every client does, this notices, and asks again on a new one.
        """
        connection = self.connection
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()
        is_new = connection.sock is None
        try:
            connection.request(method, target, body or None, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        except (OSError, http.client.HTTPException) as broken:
            connection.close()
            if is_new:
                raise Broken(f"{method} {target} ({len(body)} bytes): {type(broken).__name__}: {broken}") from broken
        return self.exchange(method, target, body, headers)

    def sign(self, method: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> dict[str, str]:
        """The headers of a request with its signature."""
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        sum_of = hashlib.sha256(body).hexdigest() if body else EMPTY
        every = {name.lower(): value for name, value in headers.items()}
        every |= {"host": self.host, "x-amz-date": now, "x-amz-content-sha256": sum_of}
        names = ";".join(sorted(every))
        lines = "".join(f"{name}:{every[name].strip()}\n" for name in sorted(every))
        scope = f"{now[:8]}/us-east-1/s3/aws4_request"
        canonical = hashlib.sha256("\n".join([method, path, query, lines, names, sum_of]).encode()).hexdigest()
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, canonical]).encode()
        signature = hmac.new(key, to_sign, hashlib.sha256).hexdigest()
        every["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        every["content-length"] = str(len(body))
        return every
