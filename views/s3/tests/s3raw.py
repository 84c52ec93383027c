"""Requests as no client makes them: signed, and then sent as they are."""

import http.client

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


class Signer(S3SigV4Auth):
    """Signs a request, and says of its body what it is told to."""

    def __init__(self, served, payload: str, user: str = "ann") -> None:
        super().__init__(Credentials(*served.keys[user]), "s3", "us-east-1")
        self.said = payload

    def payload(self, request: AWSRequest) -> str:
        return self.said


def signed(
    served, method: str, path: str, headers: dict[str, str] | None = None, payload: str = "UNSIGNED-PAYLOAD"
) -> dict[str, str]:
    """Headers of a request that is signed by ann, its body not."""
    request = AWSRequest(method, f"{served.url}{path}", headers=headers or {})
    Signer(served, payload).add_auth(request)
    return dict(request.headers)


def raw(served, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, bytes]:
    """A request as it is given; the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in ({"Host": f"127.0.0.1:{served.port}"} | headers).items():
        connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read()
