"""Runs every example as a user would."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_python(tmp_path: Path) -> None:
    assert run(sys.executable, HERE / "python/first.py", tmp_path).endswith("all is well\n")


def test_rust(tmp_path: Path) -> None:
    out = run("cargo", "run", "--quiet", "--package", "cenote", "--example", "first", "--", tmp_path, cwd=HERE.parent)
    assert out.endswith("all is well\n")


def test_c(tmp_path: Path) -> None:
    run("cargo", "build", "--quiet", "--package", "cenote-c", cwd=HERE.parent)
    libraries = Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent / "target")) / "debug"
    program = tmp_path / "first"
    run(
        *("cc", "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", HERE.parent / "bindings/c/include"),
        *(HERE / "c/first.c", "-L", libraries, "-lcenote", f"-Wl,-rpath,{libraries}", "-o", program),
    )
    assert run(program, tmp_path).endswith("all is well\n")
