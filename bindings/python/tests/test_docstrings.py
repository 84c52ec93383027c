"""The examples in the documentation of classes do what they say."""

import doctest
from pathlib import Path

import cenote
import pytest

CLASSES = [cenote.Store, cenote.Container, cenote.Object, cenote.Index, cenote.Transaction, cenote.Files]


@pytest.mark.parametrize("class_", CLASSES, ids=lambda class_: class_.__name__)
def test_examples(class_: type, store: cenote.Store, tmp_path: Path) -> None:
    names = {"cenote": cenote, "store": store, "directory": str(tmp_path / "example")}
    [example] = doctest.DocTestFinder(recurse=False).find(class_, class_.__name__, module=False, globs=names)
    assert example.examples
    try:
        report = doctest.DocTestRunner().run(example)
    finally:
        if class_ is cenote.Store:
            cenote.destroy(names["directory"], force=True)
    assert report.failed == 0, "the differences are in the captured output"
