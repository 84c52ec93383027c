"""The README's tour and its Python program work as shown."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


def command() -> Path:
    import cenote

    program = os.environ.get("CENOTE_BIN")
    assert program and cenote.__version__, "the module finds the command that came with it"
    return Path(program)


def test_the_tour_and_python(tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{command().parent}:{os.environ['PATH']}"}
    tour = next(block for block in blocks("console") if "cenote init" in block)
    lines = tour.replace("\\\n", " ").splitlines()
    script = [line.removeprefix("$ ").split("   #")[0] for line in lines if line.startswith("$ ")]
    assert len(script) > 5
    # `cenote put` prints the name that the reader puts in place of `<id>`.
    text = "\n".join(script).replace("cenote put README.md runs", "name=$(cenote put README.md runs); echo $name")
    text = text.replace("runs/<id>", '"$name"').replace("/tmp/pool", str(tmp_path / "pool"))
    try:
        done = subprocess.run(
            ["bash", "-euc", text], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "runs/" in done.stdout and "fast-first" in done.stdout
        for block in blocks("python"):
            program = block.replace("/tmp/pool", str(tmp_path / "pool"))
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, f"{program}\n{done.stderr}"
            assert done.stdout.strip(), program
    finally:
        subprocess.run(
            ["cenote", "--store", tmp_path / "pool", "destroy", "--yes", "--force"],
            env=environment,
            capture_output=True,
            timeout=60,
        )
