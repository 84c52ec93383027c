"""The tree: tracked files, and cargo's view of the workspace."""

import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked_files(pattern: str = "*") -> list[Path]:
    """Returns the files that git tracks, or would track if they were added now."""
    out = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", pattern],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return [path for name in out.decode().split("\0") if name and (path := ROOT / name).is_file()]


def workspace_packages() -> list[dict]:
    """Returns the workspace's packages as `cargo metadata` describes them."""
    out = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    return json.loads(out)["packages"]


def room_of(path: Path) -> str:
    """The crate that a file of the tree, by its path in it, belongs to: `crates/store`, `benches`."""
    return "/".join(path.parts[: 2 if path.parts[0] in {"crates", "views", "bindings"} else 1])
