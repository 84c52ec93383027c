"""One server for all tests of a run, and a separate bucket for each test."""

import itertools
import os
import random
from collections.abc import Callable, Iterator

import pytest
from s3server import Served

pytest.importorskip("boto3", reason="boto3 is not installed (scripts/requirements.txt)")

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store with users ann and bob."""
    server = Served(tmp_path_factory.mktemp("s3") / "store")
    server.make()
    server.add("ann")
    server.add("bob")
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Starts further servers with other arguments."""
    made = []

    def make(*arguments: str) -> Served:
        server = Served(tmp_path_factory.mktemp("s3") / "store", list(arguments))
        made.append(server)
        server.make()
        server.add("ann")
        return server

    yield make
    for server in made:
        server.destroy()


@pytest.fixture
def s3(served: Served) -> object:
    """Ann's client."""
    return served.client("ann")


@pytest.fixture
def bucket(s3: object) -> str:
    """An empty bucket of Ann's."""
    name = f"bucket-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def rng() -> random.Random:
    """Random numbers, replayed by CENOTE_SEED."""
    seed = int(os.environ.get("CENOTE_SEED", random.randrange(1 << 32)))
    print(f"CENOTE_SEED={seed}")
    return random.Random(seed)
