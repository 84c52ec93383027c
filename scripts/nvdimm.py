"""Persistent memory tiers on an emulated NVDIMM, with power cuts. `make nvdimm`.

Boots Debian's kernel in qemu (pure emulation: no KVM, no root needed) with a file of the host as NVDIMM, makes a DAX
file system on it, and runs the testkit's `nvdimm` there: the conformance suite of devices with `MAP_SYNC`, then a
daemon and a client that write until the power goes (qemu is killed at a random moment). After each cut everything that
was acknowledged as surviving power loss must exist whole.

Installs missing Debian packages when run as root. The kernel is unpacked below target/, never installed.
"""

import argparse
import gzip
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[1]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
CACHE = TARGET / "nvdimm"
NVDIMM_BYTES = 768 << 20
# Programs of the guest besides busybox: found in PATH, and copied to the same path with the libraries that they
# need.
MODULES = ["nfit", "libnvdimm", "nd_pmem", "nd_btt", "dax", "ext4", "crc32c_generic", "mbcache", "jbd2", "crc16"]

INIT = r"""#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/sbin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /tmp
ip link set lo up 2>/dev/null
die() { echo "FAILED $*"; poweroff -f; }
echo # the firmware leaves its line open
for module in $(cat /modules); do insmod "$module" 2>/dev/null; done
bus=/sys/bus/nd
wait_for() { for _ in $(seq 100); do [ -e "$1" ] && return 0; sleep 0.1; done; die "no $1"; }
wait_for $bus/devices/namespace0.0
sleep 0.5
if ! [ -e /dev/pmem0 ] || [ "$(cat $bus/devices/namespace0.0/mode 2>/dev/null)" != memory ]; then
  # The first boot: from raw to fsdax, which keeps page structures for the memory.
  echo namespace0.0 >$bus/drivers/nd_pmem/unbind 2>/dev/null
  seed=$(cat $bus/devices/region0/pfn_seed)
  echo pmem >$bus/devices/$seed/mode
  echo 2097152 >$bus/devices/$seed/align
  cat /proc/sys/kernel/random/uuid >$bus/devices/$seed/uuid
  echo namespace0.0 >$bus/devices/$seed/namespace
  echo $seed >$bus/drivers/nd_pmem/bind || die "fsdax"
fi
wait_for /dev/pmem0
mount -t ext4 -o dax=always /dev/pmem0 /mnt 2>/dev/null || {
  mkfs.ext4 -q -b 4096 -F /dev/pmem0 || die mkfs.ext4
  mount -t ext4 -o dax=always /dev/pmem0 /mnt || die "mount -o dax=always"
  echo MADE
}
export CENOTE_BIN=/bin/nvdimm RUST_BACKTRACE=1 TMPDIR=/tmp
set -- $(cat /proc/cmdline | tr ' ' '\n' | sed -n 's/^cenote\.//p')
for word; do eval "$word"; done
case $what in
  suite) nvdimm suite /mnt/suite "$seed" 2>&1 ;;
  cycle) nvdimm cycle /mnt/store /mnt/tier "$seed" 2>&1; cat /mnt/store/daemon.log 2>/dev/null | tail -n 5 ;;
esac
echo "LEFT $?"
sync
poweroff -f
"""


