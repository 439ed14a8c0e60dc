"""`python -m hulk_runtime.sharp --trials FILE.json [--status FILE.json]`: a worker pod's share of a sweep.

Prints a line per completed mini-batch, `trial=a step=3 loss=2.30259 elapsed_s=1.2`, and at a trial's end
`trial=a state=succeeded step=100 loss=0.25`. The file of --status, replaced as a whole after each step, holds
`{"trials": {"a": {"state": "running", "metric": "loss", "value": 2.30259, "step": 3, "steps": 100,
"stepSeconds": 0.25, "reason": ""}}}`.
Ends with 0 also when trials have failed: what became of each is in the status. SIGTERM ends it with 143 after the
mini-batches under way, with checkpoints where HULK_CHECKPOINT_URL is set.
"""

import argparse
import os
import sys

from hulk_runtime import errors
from hulk_runtime.job import cpu_threads, environment
from hulk_runtime.job.shutdown import Stop
from hulk_runtime.sharp import trial_file


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hulk_runtime.sharp", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", required=True, help="JSON file, see hulk_runtime.sharp.trial_file")
    parser.add_argument("--status", help="where to write how the trials are")
    options = parser.parse_args()
    stop = Stop()
    cpu_threads.limit_threads()
    try:
        from hulk_runtime.sharp import worker

        return worker.run(environment.read(os.environ), trial_file.read(options.trials), options.status, stop)
    except errors.HulkError as error:
        return errors.report(error)


if __name__ == "__main__":
    sys.exit(main())
