"""`instrumented.py SCRIPT ...`: what Python's site does where it finds Hulk's folder, in a process that has torch."""

import runpy
import sys

from hulk_runtime.instrumentation import instrument

if __name__ == "__main__":
    instrument()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
