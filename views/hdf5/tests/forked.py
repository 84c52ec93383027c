"""Work in a process of its own, for programs that kill or watch one another."""

import os
import sys
import traceback


def forked(work):
    """Runs it in a process of its own."""
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
