"""`instrumented.py SCRIPT ...`: a rank's script as in a pod, where Python's site has found Hulk's folder."""

import os
import runpy
import sys

from hulk_runtime.instrumentation import instrument

if __name__ == "__main__":
    os.environ["HULK_WORKER"] = os.environ["RANK"]
    instrument()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
