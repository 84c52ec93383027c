"""Tests a sample of the mutants of crates/store, crates/model and crates/client: which ones does no test detect?

`python -m scripts.mutants [--sample N] [--seed N] [--only NUMBER,...] [--again]`, or `make mutants`.

A build for each mutant would take days, so one build has all (mutant schemata): in a copy of the sources each changed
function contains its original body and one body for each mutant, and `CENOTE_MUTANT` selects the one that runs. The
possible changes are those that cargo-mutants lists. Mutants that do not compile or are in a `const fn` are replaced by
others of their crate. First every test runs alone, without a mutant, to measure its time and the changed functions that
it reaches; then a mutant runs with those tests alone, the fastest program first, until one fails or does not end. Each
run has its own process ids and shared memory (`unshare`), so that leftovers of a mutant end with it. `--again` reuses
the earlier build and measurements, `--only` selects some of the sample.
"""

import argparse
import json
import os
import random
import re
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
WORK = TOP / "target" / "mutants"
TREE = WORK / "tree"
CRATES = ("cenote-model", "cenote-store", "cenote")
TESTED = (*CRATES, "cenote-testkit", "cenote-posix")
SWITCH = """
/// Whether a mutant runs; what is asked for is noted in the file that `CENOTE_MUTANTS_SEEN` names.
#[doc(hidden)]
pub fn mutant_on(number: usize) -> bool {
    use std::os::unix::fs::FileExt;
    use std::sync::{OnceLock, atomic::{AtomicBool, Ordering}};
    static ON: OnceLock<usize> = OnceLock::new();
    static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    static SEEN: [AtomicBool; 20_000] = [const { AtomicBool::new(false) }; 20_000];
    if !SEEN[number].load(Ordering::Relaxed) && !SEEN[number].swap(true, Ordering::Relaxed) {
        let open = || std::fs::File::options().write(true).open(std::env::var_os("CENOTE_MUTANTS_SEEN")?).ok();
        if let Some(file) = FILE.get_or_init(open) { let _ = file.write_at(b"1", number as u64); }
    }
    let on = || std::env::var("CENOTE_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(usize::MAX);
    *ON.get_or_init(on) == number
}
"""
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\[^\n]+?|[^\\\'\n])\'|.', re.DOTALL)
Lines = dict[str, list[tuple[int, int, int]]]


def starts_of(text: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("\n", text))]


def within(starts: list[int], span: dict) -> tuple[int, int]:
    return tuple(starts[place["line"] - 1] + place["column"] - 1 for place in (span["start"], span["end"]))


