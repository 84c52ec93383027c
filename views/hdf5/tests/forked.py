"""Work in separate processes, for programs that kill or watch one another."""

import os
import sys
import traceback


def forked(work):
    """Runs `work` in a process of its own; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
