"""Tests which HDF5 clients run on the connector, by running each; docs/hdf5-matrix.md has the results. `make matrix`.

Every client runs a program of its typical operations (`views/hdf5/tests/matrix`) on native HDF5 and on a store, and
must see the same. Clients: wheels of PyPI in environments below target/, and Debian 13's packages
(`scripts/debian13.py`).
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv

from scripts import debian13

TOP = debian13.TOP
PROGRAMS = TOP / "views/hdf5/tests/matrix"
PLUGIN = TOP / "target/hdf5-plugin"
ENVIRONMENTS = TOP / "target/matrix"
PAGE = TOP / "docs/hdf5-matrix.md"
# Releases whose wheels have HDF5 1.14 or newer.
WHEELS = {
    "h5py": ["3.12.1", "3.13.0", "3.14.0", "3.15.1", "3.16.0"],
    "netcdf4": ["1.7.2", "1.7.3", "1.7.4", "1.7.5.1.post1"],
    "tables": ["3.10.1", "3.10.2", "3.11.1"],
}
# Output of tools that depends on the position of bytes in a native file, or on the names of the two files. HDF5
# records for variable-length datasets that fill values are always written.
NOISE = [r"(OFFSET|Location:|Modified:|SIZE|Chunks:|Storage:|_SuperblockVersion|FILL_TIME|Total raw data size).*"]
NOISE += [r"\b[cn](-[rc])?\.(h5|nc)", r"netcdf [cn]", r"DATASET \d{6,}", r"shared-\d+:[0-9a-f]+"]
TOOLS = {
    "h5dump": ["h5dump {}.h5", "h5dump -p -H {}.h5", "h5dump -A {}.h5", "h5dump -n 1 {}.h5", "h5dump {}.nc"],
    "h5ls": ["h5ls {}.h5", "h5ls -r {}.h5", "h5ls -rv {}.nc"],
    "h5diff": ["h5diff {}.h5 {}.h5", "h5diff -q {}.h5 n.h5", "h5diff -v {}.nc {}.nc"],
    "h5repack": [
        "rm -f {0}-r.h5; h5repack -f GZIP=5 {0}.h5 {0}-r.h5 && h5diff {0}.h5 {0}-r.h5",
        "rm -f {0}-r.nc; h5repack {0}.nc {0}-r.nc && h5diff {0}.nc {0}-r.nc",
    ],
    "h5stat": ["h5stat -g -d {}.h5 | grep -v Superblock", "h5stat -D {}.nc | grep -E '^# of'"],
    "ncdump": ["ncdump {}.nc", "ncdump -h {}.nc", "ncdump -k {}.nc"],
    "nccopy": ["nccopy -d 3 {0}.nc {0}-c.nc && ncdump -h {0}-c.nc | tail -n +2"],
}


class Here:
    """Runs commands on this machine, with the interface of `debian13.Place`."""

    def run(self, command, environment=None, timeout=300, cwd="/tmp"):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HDF5_", "CENOTE_"))}
        return subprocess.run(
            ["sh", "-c", command],
            env=kept | (environment or {}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )


class Matrix:
    """The rows so far."""

    def __init__(self, work):
        self.work, self.rows = work, []
        self.store = {"HDF5_PLUGIN_PATH": str(PLUGIN), "HDF5_VOL_CONNECTOR": f"cenote store={work}/store"}

    def add(self, client, hdf5, origin, outcome, is_right):
        print(f"{'ok  ' if is_right else 'FAIL'}  {client}, HDF5 {hdf5}, {origin}: {outcome}", flush=True)
        self.rows.append((client, hdf5, origin, outcome, is_right))

    def program(self, place, command, origin, name):
        """Runs one check program natively and on the store."""
        saw = []
        for where, environment in (("native", {}), ("cenote", self.store)):
            done = place.run(f"{command} {self.work}/{where}.h5", environment, cwd=self.work)
            line = next((text for text in done.stdout.splitlines() if text.startswith("{")), "")
            if done.returncode or not line:
                words = (done.stdout.strip().splitlines() or ["no output"])[-1][:200]
                self.add(name, "?", origin, f"{where}: exit {done.returncode}: {words}", False)
                return
            saw.append(json.loads(line))
        native, cenote = saw
        versions = cenote["versions"]
        checks = native["seen"]
        differ = [check for check in checks if checks[check] != cenote["seen"].get(check)]
        is_right = not differ and cenote["stub"] and not native["stub"]
        outcome = f"{len(checks) - len(differ)} of {len(checks)} checks as native"
        if differ:
            outcome += ", not " + ", ".join(differ)
        self.add(versions["client"], versions["hdf5"], origin, outcome, is_right)

    def wheel(self, name, version):
        """Tests one release of a package from PyPI."""
        home = ENVIRONMENTS / f"{name}-{version}"
        python = home / "bin/python"
        if not (home / "installed").exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=True)
            pip = [python, "-m", "pip", "install", "-q", "--only-binary=:all:", f"{name}=={version}"]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                words = (done.stderr.strip().splitlines() or ["?"])[0][:160]
                self.add(f"{name} {version}", "?", "PyPI wheel", f"not installed: {words}", False)
                return
            (home / "installed").touch()
        self.program(Here(), f"{python} -W ignore {PROGRAMS}/check_{name}.py", "PyPI wheel", f"{name} {version}")

    def tools(self, place):
        """Tests the command-line tools of Debian 13: their output for files in the store and for native ones."""
        for letter, environment in (("n", {}), ("c", self.store)):
            for kind, program in (("h5", "h5py"), ("nc", "netcdf4")):
                made = place.run(
                    f"python3 -W ignore {PROGRAMS}/check_{program}.py {letter}.{kind} tools", environment, cwd=self.work
                )
                if made.returncode:
                    self.add("tools", "?", "Debian 13", f"no file to look at: {made.stdout[-200:]}", False)
                    return
        for tool, commands in TOOLS.items():
            version = place.run(
                f"{tool} --version 2>&1 | head -1; {tool} 2>&1 | grep -o 'version [0-9.]*'", cwd=self.work
            )
            number = (re.findall(r"\d+\.\d+\.\d+", version.stdout) or ["?"])[0]
            differ = []
            for command in commands:
                printed = []
                for letter, environment in (("n", {}), ("c", self.store)):
                    done = place.run(command.replace("{0}", letter).replace("{}", letter), environment, cwd=self.work)
                    text = f"exit {done.returncode}\n{done.stdout}"
                    for noise in NOISE:
                        text = re.sub(noise, "~", text)
                    printed.append(text)
                if printed[0] != printed[1]:
                    differ.append(command.replace("{0}", "F").replace("{}", "F"))
                    (ENVIRONMENTS / f"{tool}.{len(differ)}.txt").write_text("\n=====\n".join(printed))
            outcome = f"{len(commands) - len(differ)} of {len(commands)} uses as native"
            self.add(
                f"{tool} {number}", "1.14.5", "Debian 13", outcome + "".join(f", not `{d}`" for d in differ), not differ
            )

    def debian(self):
        """Tests Debian 13's C library and Python packages, and the tools."""
        try:
            place = debian13.find()
        except debian13.Missing as why:
            print(f"matrix: Debian 13's packages were not run.  {why}")
            return
        for kind, compiler in (("serial", "gcc"), ("openmpi", "mpicc.openmpi"), ("mpich", "mpicc.mpich")):
            headers, library = f"/usr/include/hdf5/{kind}", f"/usr/lib/x86_64-linux-gnu/hdf5/{kind}"
            flags = f"-O1 -I{headers} -L{library} -Wl,-rpath,{library}"
            command = f"{compiler} -o check.{kind} {PROGRAMS}/check_c.c {flags} -lhdf5"
            built = place.run(command, cwd=self.work)
            if built.returncode:
                self.add(f"C library ({kind})", "?", "Debian 13", f"does not compile: {built.stdout[-200:]}", False)
            else:
                self.program(place, f"{self.work}/check.{kind}", f"Debian 13, {kind}", f"C library ({kind})")
        for name in WHEELS:
            self.program(place, f"python3 -W ignore {PROGRAMS}/check_{name}.py", "Debian 13", name)
        self.tools(place)

    def page(self):
        """Writes the page."""
        today = datetime.date.today().isoformat()
        lines = [
            "# HDF5 clients that were run on the connector",
            "",
            f"Made by `make matrix` (`scripts/hdf5_matrix.py`) on {today}, by running all of it: every client writes,",
            "changes and reads what it usually does, on native HDF5 and on a store, and has to see the same. Versions",
            "are those found at run time.",
            "",
            "| client | HDF5 | from | outcome |",
            "|---|---|---|---|",
            *(f"| {client} | {hdf5} | {origin} | {outcome} |" for client, hdf5, origin, outcome, _ in self.rows),
            "",
            HOW,
        ]
        PAGE.write_text("\n".join(lines))


