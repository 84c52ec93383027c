"""The page in a real browser shows what the store does."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from observed import Served

pytest.importorskip("selenium")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver

Wait = Callable[..., object]


def text(browser: WebDriver, selector: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).text


def mistakes(browser: WebDriver) -> list[str]:
    """Returns the console's messages, except those about lost connections."""
    said = [entry["message"] for entry in browser.get_log("browser")]
    return [line for line in said if "net::ERR" not in line]


def opened(browser: WebDriver, served: Served, wait: Wait) -> None:
    browser.get(served.url)
    wait(lambda: browser.find_element(By.TAG_NAME, "body").get_attribute("data-ready"), "the page has numbers")


def test_numbers_and_flows_are_alive(
    browser: WebDriver, served: Served, writer: subprocess.Popen, wait: Wait, tmp_path: Path
) -> None:
    opened(browser, served, wait)
    wait(lambda: "/s" in text(browser, "#figure-write"), "writes are counted")
    seen = {text(browser, "#figure-write") for _ in range(20) if not time.sleep(0.25)}
    assert len(seen) > 2, f"the number stands still: {seen}"
    for why, start, end in [("write", "client", "memory"), ("read", "memory", "client")]:
        way = f'.flow[data-why="{why}"][data-from="{start}"][data-to="{end}"] .drops'
        wait(lambda way=way: browser.find_elements(By.CSS_SELECTOR, way), f"{why} flows")
    tags = [tag.text for tag in browser.find_elements(By.CSS_SELECTOR, ".flow.tag text:first-child")]
    assert tags and all(tag.endswith("/s") for tag in tags), tags
    # Draining for durability takes time, unless somebody flushes.
    durable = '.flow[data-why="durability"][data-from="memory"][data-to="disk"]'

    def flows_down() -> bool:
        served.cenote("flush")
        return bool(browser.find_elements(By.CSS_SELECTOR, durable))

    wait(flows_down, "copies flow down")
    rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#clients tbody tr")]
    assert any(str(writer.pid) in row and "python" in row for row in rows), rows
    assert "runs" in text(browser, "#containers tbody")
    wait(
        lambda: browser.find_elements(By.CSS_SELECTOR, '.histogram[data-what="get"][data-fresh="true"]'),
        "gets are timed",
    )
    assert "memory" in text(browser, "#ages tbody")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#hot tbody tr")) == 4
    browser.save_screenshot(str(tmp_path / "page.png"))
    assert mistakes(browser) == []


def test_fills_are_those_of_cenote_tiers(browser: WebDriver, served: Served, wait: Wait, tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / "data").write_bytes(os.urandom(3_000_000 + number))
        served.cenote("put", str(tmp_path / "data"), "runs")
    served.cenote("flush")
    opened(browser, served, wait)
    expected = {tier["name"]: str(tier["used_bytes"]) for tier in served.json("tiers")}
    assert int(expected["disk"]) >= 15_000_000, expected

    def fills() -> dict[str, str]:
        labels = browser.find_elements(By.CSS_SELECTOR, ".label[data-tier]")
        return {label.get_attribute("data-tier"): label.get_attribute("data-used") for label in labels}

    wait(lambda: fills() == expected, f"{expected}")
    summary = browser.execute_script("return document.getElementById('well-text').textContent")
    assert "memory (memory) 2" in summary and "disk (directory)" in summary, summary


def test_it_says_that_the_daemon_is_gone_and_comes_back(
    browser: WebDriver, served: Served, writer: subprocess.Popen, wait: Wait
) -> None:
    opened(browser, served, wait)
    wait(lambda: "/s" in text(browser, "#figure-write"), "writes are counted")
    writer.send_signal(signal.SIGSTOP)  # otherwise it starts the next daemon at once
    try:
        os.kill(served.daemon_pid(), signal.SIGKILL)
        wait(lambda: "daemon gone" in text(browser, "#status"), "the page says so")
    finally:
        writer.send_signal(signal.SIGCONT)
    # The program starts another daemon, which serves the page at the same address.
    wait(lambda: text(browser, "#status") == "live", "the page is back")
    wait(lambda: "/s" in text(browser, "#figure-write"), "and counts again")
    assert mistakes(browser) == []


