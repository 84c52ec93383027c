"""A store served to S3 clients on a free port of this machine, for tests."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# How long a server may take to start or stop.
PATIENCE_S = 30


def command() -> Path:
    """Path of the `cenote` command: from the environment, or the one built here."""
    given = os.environ.get("CENOTE_BIN")
    found = [Path(given)] if given else [ROOT / "target" / kind / "cenote" for kind in ("release", "debug")]
    built = [path for path in found if path.exists()]
    if not built:
        raise FileNotFoundError(f"no cenote command at {found}: build it, or set CENOTE_BIN")
    return max(built, key=lambda path: path.stat().st_mtime)


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def client(url: str, key: str | None, secret: str | None, **options: object) -> object:
    """Returns a boto3 client without retries; without a key, it does not sign."""
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    settings = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 0}}
    if key is None:
        settings["signature_version"] = UNSIGNED
    return boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=Config(**(settings | options)),
    )


@dataclass
class Served:
    """A store and its S3 server."""

    dir: Path
    arguments: list[str] = field(default_factory=list)
    url: str = ""
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    process: subprocess.Popen | None = None

    def cenote(self, *arguments: str | Path, check: bool = True, **environment: str) -> str:
        """Runs the command on the store; returns its standard output."""
        words = [command(), "--store", self.dir, *arguments]
        environment = os.environ | environment
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, env=environment)
        if check and done.returncode != 0:
            raise RuntimeError(f"cenote {arguments}: {done.stderr}")
        return done.stdout

    def make(self, memory: str = "512MiB", disk: str = "2GiB") -> None:
        """Creates the store."""
        self.cenote(
            "init",
            "--tier",
            f"name=memory,kind=memory,size={memory}",
            "--tier",
            f"name=disk,kind=directory,path={self.dir}.disk,size={disk}",
        )

    def add(self, user: str, key: str | None = None, secret: str = "") -> None:
        """Gives a user a key: this one, or a new one."""
        words = ["--json", "s3", "key", "add", user, "--uid", str(os.geteuid()), *(["--id", key] if key else [])]
        made = json.loads(self.cenote(*words, CENOTE_S3_SECRET=secret))
        self.keys[user] = made["access_key_id"], made["secret_access_key"]

    def start(self) -> None:
        """Starts to serve the store."""
        words = [command(), "s3", self.dir, "--listen", "127.0.0.1:0", *self.arguments]
        with open(f"{self.dir}.log", "ab") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"https?://\S+", line)
        if not found:
            self.stop()
            raise RuntimeError(f"the server said {line!r} and {Path(f'{self.dir}.log').read_text()}")
        self.url = found.group()

    def stop(self, how: int = signal.SIGTERM) -> int | None:
        """Stops serving."""
        if self.process is None:
            return None
        self.process.send_signal(how)
        try:
            code = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process.stdout.close()
        self.process = None
        return code

    def destroy(self) -> None:
        """Stops the server and removes everything."""
        self.stop()
        self.cenote("destroy", "--yes", "--force", check=False)
        shutil.rmtree(f"{self.dir}.disk", ignore_errors=True)

    @property
    def port(self) -> int:
        """The address it listens on."""
        return int(self.url.rsplit(":", 1)[1])

    def client(self, user: str | None = "ann", **options: object) -> object:
        """Returns a boto3 client with a user's key; `None`: without a key."""
        return client(self.url, *(self.keys[user] if user else (None, None)), **options)

    def environment(self, user: str = "ann") -> dict[str, str]:
        """Environment for programs that use AWS's variables."""
        key, secret = self.keys[user]
        return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
