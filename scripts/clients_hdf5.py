"""Test suites of HDF5 clients, natively and on the connector. `make clients-hdf5` (ARGS="--only NAME,NAME").

Each suite comes from PyPI, with the wheel or the source archive of the release, into an environment below target/. It
runs twice: on native HDF5, and with the connector's two environment variables. docs/hdf5-clients.md has the results.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PLUGIN = TOP / "target/hdf5-plugin"
ENVIRONMENTS = TOP / "target/clients-hdf5"
PAGE = TOP / "docs/hdf5-clients.md"
SUITE_SECONDS = 3600


@dataclass(frozen=True)
class Suite:
    """The source of a suite, and its requirements."""

    package: str
    version: str
    # Path of the tests, below site-packages or in the source archive.
    tests: str
    needs: tuple[str, ...] = ()
    from_source: bool = False
    arguments: tuple[str, ...] = ()


SUITES = {
    "h5netcdf": Suite("h5netcdf", "1.8.2", "h5netcdf/tests", ("netCDF4", "h5py")),
    "anndata": Suite("anndata", "0.12.19", "tests", ("anndata[test]", "h5py"), True, ("-k", "h5ad or hdf5 or h5")),
    # Its `test_compat.py` needs files that only the source tree has.
    "pandas": Suite(
        "pandas",
        "3.1.1",
        "pandas/tests/io/pytables",
        ("tables", "hypothesis"),
        arguments=("--continue-on-collection-errors",),
    ),
    "hickle": Suite("hickle", "5.0.3", "hickle/tests", ("h5py", "scipy", "astropy", "pandas")),
    "silx": Suite("silx", "3.1.3", "silx/io/test", ("h5py", "hdf5plugin", "fabio")),
    "MDAnalysis": Suite("MDAnalysisTests", "2.11.0", "MDAnalysisTests/coordinates/test_h5md.py", ("pyedr", "h5py")),
    "nexusformat": Suite("nexusformat", "2.1.0", "tests", ("h5py",), True),
}

COPIED = (
    "copies a file with `shutil` and reads the copy: passes with `CENOTE_HDF5_COPIES=1`, "
    "without which copies of stubs are refused (`cenote cp` copies files)"
)
# Reasons for results that differ from the native ones: a part of the test's name,
# and the reason.
REASONS = {
    "test_complib_without_complevel_warns": "compares the sizes of two files; that of a stub is not that of the data",
    "test_no_track_times": "compares checksums of files' bytes; a stub has an id and a generation of its own",
    "test_ReferenceManager": COPIED,
    "test_singleton": COPIED,
    "test_modes_multi_process": "wants a reader without locks refused while a file of the newest format is written; "
    "readers of a file of the store see whole states and are let in",
    "test_virtual_fields": "a virtual dataset in a file in memory, which is HDF5's own, of files of the store",
}


def environment(name: str, suite: Suite) -> tuple[Path, Path]:
    """Returns a Python with the suite, and the path of the tests."""
    root = ENVIRONMENTS / name
    python = root / "bin/python"
    if not python.exists():
        venv.create(root, with_pip=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"{suite.package}=={suite.version}", "pytest", *suite.needs], check=True)
    if not suite.from_source:
        site = next((root / "lib").glob("python3.*/site-packages"))
        return python, site / suite.tests
    sources = root / "sources"
    if not sources.exists():
        fetch = [*pip, "download", "--no-deps", "--no-binary", ":all:", "--dest", root / "archives"]
        subprocess.run([*fetch, f"{suite.package}=={suite.version}"], check=True)
        archive = next((root / "archives").glob("*.tar.gz"))
        with tarfile.open(archive) as opened:
            opened.extractall(sources, filter="data")
    return python, next(sources.iterdir()) / suite.tests


def outcomes(python: Path, tests: Path, suite: Suite, variables: dict[str, str], work: Path) -> dict[str, str]:
    """Returns each test's outcome: passed, failed, skipped."""
    report = work / "report.xml"
    command = [
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        work / "base",
        f"--junitxml={report}",
    ]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HDF5_", "CENOTE_", "PYTHON"))}
    command += [*suite.arguments, tests]
    run = subprocess.run(
        command, cwd=work, env=kept | variables, capture_output=True, text=True, errors="replace", timeout=SUITE_SECONDS
    )
    if not report.exists():
        raise RuntimeError(f"pytest made no report:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    ended = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        how = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        where = str(case.get("classname")).rpartition("site-packages.")[2].rpartition("sources.")[2]
        ended[f"{where}::{case.get('name')}"] = how
    return ended


def run_suite(name: str, suite: Suite) -> dict[str, object]:
    """Returns a suite's results: how many tests pass natively, and which of these do not here."""
    print(f"{name} {suite.version}: setting up", flush=True)
    python, tests = environment(name, suite)
    with tempfile.TemporaryDirectory(prefix=f"clients-{name}-") as place:
        work = Path(place)
        store = {"HDF5_PLUGIN_PATH": str(PLUGIN), "HDF5_VOL_CONNECTOR": f"cenote store={work}/store"}
        found = []
        for label, variables in (("native", {}), ("cenote", store)):
            below = work / label
            below.mkdir()
            found.append(outcomes(python, tests, suite, variables, below))
            counts = {how: list(found[-1].values()).count(how) for how in ("passed", "failed", "skipped")}
            print(f"{name} {label}: {counts}", flush=True)
        destroy = [TOP / "target/release/cenote", "destroy", "--yes", "--force", work / "store"]
        subprocess.run(destroy, capture_output=True)
    native, ours = found
    passed = [test for test, how in native.items() if how == "passed"]
    if not passed:
        raise RuntimeError(f"{name}: no test of the suite passes natively, so it shows nothing")
    different = [f"{test}: {ours.get(test, 'missing')}" for test in passed if ours.get(test) != "passed"]
    day = str(datetime.date.today())
    return {"release": suite.version, "day": day, "native": len(passed), "different": different}


def page(results: dict[str, dict]) -> str:
    """Returns the page, for the suites that have been run."""
    rows, lists = [], []
    for name, found in results.items():
        different = found["different"]
        same = found["native"] - len(different)
        rows.append(f"| {name} | {found['release']} | {found['day']} | {found['native']} | {same} | {len(different)} |")
        for line in different:
            test, _, how = line.rpartition(": ")
            why = next((reason for part, reason in REASONS.items() if part in test), "not known")
            lists.append(f"- {name}, `{test}`, {how}: {why}")
    text = [
        "# Suites of HDF5 clients",
        "",
        "Made by `make clients-hdf5`: each suite on native HDF5 and on the connector, with the releases from PyPI.",
        "",
        "| client | release | run on | pass natively | of these on Cenote | otherwise |",
        "|---|---|---|---|---|---|",
        *rows,
        *(["", "Otherwise than natively, and why:", "", *lists] if lists else []),
    ]
    return "\n".join(text) + "\n"


def main() -> int:
    """Runs suites and writes the page of all that were run; returns 1 on an unexplained difference."""
    parser = argparse.ArgumentParser(prog="clients-hdf5", description=__doc__)
    parser.add_argument("--only", help="these suites, with commas; the others stay in the page as they were")
    args = parser.parse_args()
    kept = ENVIRONMENTS / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    for name in args.only.split(",") if args.only else list(SUITES):
        results[name] = run_suite(name, SUITES[name])
        kept.write_text(json.dumps(results, indent=1))
    text = page({name: results[name] for name in SUITES if name in results})
    print(text, end="")
    PAGE.write_text(text)
    return 1 if "not known" in text else 0


if __name__ == "__main__":
    if not shutil.which("cargo") or not PLUGIN.exists():
        sys.exit("clients-hdf5: `make build` first")
    sys.exit(main())
