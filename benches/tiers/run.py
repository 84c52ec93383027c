"""The bars of tiers from end to end: `make bench-tiers`.

Memory, a fast and a slow layer with the ratios of the table in the Hermes paper (`layers.py`); the same workloads with
no buffering, with a plain write-back cache, with the kernel's page cache and with Cenote, in turns and in one run
(`plan.py`). Prints tables, writes target/bench-tiers.jsonl and plots target/bench-tiers.svg. Needs root; 15 minutes, 3
with --quick.
"""

import argparse
import json
import signal
import subprocess
import sys
import time

from benches.tiers import at_once, contest, draining, plan, report
from benches.tiers.layers import MIB, Layers, Missing, need_root

PARTS = ("phases", "reads", "kernel", "at-once", "draining", "heat")


def run_cases(cases, repeats, policies, out, noise):
    """Runs contenders in turns, on the same layers for all of a case. Every other repeat runs backward."""
    for repeat in range(repeats):
        for case in cases:
            names = [f"cenote:{policy}" for policy in (policies if repeat == 0 else plan.MAIN)]
            with Layers(*case.layers) as layers:
                contenders = [*case.contenders, *names]
                for contender in contenders if repeat % 2 == 0 else reversed(contenders):
                    noise.look()
                    measured = contest.run(layers, contender, case.setup)
                    out.add(case.name, contender, repeat, measured)
                    figures = (f"{name} {value:.3f}" for name, value in measured.items() if isinstance(value, float))
                    print(f"… {case.name}: {contender}: {', '.join(figures)}", file=sys.stderr, flush=True)


def mean_of(out, other, ours, figure="io_s"):
    """Returns, for each repeat, the mean of the ratios over the three intensities."""
    each = [out.ratios(f"phases, {name}", other, ours, figure) for name in plan.INTENSITIES]
    return [sum(ratios) / len(ratios) for ratios in zip(*each, strict=False)] if all(each) else []


def judge(out, policy):
    """Judges the bars of the workloads for one policy."""
    ours = f"cenote:{policy}"
    out.bar(f"{policy}: phases, mean of three, over no buffering", mean_of(out, plan.DIRECT, ours), 8)
    out.bar(f"{policy}: phases, mean of three, over the plain cache", mean_of(out, plan.PLAIN, ours), 2)
    hidden = out.values("phases, compute-intensive", ours, "hidden")
    out.bar(f"{policy}: phases, compute-intensive, share of movement hidden", hidden, 0.95)
    out.bar(
        f"{policy}: reads, 16 times, over no buffering", out.ratios("reads, 16 times", plan.DIRECT, ours, "io_s"), 38
    )
    larger = out.ratios("reads, 16 times, larger than memory", plan.CACHE, ours, "io_s")
    out.bar(f"{policy}: reads, larger than memory, over the page cache", larger, 3)
    for case in sorted({case for case, *_ in out.figures if case.startswith("kernel")}):
        for figure, over_direct in (("write_s", 5), ("read_s", 7.5)):
            name = f"{policy}: {case}, {figure.removesuffix('_s')}s"
            out.bar(f"{name}, over no buffering", out.ratios(case, plan.DIRECT, ours, figure), over_direct)
            out.bar(f"{name}, over the plain cache", out.ratios(case, plan.PLAIN, ours, figure), 2)


def layers_at_once(out, repeats, seconds, noise):
    """Measures the bandwidth of all layers at once."""
    shares = {"get": [], "put": []}
    for repeat in range(repeats):
        for what, found in shares.items():
            noise.look()
            with Layers(64 * MIB, 256 * MIB, 128 * MIB) as layers:
                measured = at_once.measure(layers, what, seconds)
            out.line(kind="at-once", what=what, repeat=repeat, **measured)
            found.append(measured["share"])
            words = (f"{name} {bps / 1e6:.0f} MB/s alone, {measured['together'][name] / 1e6:.0f} with the others"
                     for name, bps in measured["alone"].items())  # fmt: skip
            print(f"… all layers at once, {what}: {', '.join(words)}", file=sys.stderr, flush=True)
    out.bar("all layers at once, reads: share of the sum of each alone", shares["get"], 0.9)
    out.bar("all layers at once, writes: share of the sum of each alone", shares["put"], 0.9)