def main():
    """Prepares everything, and runs the suite and the cuts."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cuts", type=int, default=4, help="how often the power goes")
    options.add_argument(
        "--seed", type=int, default=int.from_bytes(os.urandom(3)), help="of what is written, and when the power goes"
    )
    options = options.parse_args()
    print(f"nvdimm: seed {options.seed}", flush=True)
    need_packages(
        {
            "qemu-system-x86_64": "qemu-system-x86",
            "busybox": "busybox-static",
            "mkfs.ext4": "e2fsprogs",
            "depmod": "kmod",
        }
    )
    command = ["cargo", "build", "--release", "--locked", "--quiet", "-p", "cenote-testkit", "--bin", "nvdimm"]
    subprocess.run(command, cwd=TOP, check=True)
    kernel, modules = find_kernel()
    with tempfile.TemporaryDirectory(prefix="cenote-nvdimm-") as work:
        work = pathlib.Path(work)
        machine = Machine(work, kernel, make_initramfs(work, modules))
        suite(machine, options.seed)
        cycles(machine, options.seed, options.cuts)


def need_packages(programs):
    """Installs missing packages if run as root; otherwise says how."""
    path = os.environ["PATH"] = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [package for program, package in programs.items() if not shutil.which(program, path=path)]
    if not missing:
        return
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"nvdimm: missing: {', '.join(missing)}\nnext step: as root, {' '.join(install)}")
    print(f"nvdimm: installing {', '.join(missing)}", flush=True)
    subprocess.run(["apt-get", "update", "-q"], check=False, stdout=subprocess.DEVNULL)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL, env=environment)


def find_kernel():
    """Returns Debian's kernel and its modules, unpacked from their package."""
    found = sorted(CACHE.glob("kernel/boot/vmlinuz-*"))
    if not found:
        shutil.rmtree(CACHE, ignore_errors=True)
        CACHE.mkdir(parents=True)
        said = subprocess.run(
            ["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False
        )
        names = [
            word for word in said.stdout.split() if word.startswith("linux-image-") and word != "linux-image-amd64"
        ]
        if not names:
            raise SystemExit("nvdimm: no package linux-image-amd64 in sight\nnext step: on Debian, apt-get update")
        print(f"nvdimm: fetching {names[0]}", flush=True)
        subprocess.run(["apt-get", "download", "-q", names[0]], cwd=CACHE, check=True, stdout=subprocess.DEVNULL)
        (package,) = CACHE.glob("linux-image-*.deb")
        subprocess.run(["dpkg-deb", "-x", package, CACHE / "kernel"], check=True)
        package.unlink()
        found = sorted(CACHE.glob("kernel/boot/vmlinuz-*"))
    version = found[-1].name.removeprefix("vmlinuz-")
    for root in (CACHE / "kernel", CACHE / "kernel/usr"):
        if (root / "lib/modules" / version).is_dir():
            return found[-1], modules_of(root, version)
    raise SystemExit(f"nvdimm: the kernel package has no modules of {version}")


def modules_of(root, version):
    """Returns the files of the needed modules, dependencies first."""
    folder = root / "lib/modules" / version
    if not (folder / "modules.dep").exists():
        subprocess.run(["depmod", "-b", root, version], check=True)
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        name, _, others = line.partition(":")
        needs[pathlib.Path(name).name.partition(".ko")[0].replace("-", "_")] = [name, *others.split()]
    ordered = []
    for module in MODULES:
        for name in reversed(needs.get(module, [])):
            if name not in ordered:
                ordered.append(name)
    return [folder / name for name in ordered]


def make_initramfs(work, modules):
    """Makes the guest's root: busybox, mkfs.ext4, the test program, modules."""
    root = work / "root"
    (root / "bin").mkdir(parents=True)
    programs = {
        "busybox": shutil.which("busybox"),
        "mkfs.ext4": shutil.which("mkfs.ext4"),
        "nvdimm": TARGET / "release/nvdimm",
    }
    for name, program in programs.items():
        shutil.copy(program, root / "bin" / name)
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for library in [word for word in said.split() if word.startswith("/")]:
            (root / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library[1:])
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    names = []
    for module in modules:
        name = f"{module.name.partition('.ko')[0]}.ko"
        unpack = {".xz": ["xz", "-dc"], ".zst": ["zstd", "-dc"], ".gz": ["gzip", "-dc"]}.get(module.suffix, ["cat"])
        (root / name).write_bytes(subprocess.run([*unpack, module], capture_output=True, check=True).stdout)
        names.append("/" + name)
    (root / "modules").write_text("\n".join(names))
    (root / "init").write_text(INIT)
    (root / "init").chmod(0o755)
    find = subprocess.run(["find", ".", "-print0"], cwd=root, capture_output=True, check=True).stdout
    pack = ["busybox", "cpio", "-o", "-H", "newc", "-0"]
    archive = subprocess.run(pack, cwd=root, input=find, capture_output=True, check=True).stdout
    (work / "initramfs").write_bytes(gzip.compress(archive, 1))
    return work / "initramfs"


class Machine:
    """A virtual machine whose persistent memory is a file."""

    def __init__(self, work, kernel, initramfs):
        self.memory = work / "memory"
        with self.memory.open("wb") as file:
            file.truncate(NVDIMM_BYTES)
        self.command = [
            *("qemu-system-x86_64", "-machine", "pc,nvdimm=on,accel=tcg", "-cpu", "max", "-smp", "2"),
            *("-m", "1G,slots=2,maxmem=4G", "-nographic", "-no-reboot", "-net", "none"),
            *("-object", f"memory-backend-file,id=mem,share=on,mem-path={self.memory},size={NVDIMM_BYTES}"),
            *("-device", "nvdimm,id=nv,memdev=mem", "-kernel", str(kernel), "-initrd", str(initramfs)),
        ]

    def run(self, words, cut=None, patience=240):
        """Boots with those words; returns the output lines. `cut` returns a delay once the power is to go."""
        line = " ".join(["console=ttyS0 quiet panic=-1", *(f"cenote.{word}" for word in words)])
        process = subprocess.Popen(
            [*self.command, "-append", line],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        watchdog = threading.Timer(patience, process.kill)
        watchdog.start()
        lines = []
        try:
            for said in process.stdout:
                lines.append(said.strip())
                if cut and (delay := cut(lines)) is not None:
                    # Lines may come after the decision and before the cut: they count as well.
                    threading.Timer(delay, process.kill).start()
                    cut = None
        finally:
            process.kill()
            process.wait()
            watchdog.cancel()
        return lines


def fail(why, lines):
    """Exits with the machine's last output."""
    raise SystemExit("\n".join([*lines[-30:], f"nvdimm: FAILED: {why}"]))


def numbers(lines, word):
    """Returns the numbers in lines with that word."""
    return [int(line.split()[1]) for line in lines if line.startswith(word + " ") and line.split()[1].isdigit()]


def suite(machine, seed):
    """Runs the conformance suite of devices."""
    begin = time.monotonic()
    lines = machine.run(["what=suite", f"seed={seed}"])
    said = [line for line in lines if line.startswith("SUITE")]
    if not said or "MADE" not in lines:
        fail("the conformance suite", lines)
    seconds = time.monotonic() - begin
    print(
        f"nvdimm: conformance suite on DAX, written back {said[0].removeprefix('SUITE ')}: {seconds:.0f} s", flush=True
    )


def cycles(machine, seed, cuts):
    """Writes until the power goes, repeatedly."""
    rng = random.Random(seed)
    told = 0
    for number in range(cuts + 1):
        begin = time.monotonic()
        many, delay = rng.randint(5, 40), rng.random() * 0.5
        last = number == cuts
        lines = machine.run(
            ["what=cycle", f"seed={seed}"],
            lambda lines, many=many, delay=delay, last=last: (
                0 if last and numbers(lines, "HAVE") else delay if len(numbers(lines, "ACK")) >= many else None
            ),
        )
        have = numbers(lines, "HAVE")
        if not have or any(line.startswith(("FAILED", "LEFT")) for line in lines):
            fail(f"cycle {number}", lines)
        if have[0] < told:
            fail(f"after cut {number}: {told} objects were acknowledged, {have[0]} are there", lines)
        found, told = have[0], max([told, *(n + 1 for n in numbers(lines, "ACK"))])
        seconds = time.monotonic() - begin
        print(
            f"nvdimm: boot {number}: {found} objects there, {told} acknowledged when the power went, {seconds:.0f} s",
            flush=True,
        )
    print(f"nvdimm: {cuts} power cuts, nothing that was acknowledged is missing", flush=True)


if __name__ == "__main__":
    sys.exit(main())