HOW = """## How to point a tool at a store

All clients take the connector and the store from the environment:

```
export HDF5_PLUGIN_PATH=/path/to/target/hdf5-plugin HDF5_VOL_CONNECTOR='cenote store=/scratch/mystore'
```

| tool | with that environment | without |
|---|---|---|
| `h5dump` | `h5dump FILE` | `HDF5_PLUGIN_PATH=… h5dump --vol-name=cenote --vol-info=store=/scratch/mystore FILE` |
| `h5ls` | `h5ls -r FILE` | `HDF5_PLUGIN_PATH=… h5ls --vol-name=cenote --vol-info=store=/scratch/mystore FILE` |
| `h5diff` | `h5diff FILE OTHER`: both may be in the store, or native | `--vol-name-1`, `--vol-info-1`, and `-2` |
| `h5repack` | `h5repack FILE OTHER`: from and into the store | `--src-vol-name`, `--src-vol-info`, and `--dst-…` |
| `h5stat` | `h5stat FILE`: there is no native file structure, so that its sizes are zeros | |
| `ncdump` | `ncdump FILE` | |
| `nccopy` | `nccopy FILE OTHER` | |
"""


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="cenote-matrix-"))
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(work)
    try:
        for name, versions in WHEELS.items():
            for version in versions:
                matrix.wheel(name, version)
        matrix.debian()
    finally:
        cenote = PLUGIN / "cenote"
        command = [cenote, "--store", work / "store", "destroy", "--yes", "--force"]
        subprocess.run(command, capture_output=True, check=False)
        shutil.rmtree(work, ignore_errors=True)
    matrix.page()
    failed = sum(not row[-1] for row in matrix.rows)
    print(f"matrix: {len(matrix.rows)} rows, {failed} of them not as native: {PAGE.relative_to(TOP)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
