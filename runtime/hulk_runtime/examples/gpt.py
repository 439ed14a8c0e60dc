"""A small byte-level GPT, by default on the Python standard library's own source: real text on every machine.

    python -m hulk_runtime.examples.gpt [--learning-rate 0.001] [--data s3://corpus-{region}/*.txt]

Dimensions, batch, steps, precision and optimizer come from the plan, that is from the HulkJob.
"""

import argparse
import os
from typing import TYPE_CHECKING

from hulk_runtime import entry
from hulk_runtime.job import environment

if TYPE_CHECKING:
    import torch

    from hulk_runtime.plan.wire import Plan
    from hulk_runtime.training.stepper import Task

LEARNING_RATES = {"adamw": 1e-3, "sgd": 0.1}


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Train a byte-level GPT as the HulkJob's plan says.")
    parser.add_argument("--learning-rate", type=float, help="default 0.001 for adamw, 0.1 for sgd")
    parser.add_argument("--data", help="path or URL of text files, {region} replaced; default: Python's own source")
    options = parser.parse_args()

    def make_task(plan: "Plan", device: "torch.device") -> "Task":
        from hulk_runtime.examples import text
        from hulk_runtime.examples.byte_gpt import ByteTask

        region = plan.workers[environment.read(os.environ).worker].region
        read = text.fetch(options.data, region) if options.data else text.standard_library_source()
        asked = options.learning_rate
        rate = LEARNING_RATES[plan.training.optimizer] if asked is None else asked
        return ByteTask(plan, device, rate, read)

    entry.leave(entry.run(make_task))


if __name__ == "__main__":
    main()
