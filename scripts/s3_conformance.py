"""Runs ceph/s3-tests against `cenote s3`: `make s3-conformance ARGS=CHECKOUT`.

CHECKOUT is a checkout of https://github.com/ceph/s3-tests, which is not changed. Tests of features that are not
claimed, and tests that are known to fail, are in views/s3/tests/conformance.toml, each with its reason. Exits with 1 if
an unlisted test fails, or a listed one passes; with `--write` it rewrites the table in docs/s3.md.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
import xml.etree.ElementTree as ElementTree
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "views/s3/tests"))
from s3server import Served  # noqa: E402

LISTED = ROOT / "views/s3/tests/conformance.toml"
PAGE = ROOT / "docs/s3.md"
BEGIN, END = "<!-- written by make s3-conformance -->", "<!-- end -->"
FILES = ("s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py")
# Least share of claimed features' tests that must pass.
BAR = 0.95
# section of the configuration, user, key
USERS = [
    ("s3 main", "main", "MAINMAINMAINMAINMAIN"),
    ("s3 alt", "alt", "ALTALTALTALTALTALTAL"),
    ("s3 tenant", "tenanted", "TENANTTENANTTENANTTE"),
    ("iam", "iam", "IAMIAMIAMIAMIAMIAMIA"),
    ("iam root", "root1", "ROOTROOTROOTROOTROOT"),
    ("iam alt root", "root2", "RTWORTWORTWORTWORTWO"),
]


def configuration(port: int) -> str:
    """Returns the tests' configuration for the server."""
    lines = ["[DEFAULT]", "host = 127.0.0.1", f"port = {port}", "is_secure = False", "ssl_verify = False"]
    lines += ["[fixtures]", "bucket prefix = cenote-{random}-", "iam name prefix = s3-tests-"]
    lines += ["iam path prefix = /s3-tests/"]
    for section, user, key in USERS:
        lines += [f"[{section}]", f"display_name = {user}", f"user_id = {user}", f"email = {user}@example.com"]
        lines += [f"access_key = {key}", f"secret_key = {key.lower() * 2}", "api_name = default", "tenant = testx"]
    return "\n".join(lines) + "\n"


def serve(directory: Path) -> Served:
    """Serves a store with the users of the tests."""
    served = Served(directory / "store")
    served.make("2GiB", "8GiB")
    for _, user, key in USERS:
        served.add(user, key, key.lower() * 2)
    served.start()
    return served


def python(checkout: Path) -> Path:
    """Returns a Python with the tests' requirements."""
    home = ROOT / "target/s3-conformance/venv"
    found = home / "bin/python"
    if not found.exists():
        print(f"s3-conformance: making {home.relative_to(ROOT)}", file=sys.stderr)
        venv.create(home, with_pip=True)
        wanted = (line.strip() for line in (checkout / "requirements.txt").read_text().splitlines())
        wanted = [line for line in wanted if line and not line.startswith(("#", "tox"))]
        subprocess.run([found, "-m", "pip", "install", "-q", "--disable-pip-version-check", *wanted], check=True)
    return found


def run(checkout: Path, directory: Path, markers: dict[str, str], chosen: str | None) -> dict[str, str]:
    """Runs the tests; returns each outcome: passed, failed or skipped."""
    served = serve(directory)
    try:
        (directory / "s3tests.conf").write_text(configuration(served.port))
        report = directory / "report.xml"
        words = [
            python(checkout),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=short",
            f"--junit-xml={report}",
        ]
        words += ["-m", " and ".join(f"not {marker}" for marker in markers), *FILES]
        words += ["-k", chosen] if chosen else []
        environment = os.environ | {"S3TEST_CONF": str(directory / "s3tests.conf"), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(words, cwd=checkout, env=environment, check=False)
    finally:
        served.destroy()
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        bad = kinds & {"failure", "error"}
        name = case.get("name")
        outcomes[name] = (
            "failed" if bad or outcomes.get(name) == "failed" else "skipped" if kinds & {"skipped"} else "passed"
        )
    return outcomes


def reason_of(name: str, listed: list[dict]) -> dict | None:
    """Returns the entry that lists a test."""
    return next((one for one in listed if any(fnmatch(name, f"test_{pattern}") for pattern in one["tests"])), None)


def table(listed: list[dict], names: dict[str, list[str]]) -> list[str]:
    """Returns the rows of a table: how many, which, why."""
    rows = ["| tests | | why |", "|---|---|---|"]
    for place, one in enumerate(listed):
        found = names.get(place, [])
        if found:
            told = ", ".join(f"`{name.removeprefix('test_')}`" for name in sorted(found))
            rows.append(f"| {told} | {len(found)} | {one['why']} |")
    return rows


def judge(outcomes: dict[str, str], known: dict) -> tuple[list[str], bool]:
    """Returns the page's lines about a run, and whether all outcomes are as listed."""
    ran = {name: outcome for name, outcome in outcomes.items() if outcome != "skipped"}
    apart, failing, surprises = {}, {}, []
    claimed = passed = 0
    for name, outcome in sorted(ran.items()):
        unclaimed = reason_of(name, known["unclaimed"])
        if unclaimed:
            apart.setdefault(known["unclaimed"].index(unclaimed), []).append(name)
            continue
        claimed += 1
        listed = reason_of(name, known["fails"])
        if outcome == "passed":
            passed += 1
            surprises += [f"{name} passes, but is listed as failing"] if listed else []
        elif listed:
            failing.setdefault(known["fails"].index(listed), []).append(name)
        else:
            surprises.append(f"{name} fails, and is not listed")
    for surprise in surprises:
        print(f"s3-conformance: {surprise}", file=sys.stderr)
    share = passed / max(claimed, 1)
    lines = [
        f"{passed} of {claimed} tests of what is claimed pass ({100 * share:.1f}%; the bar is {100 * BAR:.0f}%).",
        "",
    ]
    lines += ["What fails, and why:", "", *table(known["fails"], failing), ""]
    lines += ["Not claimed, test by test:", "", *table(known["unclaimed"], apart), ""]
    lines += ["Not claimed, by the tests' own markers:", "", "| marker | why |", "|---|---|"]
    lines += [f"| `{marker}` | {why} |" for marker, why in known["markers"].items()]
    return lines, share >= BAR and not surprises


def write(lines: list[str]) -> None:
    """Writes the lines into the page, between its marks."""
    text = PAGE.read_text()
    made = "\n".join([BEGIN, "", *lines, "", END])
    PAGE.write_text(re.sub(f"{re.escape(BEGIN)}.*?{re.escape(END)}", lambda _: made, text, flags=re.DOTALL))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="of https://github.com/ceph/s3-tests")
    parser.add_argument("--write", action="store_true", help="write the table in docs/s3.md")
    parser.add_argument("-k", dest="chosen", metavar="EXPRESSION", help="only these tests, as pytest has it")
    arguments = parser.parse_args()
    if not (arguments.checkout / FILES[0]).exists():
        parser.error(
            f"{arguments.checkout} is no checkout of ceph/s3-tests: git clone https://github.com/ceph/s3-tests"
        )
    known = tomllib.loads(LISTED.read_text())
    with tempfile.TemporaryDirectory() as scratch:
        outcomes = run(arguments.checkout.resolve(), Path(scratch), known["markers"], arguments.chosen)
    lines, is_as_listed = judge(outcomes, known)
    print("\n".join(lines))
    if arguments.write:
        write(lines)
    return 0 if is_as_listed else 1


if __name__ == "__main__":
    sys.exit(main())
