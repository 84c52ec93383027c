"""A tier whose service stops responding: it accepts connections and never answers, or stops in mid-answer."""

import os
import socket
import threading
import time

import pytest
from test_s3_tier_away import MIB, put, run, tier_in

# Two tries of 30 s, or one of 64 s for the 4 MiB of a piece (`docs/tiers.md`), plus the rest of a command.
PATIENCE_S = 90
# Limit for commands that do not use the tier.
QUICK_S = 10

pytestmark = pytest.mark.skipif(not os.environ.get("CENOTE_SLOW"), reason="takes minutes: CENOTE_SLOW=1 runs it")


@pytest.fixture(autouse=True)
def settings(tmp_path, monkeypatch):
    """Keeps the list of allowed credential targets out of the tester's own user settings."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


class Line:
    """Proxy to a service and back; once told to fall silent, it forwards this many more bytes of answers."""

    def __init__(self, port: int) -> None:
        self.port, self.passes = port, None
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.port))
            for source, target, comes_back in [(near, far, False), (far, near, True)]:
                threading.Thread(target=self.carry, args=(source, target, comes_back), daemon=True).start()

    def carry(self, source: socket.socket, target: socket.socket, comes_back: bool) -> None:
        carried = 0
        try:
            while data := source.recv(1 << 16):
                if comes_back and self.passes is not None:
                    data = data[: max(0, self.passes - carried)]
                    carried += len(data)
                target.sendall(data)
        except OSError:
            pass
        finally:
            if not (comes_back and self.passes is not None):
                target.close()


@pytest.mark.parametrize("passes", [0, MIB], ids=["never answers", "stops in the middle"])
def test_a_service_that_falls_silent(fresh, tmp_path, passes):
    served = fresh()
    served.start()
    store, (cold, _) = tmp_path / "store", tier_in(served, tmp_path)
    line = Line(int(served.url.rsplit(":", 1)[1]))
    cold = cold.replace(served.url, line.url)
    made = run(store, "init", "--tier", "name=ram,kind=memory,size=256MiB", "--tier", cold)
    assert made.returncode == 0, made.stderr
    assert run(store, "serve", store, "--background", "--idle-exit", "60").returncode == 0
    try:
        content = b"content." * (48 * MIB // 8)
        (tmp_path / "file").write_bytes(content)
        (tmp_path / "near").write_bytes(b"near" * MIB)
        assert run(store, "mk", "c").returncode == 0
        there = put(store, tmp_path / "file")
        for words in ["archive", "release"]:
            done = run(store, words, there)
            assert done.returncode == 0, done.stderr
        near = put(store, tmp_path / "near")
        line.passes = passes

        answers: list[tuple[float, str]] = []

        def read() -> None:
            begun = time.monotonic()
            done = run(store, "cat", there)
            assert done.returncode == 1
            answers.append((time.monotonic() - begun, done.stderr))

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        time.sleep(5)
        begun = time.monotonic()
        assert run(store, "cat", near).returncode == 0
        assert run(store, "tiers").returncode == 0
        assert time.monotonic() - begun < QUICK_S, "nobody else waits"
        for reader in readers:
            reader.join()
        assert len(answers) == len(readers)
        for took, said in answers:
            print(f"{took:.1f} s: {said}")
            assert took < PATIENCE_S, f"{took} s: {said}"
            assert "cold" in said and "delete" not in said and "not lost" in said, said

        line.passes = None
        time.sleep(4)
        begun = time.monotonic()
        done = run(store, "cat", there)
        assert done.returncode == 0, done.stderr
        assert done.stdout == content.decode()
        assert time.monotonic() - begun < PATIENCE_S
        begun = time.monotonic()
        assert run(store, "stop").returncode == 0
        assert time.monotonic() - begun < QUICK_S, "no thread is left that waits"
    finally:
        line.passes = None
        run(store, "destroy", "--yes", "--force")
