"""Runs every example as a user would."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


# The output of `make build`.
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "release"


def run(*command: object, cwd: Path | None = None, path: Path | None = None, seconds: int = 300) -> str:
    environment = os.environ | ({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_python(tmp_path: Path) -> None:
    assert run(sys.executable, HERE / "python/first.py", tmp_path).endswith("all is well\n")


def test_rust(tmp_path: Path) -> None:
    # `make test` has built it with the whole workspace. Alone it would be built with other features, and all below it.
    if built := os.environ.get("CENOTE_EXAMPLES_DIR"):
        words = (Path(built) / "first", tmp_path)
    else:
        words = ("cargo", "run", "--quiet", "--locked", "--example", "first", "--", tmp_path)
    out = run(*words, cwd=HERE.parent, seconds=1800)
    assert out.endswith("all is well\n")


def test_c(tmp_path: Path) -> None:
    program = tmp_path / "first"
    run(
        *("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", HERE.parent / "bindings/c/include"),
        *(HERE / "c/first.c", "-L", TARGET, "-lcenote", f"-Wl,-rpath,{TARGET}", "-o", program),
    )
    assert run(program, tmp_path).endswith("all is well\n")


def test_command_line(tmp_path: Path) -> None:
    assert run(HERE / "cli/first.sh", tmp_path, path=TARGET).endswith("all is well\n")
