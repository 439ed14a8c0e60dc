"""Runs on every rank: makes methods, all-reduces when the conductor says so, says when it ended and if it is right.

Nothing but the all-reduce is between the common beginning and a rank's end: data are prepared before, and checked when
all ranks have ended. Rank r puts (1 + r / 7) times a pattern of random numbers that all ranks draw alike: sums are
rounded, so that another order of adding shows in the bits, and what the sum must be is known without others' data.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from bench.allreduce.conductor import Answer, Player, sleep_until
from bench.allreduce.methods import KINDS, Method
from bench.allreduce.place import Place
from bench.allreduce.steps import Steps, compute_s
from bench.processor import cpu_s, thread_s

MAX_ERROR = 1e-5
"""Of the largest value: some float32 roundings."""


class Worker:
    """One rank's methods and data."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._methods: dict[str, Method] = {}
        self._steps: dict[str, Steps] = {}
        self._patterns: dict[int, torch.Tensor] = {}
        self._values = torch.empty(0)
        self.ops: dict[str, Callable[[Answer], Answer]] = {
            "make": self._make,
            "prepare": self._prepare,
            "reduce": self._reduce,
            "check": self._check,
            "close": self._close,
            "compute": self._compute,
            "make steps": self._make_steps,
            "step": self._step,
            "check steps": self._check_steps,
            "close steps": self._close_steps,
        }

    def _make(self, order: Answer) -> Answer:
        start = time.monotonic()
        spec = order["method"]
        self._methods[order["key"]] = KINDS[spec["kind"]](self._place, spec)
        return {"seconds": time.monotonic() - start}

    def _close(self, order: Answer) -> Answer:
        self._methods.pop(order["key"]).close()
        return {}

    def _prepare(self, order: Answer) -> Answer:
        self._values = self._pattern(order["num_bytes"]) * self._factor(self._place.rank)
        return {}

    def _reduce(self, order: Answer) -> Answer:
        method = self._methods[order["key"]]
        others = [
            engine
            for other in self._methods.values()
            if other is not method
            for engine in other.engines
            if engine.is_alive()
        ]
        before_s, others_before_s = cpu_s(), sum(map(thread_s, others))
        sleep_until(order["start"])
        method.all_reduce(self._values)
        others_s = sum(map(thread_s, others)) - others_before_s
        return {"end": time.monotonic(), "cpu_s": cpu_s() - before_s, "others_s": others_s}

    def _check(self, _: Answer) -> Answer:
        pattern = self._pattern(self._values.numel() * 4)
        total = sum(self._factor(rank) for rank in range(len(self._place.addresses)))
        error = (self._values / total).sub_(pattern).abs_().max().item() / pattern.abs().max().item()
        return {"right": error <= MAX_ERROR, "crc": zlib.crc32(self._values.numpy().tobytes())}

    def _compute(self, order: Answer) -> Answer:
        return {"seconds": compute_s(order["num_layers"])}

    def _make_steps(self, order: Answer) -> Answer:
        self._steps[order["key"]] = Steps(self._place, order["steps"])
        return {}

    def _step(self, order: Answer) -> Answer:
        steps, before_s = self._steps[order["key"]], cpu_s()
        sleep_until(order["start"])
        return {"end": steps.step(), "cpu_s": cpu_s() - before_s, "others_s": 0.0}

    def _check_steps(self, order: Answer) -> Answer:
        steps = self._steps[order["key"]]
        return {"right": steps.is_right, "crc": steps.crc()}

    def _close_steps(self, order: Answer) -> Answer:
        self._steps.pop(order["key"]).close()
        return {}

    def _pattern(self, num_bytes: int) -> torch.Tensor:
        if num_bytes not in self._patterns:
            generator = torch.Generator().manual_seed(num_bytes)
            self._patterns = {num_bytes: torch.randn(num_bytes // 4, generator=generator)}
        return self._patterns[num_bytes]

    @staticmethod
    def _factor(rank: int) -> float:
        return 1 + rank / 7


def main() -> None:
    """Until the conductor has no more orders."""
    place = Place.of_environment()
    player = Player(place.rank)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    worker = Worker(place)
    player.answer(ready=True)
    while (order := player.order()) is not None:
        answer: dict[str, Any] = worker.ops[order["op"]](order)
        player.answer(**answer)


if __name__ == "__main__":
    main()