def body_of(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Returns the block that ends a function; None if it cannot be switched."""
    opened, found, signature = [], None, ""
    for token in TOKEN.finditer(text, start, end):
        if token[0] == "{":
            opened.append(token.start())
        elif token[0] == "}" and opened:
            found = opened.pop()
        elif not opened and not token[0].startswith("//"):
            signature += token[0]
    switchable = found is not None and not opened and not re.search(r"\bconst\s+(unsafe\s+)?fn\b", signature)
    return (found, end) if switchable else None


def switched(text: str, mutants: list[dict]) -> tuple[str, list[tuple[int, int, int]]]:
    """Returns a file with mutants in it, and the lines and number of each. Nested functions are one group."""
    groups: list[tuple[int, int, list[dict]]] = []
    for mutant in sorted(mutants, key=lambda mutant: (mutant["body"][0], -mutant["body"][1])):
        if groups and mutant["body"][1] <= groups[-1][1]:
            groups[-1][2].append(mutant)
        else:
            groups.append((*mutant["body"], [mutant]))
    starts, out, lines, done = starts_of(text), "", [], 0
    for begin, end, members in groups:
        out += text[done:begin] + "{"
        for mutant in members:
            switch = "crate" if mutant["package"] == "cenote-model" else "cenote_model"
            out += f"\nif {switch}::mutant_on({mutant['number']})\n"
            first, last = within(starts, mutant["span"])
            changed = text[begin:first] + mutant["replacement"] + text[last:end]
            at = out.count("\n") + 1
            lines.append((at, at + changed.count("\n"), mutant["number"]))
            out += changed + "\nelse"
        out += text[begin:end] + "\n}"
        done = end
    return out + text[done:], lines


def prepare(mutants: list[dict]) -> Lines:
    """Puts mutants into the copy of the tree, writing only what differs, so that less is rebuilt."""
    by_file = defaultdict(list)
    for mutant in mutants:
        by_file[mutant["file"]].append(mutant)
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    names, lines = subprocess.run(words, cwd=TOP, stdout=subprocess.PIPE, text=True, check=True), {}
    for name in filter(lambda name: (TOP / name).is_file(), names.stdout.splitlines()):
        data, copy = (TOP / name).read_bytes(), TREE / name
        if name in by_file:
            text, lines[name] = switched(data.decode(), by_file[name])
            data = text.encode()
        if name == "crates/model/src/lib.rs":
            data += SWITCH.encode()
        if not copy.is_file() or copy.read_bytes() != data:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
    return lines


def cargo(*words: str) -> list[dict]:
    words = ["cargo", *words, "--message-format=json", "--locked"]
    done = subprocess.run(words, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def refused(crate: str, lines: Lines) -> set[int]:
    """Checks a crate; returns the mutants that do not compile."""
    bad, other = set(), ""
    for message in (found["message"] for found in cargo("check", "--lib", "--package", crate) if "message" in found):
        spans = [span for span in message["spans"] if span["is_primary"] and span["file_name"] in lines]
        if message["level"] != "error" or not message["spans"]:
            continue
        around = [
            (start, end, number, span["line_start"])
            for span in spans
            for start, end, number in lines[span["file_name"]]
        ]
        hit = {number for start, end, number, at in around if start <= at <= end}
        # Otherwise all variants of a function cause the error together, as where their types differ: drop the last one
        # before it.
        hit = hit or {max((start, number) for start, _, number, at in around if start <= at + 2)[1] for _ in around[:1]}
        bad |= hit
        other += "" if hit else message["rendered"]
    if other and not bad:
        raise SystemExit(f"mutants: the copy does not compile:\n{other}")
    return bad


def drawn(number: int, seed: int) -> list[dict]:
    """Returns a sample of mutants that compile, from each crate in proportion to its number."""
    words = ["cargo", "mutants", "--list", "--json", *(word for crate in CRATES for word in ("--package", crate))]
    listed = json.loads(subprocess.run(words, cwd=TOP, stdout=subprocess.PIPE, check=True).stdout)
    tried, shares, dropped = [], {}, set()
    for crate in CRATES:
        own = [mutant for mutant in listed if mutant["package"] == crate]
        shares[crate] = round(number * len(own) / len(listed))
        for mutant in random.Random(seed).sample(own, len(own))[: shares[crate] * 8 // 5 + 4]:
            text, function = (TOP / mutant["file"]).read_text(), mutant["function"]
            body = body_of(text, *within(starts_of(text), function["span"])) if function else None
            if body:
                tried.append(mutant | {"body": body, "number": len(tried)})
    for crate in CRATES:
        while bad := refused(crate, prepare([mutant for mutant in tried if mutant["number"] not in dropped])):
            dropped |= bad
    sample = []
    for crate, share in shares.items():
        sample += [m for m in tried if m["package"] == crate and m["number"] not in dropped][:share]
    print(f"mutants: {len(listed)} in all, {len(tried)} tried, {len(dropped)} of them do not compile", flush=True)
    print(f"mutants: {len(sample)} drawn with --sample {number} --seed {seed}", flush=True)
    return sample


def programs() -> list[tuple[str, str]]:
    """Builds the tests; returns each program, and its working directory."""
    packages = [word for crate in TESTED for word in ("--package", crate)]
    built = [found for found in cargo("test", "--no-run", "--lib", "--bins", "--tests", *packages)]
    if wrong := [found["message"]["rendered"] for found in built if found.get("message", {}).get("level") == "error"]:
        raise SystemExit("".join(wrong))
    tests = [found for found in built if found.get("executable") and found["profile"]["test"]]
    return [(found["executable"], str(Path(found["manifest_path"]).parent)) for found in tests]


def run(program: tuple[str, str], tests: list[str], limit_s: float, **variables: str) -> tuple[str, str]:
    """Runs tests of a program up to the first failure, with their own process ids and shared memory.

    A program without output for `limit_s` hangs.
    """
    name = Path(program[0]).name.rsplit("-", 1)[0]
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    words += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words += [
        "sh",
        "-c",
        'mount -t tmpfs -o mode=1777 tmpfs /dev/shm && "$@"; exit $?',
        "sh",
        program[0],
        *tests,
        "--exact",
    ]
    with tempfile.TemporaryDirectory(prefix="cm", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o1777)
        environment = os.environ | {"TMPDIR": place, "RUST_BACKTRACE": "0"} | variables
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        child = subprocess.Popen(words, cwd=program[1], env=environment, **pipe)
        failed, late = "", threading.Event()
        while not failed:
            timer = threading.Timer(limit_s, lambda: (late.set(), child.kill()))
            timer.start()
            line = child.stdout.readline()
            timer.cancel()
            if not line:
                break
            failed = line.split()[1] if re.search(r"^test .* FAILED", line) else ""
        if failed:
            child.kill()
        child.stdout.close()
        code = child.wait()
    if failed or late.is_set():
        return ("failed", f"{name}: {failed}") if failed else ("hung", name)
    return ("passed", "") if code == 0 else ("failed", f"{name} ended with {code}")


def measured(program: tuple[str, str], test: str) -> dict | None:
    """Runs a test alone, without a mutant; returns its time, and the functions that it reaches."""
    with tempfile.NamedTemporaryFile() as seen:
        begin = time.monotonic()
        outcome, _ = run(program, [test], 120, CENOTE_MUTANTS_SEEN=seen.name)
        took_s = time.monotonic() - begin
        numbers = [number for number, byte in enumerate(Path(seen.name).read_bytes()) if byte == ord("1")]
    if outcome != "passed":
        print(f"mutants: left out, {outcome} without a mutant: {test} of {program[0]}", flush=True)
        return None
    return {"program": program, "test": test, "took_s": took_s, "seen": numbers}


def measure(jobs: int) -> list[dict]:
    tests = []
    with ThreadPoolExecutor(jobs) as pool:
        for program in programs():
            listed = subprocess.run(
                [program[0], "--list"], cwd=program[1], stdout=subprocess.PIPE, text=True, check=False
            )
            names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
            tests += [pool.submit(measured, program, name) for name in names]
        return [test for future in tests if (test := future.result())]


def attempt(mutant: dict, tests: list[dict], slowest_s: float) -> tuple[str, str]:
    """Runs a mutant with the tests that reach it."""
    by_program = defaultdict(list)
    for test in tests:
        if mutant["number"] in test["seen"] and test["took_s"] <= slowest_s:
            by_program[tuple(test["program"])].append(test)
    for program, own in sorted(by_program.items(), key=lambda item: sum(test["took_s"] for test in item[1])):
        limit_s = 10 + 4 * max(test["took_s"] for test in own)
        names = [test["test"] for test in own]
        outcome, where = run(program, names, limit_s, CENOTE_MUTANT=str(mutant["number"]))
        if outcome != "passed":
            return outcome, where
    return "survived", f"{sum(len(own) for own in by_program.values())} tests come through it"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=500)
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--only", type=lambda text: {int(word) for word in text.split(",")}, help="numbers of mutants")
    parser.add_argument("--again", action="store_true", help="with what is built and measured already")
    parser.add_argument("--slowest", type=float, default=60, help="tests that take more seconds are left out")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ["CARGO_TARGET_DIR"] = str(WORK / "build")  # otherwise cargo would take the copy for the tree itself
    known = WORK / "known.json"
    if options.again:
        sample, tests = json.loads(known.read_text())
    else:
        sample, tests = drawn(options.sample, options.seed), measure(options.jobs)
        known.write_text(json.dumps([sample, tests]))
    print(f"mutants: {len(tests)} tests of {sum(test['took_s'] for test in tests):.0f} s", flush=True)
    wanted = [mutant for mutant in sample if not options.only or mutant["number"] in options.only]
    random.Random(options.seed).shuffle(wanted)  # so that partial results are a sample, too
    count = defaultdict(int)
    with ThreadPoolExecutor(options.jobs) as pool, (WORK / "outcomes.jsonl").open("a") as log:
        outcomes = pool.map(lambda mutant: attempt(mutant, tests, options.slowest), wanted)
        for mutant, (outcome, where) in zip(wanted, outcomes, strict=True):
            count[outcome] += 1
            named = {"number": mutant["number"], "name": mutant["name"], "outcome": outcome, "where": where}
            print(json.dumps(named), file=log, flush=True)
            if outcome == "survived":
                print(f"{mutant['number']}: {mutant['name']} ({where})", flush=True)
    print("mutants: " + ", ".join(f"{number} {outcome}" for outcome, number in sorted(count.items())))


if __name__ == "__main__":
    main()
