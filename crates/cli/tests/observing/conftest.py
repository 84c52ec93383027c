"""A store with a daemon that serves its page, a program that works on it, and a browser."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from observed import WORK, Served, command, until


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = Served(tmp_path / "store", "", command())
    disk = tmp_path / "disk"
    store.cenote(
        "init",
        "--tier",
        "name=memory,kind=memory,size=64MiB",
        "--tier",
        f"name=disk,kind=directory,path={disk},size=256MiB",
    )
    store.cenote("mk", "runs")
    store.url = store.cenote("serve", "--background", "--http=0").strip()
    assert store.url == (store.dir / "web-address").read_text()
    yield store
    store.cenote("destroy", "--yes", "--force", check=False)


@pytest.fixture
def writer(served: Served) -> Iterator[subprocess.Popen]:
    """A program that writes and reads until the test is over."""
    env = os.environ | {"CENOTE_BIN": str(served.command)}
    process = subprocess.Popen([sys.executable, "-c", WORK, served.dir], env=env)
    yield process
    process.terminate()
    process.wait(10)


@pytest.fixture
def wait() -> Callable[..., object]:
    return until


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[object]:
    """A headless Chromium that can reach only this machine."""
    selenium = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium, chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    quiet = [
        "gpu",
        "quic",
        "extensions",
        "background-networking",
        "component-update",
        "sync",
        "dev-shm-usage",
        "default-apps",
    ]
    for word in [f"--disable-{word}" for word in quiet]:
        options.add_argument(word)
    for word in ["--headless=new", "--no-sandbox", "--no-first-run", "--window-size=1280,900"]:
        options.add_argument(word)
    options.add_argument(f"--user-data-dir={tmp_path / 'profile'}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Chromium has no sandbox in a container that runs as root: --no-sandbox, and only our own pages.
    found = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    yield found
    found.quit()