def test_keys_themes_sorting_and_a_phone(
    browser: WebDriver, served: Served, writer: subprocess.Popen, wait: Wait
) -> None:
    opened(browser, served, wait)
    wait(lambda: "/s" in text(browser, "#figure-write"), "writes are counted")
    body = browser.find_element(By.TAG_NAME, "body")
    body.send_keys("p")
    assert text(browser, "#status") == "paused"
    seen = {text(browser, "#figure-write") for _ in range(8) if not time.sleep(0.25)}
    assert len(seen) == 1, seen
    body.send_keys("p")
    assert text(browser, "#status") == "live"
    ground = lambda: browser.execute_script("return getComputedStyle(document.body).backgroundColor")  # noqa: E731
    before = ground()
    body.send_keys("t")
    assert ground() != before
    # By keyboard alone: the first stop skips the header, then everything else shows its focus.
    browser.execute_script("document.activeElement.blur()")
    body.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the well"
    title = browser.find_element(By.CSS_SELECTOR, "#clients thead th:nth-child(2) button")
    title.send_keys(Keys.ENTER)
    order = browser.find_element(By.CSS_SELECTOR, "#clients thead th:nth-child(2)").get_attribute("aria-sort")
    assert order == "descending"
    metrics = {"width": 375, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    wait(lambda: browser.execute_script("return innerWidth") == 375, "the window is narrow")
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= 375, f"the page is {wide} wide: one would have to scroll sideways"
    assert mistakes(browser) == []


def request(served: Served, head: str) -> bytes:
    host, port = served.url.removeprefix("http://").rstrip("/").split(":")
    with socket.create_connection((host, int(port)), timeout=15) as connection:
        connection.sendall(head.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
            if b"text/event-stream" in b"".join(parts):
                break
        return b"".join(parts)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200),
        ("HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: close\r\n\r\n", 200),
        ("GET / HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n", 421),
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 421),
        ("POST /api/telemetry HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 405),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 405),
        ("GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404),
        ("GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        ("nonsense\r\n\r\n", 400),
        (f"GET / HTTP/1.1\r\nHost: localhost\r\nX: {'y' * 100_000}\r\n\r\n", 431),
    ],
)
def test_what_is_answered(served: Served, head: str, status: int) -> None:
    try:
        answer = request(served, head)
    except ConnectionError:  # it closed before reading everything
        assert status == 431
        return
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]


def test_slow_and_many_browsers_do_no_harm(served: Served, writer: subprocess.Popen) -> None:
    host, port = served.url.removeprefix("http://").rstrip("/").split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(80)]
    stuck = []
    for connection in idle[:30]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /api/stream?every=200 HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and never reads
        stuck.append(connection)
    for connection in idle[30:40]:
        connection.sendall(b"GET / HTTP/1.1\r\nHo")  # and sends no more
    before = served.json("top", "--once")
    for _ in range(3):
        begin = time.monotonic()
        served.cenote("ls", "runs")
        assert time.monotonic() - begin < 3, "the daemon answers others as before"
    after = served.json("top", "--once")
    written = [sum(flow["bytes"] for flow in look["flows"] if flow["why"] == "write") for look in (before, after)]
    assert written[1] > written[0], "the program goes on"
    memory = Path(f"/proc/{served.daemon_pid()}/status").read_text()
    resident_kib = int(memory.split("RssAnon:")[1].split()[0])
    assert resident_kib < 200_000, f"{resident_kib} KiB"
    for connection in idle:
        connection.close()
    time.sleep(0.5)
    head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert request(served, head).startswith(b"HTTP/1.1 200"), "there is room again"


def test_other_users_see_nothing(served: Served) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can ask as another user")
    curl = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + 'api/telemetry').status)"

    def ask(uid: int) -> str:
        done = subprocess.run(
            ["/usr/bin/python3", "-c", curl, served.url], user=uid, group=uid, capture_output=True, text=True, cwd="/"
        )
        return done.stdout + done.stderr

    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python that every user may run")
    assert "200" in ask(0)
    assert "403" in ask(65534), "nobody is neither the owner nor among the readers"
