"""Random operations by all views on one store: two thousand of them, and that a difference would be found."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OPERATIONS = 2000


def crossview(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it; CENOTE_SEED replays a seed that was printed."""
    seed = os.environ.get("CENOTE_SEED")
    given = ["--seed", seed] if seed else []
    words = [sys.executable, "-m", "crossview", *given, *arguments]
    return subprocess.run(words, cwd=HERE, capture_output=True, text=True, timeout=1500, check=False)


def test_views_show_the_same() -> None:
    """What one view writes, the others read."""
    pytest.importorskip("cenote", reason="the Python module is not built")
    done = crossview("--operations", str(OPERATIONS), "--episode", "100", "--need", "files,fsspec,s3")
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d+ operations, 0 differences", done.stdout, re.MULTILINE)


def test_stores_side_by_side() -> None:
    """Each store does its part, and a difference that one finds ends all."""
    pytest.importorskip("cenote", reason="the Python module is not built")
    words = ("--operations", "200", "--episode", "50", "--views", "fsspec,s3", "--kind", "files", "--stores", "2")
    done = crossview(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^200 operations on 2 stores, 0 differences", done.stdout, re.MULTILINE)
    done = crossview(*words, "--harm", "30")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERENCE" in done.stdout and "others were stopped" in done.stdout


def test_a_difference_is_found() -> None:
    """What is changed behind the views' backs is noticed: by this the test above is known to look."""
    pytest.importorskip("cenote", reason="the Python module is not built")
    done = crossview(
        "--operations", "100", "--episode", "100", "--views", "fsspec,s3", "--kind", "files", "--harm", "60"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "DIFFERENCE" in done.stdout and "again: --seed" in done.stdout
