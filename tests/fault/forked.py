"""A program that shows what its process is given: its arguments, settings and a random number.

`python -m tests.fault.forked show|fail|hang ARGUMENTS`.
"""

import os
import random
import signal
import sys
import threading

from penstock.base.settings import settings


def main(how: str, *arguments: str) -> None:
    print(os.getpid(), settings().pool_size_max, random.random(), *arguments)
    if how == "hang":
        signal.pause()
    elif how == "fail":
        # Python waits for it, as at the end of every program.
        threading.Thread(target=lambda: print("the thread has ended")).start()
        raise ValueError(how)


if __name__ == "__main__":
    main(*sys.argv[1:])
