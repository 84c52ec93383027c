"""Nothing of the tests' stores is left behind in shared memory."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_memory_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Destroys the stores that tests made in their directories, and gives back the memory of those moved or damaged."""
    yield
    import cenote  # tests of the scripts run before it is built

    for memory in Path("/dev/shm").glob("cenote-*"):
        with contextlib.suppress(OSError):
            home = (memory / "home").read_bytes()
            if not home.startswith(os.fsencode(tmp_path_factory.getbasetemp())):
                continue
            with contextlib.suppress(cenote.Error, UnicodeDecodeError):
                cenote.destroy(home.decode(), force=True)
            shutil.rmtree(memory, ignore_errors=True)