def while_draining(out, repeats, seconds, noise):
    """Measures 4 KiB gets and puts while a tier drains."""
    ratios = {}
    for repeat in range(repeats):
        noise.look()
        with Layers(64 * MIB, 384 * MIB, 640 * MIB) as layers:
            measured = draining.measure(layers, "foresight", seconds)
        out.line(kind="draining", repeat=repeat, **measured)
        print(f"… while draining: {json.dumps(measured)}", file=sys.stderr, flush=True)
        if not measured["was_draining"]:
            print("… the drain ended before the measurement: not counted", file=sys.stderr)
            continue
        for name, ratio in measured["ratios"].items():
            ratios.setdefault(name, []).append(ratio)
    for name in ("get_p99", "put_p99"):
        out.bar(
            f"4 KiB {name.replace('_', ', ')} while a tier drains, over idle", ratios.get(name, []), 2, at_most=True
        )


def heat(out, pairs, quick):
    """Measures 4 KiB throughput with tracking and counting, and without: `cenote-benches` has the pairs."""
    words = ["--only", "heat", "--pairs", str(pairs)] + (["--quick"] if quick else [])
    subprocess.run([str(draining.PROGRAM), *words], check=True, cwd=contest.TOP, stdout=subprocess.DEVNULL)
    for line in (contest.TOP / "target/bench.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row.get("bar", "").startswith("heat.") and row.get("wanted"):
            values = [row["ratio_low"], row["ratio"], row["ratio_high"]]
            out.bar(f"{row['bar']}: throughput with heat tracking and telemetry, over without", values, row["wanted"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller, and once")
    parser.add_argument("--repeats", type=int, help="default 3, with --quick 1")
    parser.add_argument("--only", help=f"some of {','.join(PARTS)}, with commas between")
    parser.add_argument("--policies", help="default: fast-first and foresight, and once the others")
    options = parser.parse_args()
    # A termination must remove the layers as
    # well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        need_root()
    except Missing as why:
        print(f"bench-tiers: SKIPPED, nothing was measured: {why}")
        return 0
    repeats = options.repeats or (1 if options.quick else 3)
    parts = options.only.split(",") if options.only else PARTS
    policies = plan.MAIN if options.quick else plan.MAIN + plan.MORE
    if options.policies:
        plan.MAIN[:] = policies = options.policies.split(",")
    out, noise = report.Report(contest.TOP / "target/bench-tiers.jsonl"), report.Noise()
    begin = time.monotonic()
    cases = [case for case in plan.cases(options.quick) if case.name.split(",")[0] in parts]
    run_cases([case for case in cases if not case.name.startswith("kernel")], repeats, policies, out, noise)
    run_cases([case for case in cases if case.name.startswith("kernel")], repeats, plan.MAIN, out, noise)
    for policy in plan.MAIN:
        judge(out, policy)
    if "at-once" in parts:
        layers_at_once(out, repeats, 1.0 if options.quick else 2.0, noise)
    if "draining" in parts:
        while_draining(out, repeats, 2.0, noise)
    if "heat" in parts:
        heat(out, 1 if options.quick else 5, options.quick)
    noise.look()
    summary = noise.summary() | {"seconds": time.monotonic() - begin}
    out.line(kind="noise", **summary)
    out.close()
    print(out.table())
    print(
        f"\nmachine: copies of 64 MiB at {summary['copy_gbps']:.1f} GB/s ({summary['copy_gbps_least']:.1f} to "
        f"{summary['copy_gbps_most']:.1f}), load {summary['load_least']:.1f} to {summary['load_most']:.1f}; "
        f"{summary['seconds']:.0f} s; target/bench-tiers.jsonl"
    )
    if report.draw(out, contest.TOP / "target/bench-tiers.svg"):
        print("target/bench-tiers.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
