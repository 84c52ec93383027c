"""Many small files: limits the messages per file (`benches/hdf5/small_files.py` has times)."""

import json

from test_data import nothing_stays  # noqa: F401 (used by pytest)
from test_files import Place

FILES = 100
# Making a file takes two messages, reading one takes one; the rest is from the session and the counting.
WRITE_MAX, READ_MAX = 3.0, 2.0

WRITE = """
import h5py, numpy
for number in range({}):
    with h5py.File(f"{{number}}.h5", "w") as file:
        made = file.create_dataset("values", data=numpy.arange(100.0) + number)
        made.attrs["units"] = "K"
        made.attrs["number"] = number
"""
READ = """
import h5py
for number in range({}):
    with h5py.File(f"{{number}}.h5", "r") as file:
        found = file["values"]
        assert found.attrs["units"] == "K" and found.attrs["number"] == number and found[5] == 5 + number
"""


def test_a_small_file_is_few_messages(tmp_path):
    place = Place(tmp_path / "store", tmp_path / "data")
    place.data.mkdir()

    def messages(code):
        """Messages per file."""
        before = asked(place)
        assert place.python(code.format(FILES)) == ""
        return (asked(place) - before) / FILES

    assert place.python(WRITE.format(1)) == ""
    assert messages(WRITE) <= WRITE_MAX
    assert messages(READ) <= READ_MAX


def asked(place):
    """Number of messages that the daemon has received."""
    return json.loads(place.command("--json", "top", "--once").stdout)["counters"]["requests"]
