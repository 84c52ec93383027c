"""A system with Debian 13's HDF5 (1.14.5, both MPIs): this machine, or a root made by debootstrap below target/.

`find()` returns one or raises the reason why there is none. Making one needs root and takes some minutes, once.
"""

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[1]
ROOT = pathlib.Path(os.environ.get("CENOTE_DEBIAN13", TOP / "target/debian13"))
PACKAGES = [
    *("ca-certificates", "gcc", "libc6-dev", "openmpi-bin", "mpich", "hdf5-tools", "netcdf-bin"),
    *("libhdf5-dev", "libhdf5-openmpi-dev", "libhdf5-mpich-dev"),
    *("python3-h5py", "python3-h5py-mpi", "python3-mpi4py", "python3-netcdf4", "python3-tables"),
]
STAMP = "cenote-packages"


class Missing(Exception):
    """There is no such system, and it cannot be made here."""


class Place:
    """Runs commands in a root directory, or on this machine."""

    def __init__(self, root=None):
        self.root = root

    def run(self, command, environment=None, timeout=300, cwd="/tmp"):
        """Runs a shell command with that environment; returns the finished process, with its output as text."""
        variables = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"} | (environment or {})
        script = f"cd {shlex.quote(str(cwd))} && {command}"
        inner = ["env", "-i", *(f"{k}={v}" for k, v in variables.items()), "timeout", str(timeout), "sh", "-c", script]
        if self.root:
            inner = ["unshare", "-m", "sh", "-c", MOUNTS, "sh", str(self.root), str(TOP), *inner]
        return subprocess.run(
            inner,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout + 60,
            check=False,
        )


# The mounts are private and end with the namespace. The tree, /tmp and /dev (shared memory) are the
# machine's.
MOUNTS = """
root=$1; top=$2; shift 2
mount --make-rprivate / && mount --bind "$root" "$root" && mount -t proc proc "$root/proc" &&
mount --rbind /dev "$root/dev" && mount --rbind /tmp "$root/tmp" && mkdir -p "$root$top" &&
mount --rbind "$top" "$root$top" && exec chroot "$root" "$@"
"""


def is_here():
    """Returns whether this machine itself has everything that is needed."""
    tools = ("h5pcc.openmpi", "h5pcc.mpich", "mpirun.openmpi", "mpirun.mpich", "h5dump", "ncdump")
    if not all(shutil.which(tool) for tool in tools):
        return False
    version = subprocess.run(
        ["pkg-config", "--modversion", "hdf5-openmpi"], capture_output=True, text=True, check=False
    )
    return version.returncode == 0 and tuple(map(int, version.stdout.split(".")[:2])) >= (1, 14)


def find():
    """Returns a system; `Missing` says what is needed."""
    if is_here():
        return Place()
    packages = " ".join(PACKAGES)
    if (ROOT / STAMP).exists() or ROOT.joinpath("usr/bin/mpirun.mpich").exists():
        if os.geteuid() != 0:
            raise Missing(f"{ROOT} holds Debian 13, and entering it needs root")
        return Place(ROOT)
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise Missing(
            "HDF5 >= 1.14 with MPI is not there.  On Debian 13: apt-get install " + packages + "\n"
            "Elsewhere: run this as root with debootstrap installed, and it makes a Debian 13 in target/debian13."
        )
    return make()


def make():
    """Makes the root directory."""
    print(f"debian13: making a Debian 13 in {ROOT} (some minutes, once)", file=sys.stderr)
    log = ROOT.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    place = Place(ROOT)
    with open(log, "w") as out:
        commands = [["debootstrap", "--variant=minbase", "trixie", str(ROOT)]]
        if ROOT.joinpath("usr/bin/apt-get").exists():
            commands = []
        for command in commands:
            if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode:
                raise Missing(f"debootstrap failed: {log} says why (does this machine reach a Debian mirror?)")
        for name in ("/etc/resolv.conf", "/etc/hosts"):
            if pathlib.Path(name).exists():
                shutil.copyfile(name, str(ROOT) + name)
        for directory in ("/etc/ssl/certs", "/usr/local/share/ca-certificates"):
            if pathlib.Path(directory).is_dir():
                subprocess.run(["mkdir", "-p", str(ROOT) + directory], check=False)
                subprocess.run(["cp", "-rL", directory + "/.", str(ROOT) + directory], check=False, stderr=out)
        install = "apt-get update -q && apt-get install -y -q --no-install-recommends " + " ".join(PACKAGES)
        done = place.run(install, {"DEBIAN_FRONTEND": "noninteractive"}, timeout=3600)
        out.write(done.stdout)
    if done.returncode:
        raise Missing(f"installing packages in {ROOT} failed: {log} says why")
    (ROOT / STAMP).write_text(" ".join(PACKAGES) + "\n")
    return place
