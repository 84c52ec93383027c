"""Requests that no client sends: signed, then sent unchanged."""

import http.client

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


class Signer(S3SigV4Auth):
    """Signs a request with the given claims about its body."""

    def __init__(self, served, payload: str, user: str = "ann") -> None:
        super().__init__(Credentials(*served.keys[user]), "s3", "us-east-1")
        self.said = payload

    def payload(self, request: AWSRequest) -> str:
        return self.said


def signed(
    served, method: str, path: str, headers: dict[str, str] | None = None, payload: str = "UNSIGNED-PAYLOAD"
) -> dict[str, str]:
    """Headers of a request by ann with an unsigned body."""
    request = AWSRequest(method, f"{served.url}{path}", headers=headers or {})
    Signer(served, payload).add_auth(request)
    return dict(request.headers)


def raw(served, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """Sends a request unchanged; returns the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in ({"Host": f"127.0.0.1:{served.port}"} | headers).items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read()
