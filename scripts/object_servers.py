#!/usr/bin/python3
"""Starts real object services for the tests: OpenStack Swift with its own interface and that of S3, and moto's S3.

All of it listens on 127.0.0.1 on free ports, keeps its files in one directory, which is deleted at the end (unless KEEP
is set), and needs no root. One line of JSON says where the services are; they run until standard input is closed.
Exits with 77, and the reason, if no service is installed.

    python3 scripts/object_servers.py DIRECTORY

Swift comes from the distribution (packages swift-proxy, swift-account, swift-container, swift-object, memcached) and
runs with the distribution's Python; moto from PyPI (`pip install 'moto[server]'`) with the Python in MOTO_PYTHON.
"""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SKIPPED = 77
# Swift reads /etc/swift/swift.conf, wherever its other files are: the path is replaced before it reads
# the file.
SERVER = """
import sys
import swift.common.utils as utils
utils.SWIFT_CONF_FILE = sys.argv[2]
from swift.common.wsgi import run_wsgi
sys.exit(run_wsgi(sys.argv[3], sys.argv[1]))
"""
RINGS = """
import sys
from swift.common.ring import RingBuilder
directory, *ports = sys.argv[1:]
for name, port in zip(("account", "container", "object"), ports):
    ring = RingBuilder(4, 1, 1)
    ring.add_dev({"region": 1, "zone": 1, "weight": 1, "ip": "127.0.0.1", "port": int(port), "device": "d1"})
    ring.rebalance()
    ring.get_ring().save(f"{directory}/{name}.ring.gz")
"""
COMMON = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
swift_dir = {directory}
user = {user}
workers = 0
log_name = {name}
log_address = {directory}/no-syslog
"""
STORAGE = """devices = {directory}/devices
mount_check = false
fallocate_reserve = 0
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
"""
PROXY = """[pipeline:main]
pipeline = catch_errors cache listing_formats bulk ratelimit s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
allow_account_management = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:{memcached}
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:bulk]
use = egg:swift#bulk
[filter:ratelimit]
use = egg:swift#ratelimit
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
user_test_reader = looking
token_life = {token_life_s}
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def waits_for(port: int, process: subprocess.Popen, seconds: float = 60) -> None:
    """Returns when something answers on the port; fails when the process is gone or the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode}")
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port}")


class Servers:
    """The started processes, which are stopped one by one."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.processes: list[subprocess.Popen] = []

    def start(self, name: str, *command: str) -> subprocess.Popen:
        # A process group of its own: stopping it stops a server's workers as well.
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def swift_is_there() -> bool:
    probe = "import swift.common.middleware.s3api, swift.account.server, swift.obj.server"
    found = subprocess.run(["/usr/bin/python3", "-c", probe], capture_output=True, check=False).returncode == 0
    return found and shutil.which("memcached") is not None


def swift(servers: Servers, token_life_s: int) -> dict:
    """Starts Swift with its own interface and that of S3, each with a container `bucket`."""
    directory, user = servers.directory, getpass.getuser()
    (directory / "devices/d1").mkdir(parents=True)
    ports = {name: free_port() for name in ("account", "container", "object", "proxy", "memcached")}
    conf = directory / "swift.conf"
    conf.write_text("[swift-hash]\nswift_hash_path_suffix = tests\n[storage-policy:0]\nname = one\ndefault = yes\n")
    storage = [str(ports[name]) for name in ("account", "container", "object")]
    subprocess.run(["/usr/bin/python3", "-c", RINGS, str(directory), *storage], check=True, capture_output=True)
    servers.start(
        "memcached", "memcached", "-l", "127.0.0.1", "-p", str(ports["memcached"]), "-m", "16", "-u", user, "-U", "0"
    )
    started = []
    for name in ("account", "container", "object", "proxy"):
        text = COMMON.format(port=ports[name], directory=directory, user=user, name=name)
        if name == "proxy":
            text += PROXY.format(memcached=ports["memcached"], token_life_s=token_life_s)
        else:
            text += STORAGE.format(directory=directory, name=name)
        file = directory / f"{name}.conf"
        file.write_text(text)
        args = ("/usr/bin/python3", "-c", SERVER, f"{name}-server", str(conf), str(file))
        started.append((name, servers.start(name, *args)))
    for name, process in started:
        waits_for(ports[name], process)
    url = f"http://127.0.0.1:{ports['proxy']}"
    make_container(url)
    return {
        # Flushing the cache makes every token expire.
        "swift": {"endpoint": f"{url}/auth/v1.0", "user": "test:tester", "key": "testing", "cache": ports["memcached"]},
        "s3": {"endpoint": url, "access_key_id": "test:tester", "secret_access_key": "testing"},
    }


def make_container(url: str) -> None:
    """Signs in and makes `bucket`; a server that has just started may need some moments."""
    for attempt in range(100):
        try:
            headers = {"X-Auth-User": "test:tester", "X-Auth-Key": "testing"}
            with open_url(urllib.request.Request(f"{url}/auth/v1.0", headers=headers)) as answer:
                token, storage = answer.headers["X-Auth-Token"], answer.headers["X-Storage-Url"]
            headers = {"X-Auth-Token": token}
            with open_url(urllib.request.Request(f"{storage}/bucket", method="PUT", headers=headers)):
                return
        except (urllib.error.URLError, OSError) as error:
            if attempt == 99:
                raise RuntimeError(f"Swift makes no container: {error}") from error
            time.sleep(0.1)


def open_url(request: urllib.request.Request):
    """Opens a URL without a proxy, whatever the environment says."""
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30)


def moto_python() -> str | None:
    python = os.environ.get("MOTO_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import moto.server, flask"], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def moto(servers: Servers, python: str) -> dict:
    """Starts another implementation of S3, with a bucket `bucket`."""
    port = free_port()
    process = servers.start("moto", python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    waits_for(port, process)
    url = f"http://127.0.0.1:{port}"
    with open_url(urllib.request.Request(f"{url}/bucket", method="PUT", headers={"Host": f"127.0.0.1:{port}"})):
        pass
    return {"moto": {"endpoint": url, "access_key_id": "any", "secret_access_key": "thing"}}


def main() -> int:
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True)
    servers = Servers(directory)
    found = {}
    try:
        if swift_is_there():
            found |= swift(servers, int(os.environ.get("TOKEN_LIFE_S", "86400")))
        if python := moto_python():
            found |= moto(servers, python)
        if not found:
            print("neither Swift (packages swift-proxy and others, memcached) nor moto is installed", file=sys.stderr)
            return SKIPPED
        print(json.dumps(found), flush=True)
        sys.stdin.read()
    finally:
        servers.stop()
        if "KEEP" not in os.environ:
            shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
