"""`python -m hulk_runtime.instrumentation SCRIPT ...`: a script as in a pod, whose site finds Hulk's folder."""

import os
import runpy
import sys

from hulk_runtime.instrumentation import instrument

if __name__ == "__main__":
    instrument()
    del sys.argv[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
