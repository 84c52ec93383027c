"""Removes from an episode the steps that a difference does not need."""

import time

SECONDS_MAX = 60


def shrink(pair, seed, count, found):
    """The steps that still show a difference of the same kind, and that difference."""
    last = found.native.split(" ")[0]
    steps = list(range(int(last) + 1 if last.isdigit() else count))
    best, kind, began = found, found.kind(), time.monotonic()
    width = max(len(steps) // 2, 1)
    while width and time.monotonic() - began < SECONDS_MAX:
        at = 0
        while at < len(steps) and time.monotonic() - began < SECONDS_MAX:
            fewer = steps[:at] + steps[at + width :]
            again = pair.run(seed, count, ",".join(map(str, fewer))) if fewer else None
            if again and again.kind() == kind:
                steps, best = fewer, again
            else:
                at += width
        width //= 2
    return steps, best
