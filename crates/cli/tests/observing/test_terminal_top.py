"""`cenote top` on an emulated terminal, and for scripts."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pyte
import pytest
from observed import MIB, Served


class Terminal:
    """Runs a program on a terminal of a given size, and holds the screen's content."""

    def __init__(self, served: Served, *args: str, rows: int = 40, columns: int = 120, env: dict | None = None) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        everything = {**os.environ, "TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "", **(env or {})}
        words = ["--store", str(served.dir), "top", *args]
        self.program = pexpect.spawn(str(served.command), words, dimensions=(rows, columns), env=everything, timeout=10)

    def take(self, seconds: float) -> str:
        """Returns the screen's content after this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                read = self.program.read_nonblocking(65536, timeout=left)
            except (pexpect.TIMEOUT, pexpect.EOF):
                break
            self.raw += read
            self.stream.feed(read)
        return "\n".join(self.screen.display)

    def until(self, word: str, seconds: float = 20) -> str:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if word in (shown := self.take(0.2)):
                return shown
        raise AssertionError(f"no `{word}` on the screen:\n{shown}")

    def size(self, rows: int, columns: int) -> None:
        self.screen.resize(rows, columns)
        self.program.setwinsize(rows, columns)


@pytest.fixture
def top(served: Served, writer: subprocess.Popen) -> Iterator[Terminal]:
    terminal = Terminal(served, "--interval", "0.5")
    yield terminal
    terminal.program.close(force=True)


def test_it_shows_what_happens_and_keys_work(top: Terminal, served: Served, writer: subprocess.Popen) -> None:
    top.until("MiB/s")
    served.cenote("flush")
    shown = top.until("durability")
    for word in ["memory", "disk", "client", "write", "MiB/s", "hot objects", "runs/", "clients", str(writer.pid)]:
        assert word in shown, shown
    assert "█" in shown or "▏" in shown, "bars are drawn"
    assert b"\x1b[38" in top.raw or b"\x1b[36m" in top.raw, "in colour"
    top.program.send("p")
    first = top.until("[paused]")
    assert top.take(2) == first, "nothing moves"
    top.program.send("p")
    top.take(1.5)
    assert "\n".join(top.screen.display) != first
    top.program.send("s")
    top.until("largest first")
    top.program.send("s")
    top.until("by name")
    top.program.send("-")
    top.until("every 1 s")
    top.program.send("q")
    top.program.expect(pexpect.EOF)
    top.program.wait()
    assert top.program.exitstatus == 0


def test_any_size_will_do(top: Terminal) -> None:
    top.until("memory")
    for rows, columns in [(24, 80), (60, 200), (10, 40), (3, 10), (1, 1), (24, 80)]:
        top.size(rows, columns)
        top.take(0.7)
        assert top.program.isalive(), (rows, columns)
    assert "memory" in top.until("tiers")


def test_without_colour_and_without_unicode(served: Served) -> None:
    plain = Terminal(served, env={"NO_COLOR": "1", "LANG": "C", "LC_CTYPE": "", "TERM": "vt100"})
    shown = plain.until("memory")
    assert all(ord(c) < 128 for c in shown), [c for c in shown if ord(c) >= 128]
    colours = [b"\x1b[3%dm" % number for number in range(1, 8)] + [b"\x1b[38;5;", b"\x1b[38;2;"]
    assert not any(colour in plain.raw for colour in colours)
    plain.program.sendcontrol("c")
    plain.program.expect(pexpect.EOF)
    plain.program.wait()
    assert plain.program.exitstatus == 0


def test_once_and_json_for_scripts(served: Served, writer: subprocess.Popen) -> None:
    said = served.cenote("top", "--once")
    assert said.isascii() or "µs" in said, said
    assert "memory" in said and "-> " in said
    # Without a terminal it prints tables.
    assert "\x1b" not in served.cenote("top")
    look = served.json("top", "--once", "--interval", "2")
    assert {tier["name"] for tier in look["tiers"]} == {"memory", "disk"}
    write = next(flow for flow in look["flows"] if flow["why"] == "write" and flow["to"] == "memory")
    assert write["bytes_per_s"] > MIB
    client = next(client for client in look["clients"] if client["pid"] == writer.pid)
    assert client["written_bytes_per_s"] == pytest.approx(write["bytes_per_s"], rel=0.3)
    assert client["read_bytes_per_s"] > 0 and client["program"].startswith("python")


def test_no_store_and_bad_arguments(served: Served, tmp_path: Path) -> None:
    def run(*args: str) -> tuple[int, str]:
        done = subprocess.run([served.command, *args], capture_output=True, text=True, timeout=30)
        return done.returncode, done.stderr

    code, said = run("--store", str(tmp_path / "none"), "top", "--once")
    assert code == 1 and "cenote init" in said, said
    assert run("--store", str(served.dir), "top", "--once", "--interval", "0")[0] == 2
    assert run("--store", str(served.dir), "serve", "--http=0.0.0.0:80")[0] == 2


def test_the_address_of_the_page(served: Served) -> None:
    assert served.cenote("top", "--web").strip() == served.url
    served.cenote("stop")
    assert served.cenote("status") and (served.dir / "web-address").exists(), "kept for the next daemon"
    served.cenote("serve", "--background", "--http=off")
    assert not (served.dir / "web-address").exists()
    # No daemon serves the page: the command does, until it is stopped.
    process = subprocess.Popen(
        [served.command, "--store", served.dir, "top", "--web"], stdout=subprocess.PIPE, text=True
    )
    try:
        url = process.stdout.readline().strip()
        code = "import json, sys, urllib.request; print(json.load(urllib.request.urlopen(sys.argv[1]))['uptime_s'])"
        done = subprocess.run(
            ["python3", "-c", code, url + "api/telemetry"], capture_output=True, text=True, timeout=20
        )
        assert json.loads(done.stdout) > 0, done.stderr
    finally:
        process.terminate()
        process.wait(10)
    served.cenote("destroy", "--yes", "--force")
    assert not served.dir.exists(), "nothing of the page keeps the directory"
