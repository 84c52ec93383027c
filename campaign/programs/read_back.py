"""Reads files with one library and writes down their whole content, so that two copies can be compared.

Usage: read_back.py RESULT_JSON h5py|netCDF4|xarray FILE...

The output has a flat table per file, from names such as `/votemper@units` or `/votemper:values` to text; long
values
appear as their SHA-256 with length and type. Two files are the same, bit for bit, if their tables are.
"""

import importlib
import sys
from pathlib import Path

from campaign.programs import say


def main() -> None:
    result, library, *files = sys.argv[1:]
    watch, size, tables = say.Stopwatch(), 0, {}
    view = importlib.import_module(f"campaign.programs.tables.{library.lower()}_view")
    for number, name in enumerate(files):
        with watch():
            table = view.table_of(name)
        size += table.bytes
        tables["/".join(Path(name).parts[-2:])] = table.rows
        say.progress(number + 1, len(files))
    say.result(result, {"seconds": watch.seconds, "bytes": size, "files": len(files), "tables": tables})


if __name__ == "__main__":
    main()
