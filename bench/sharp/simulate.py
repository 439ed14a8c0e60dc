"""An event simulation of SHARP: the runtime's own order of units, with stated seconds for computing and copies.

A device has one thread that computes and one that copies, as `hulk_runtime.sharp.device_worker` has them; the
runtime's own `Order` decides which unit comes next.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from hulk_runtime.sharp.scheduling_policy import Candidate, Order


@dataclass(frozen=True, slots=True)
class Work:
    """A unit: the shard it is of, and seconds for bringing it in, computing, and bringing home what has changed."""

    shard: int
    load_s: float
    compute_s: float
    store_s: float


@dataclass(slots=True)
class _Trial:
    units: Sequence[Work]
    left_s: float
    position: int = 0
    is_held: bool = False

    @property
    def is_done(self) -> bool:
        return self.position == len(self.units)


@dataclass(slots=True)
class _Device:
    trial: int | None = None
    following: int | None = None
    loaded_s: float = 0.0
    """When what follows is there."""
    copies_s: float = 0.0
    """When its copies so far are done."""
    is_idle: bool = True


@dataclass
class Simulation:
    """All trials from the start to the end of the last."""

    trials: Sequence[Sequence[Work]]
    num_devices: int
    order: Order
    double_buffer: bool = True
    _now_s: float = 0.0
    _events: list[tuple[float, int, str, int]] = field(default_factory=list)
    _num_events: int = 0

    def makespan_s(self) -> float:
        """Until the last unit is home."""
        self._trials = [_Trial(units, sum(unit.compute_s for unit in units)) for units in self.trials]
        self._devices = [_Device() for _ in range(self.num_devices)]
        self._seat_idle()
        while self._events:
            self._now_s, _, what, who = heapq.heappop(self._events)
            if what == "begins":
                self._begin(who)
            elif what == "computed":
                self._computed(who)
            elif what == "home":
                self._trials[who].is_held = False
            else:
                self._devices[who].is_idle = True
            self._seat_idle()
        assert all(trial.is_done for trial in self._trials)
        return self._now_s

    def _at(self, time_s: float, what: str, who: int) -> None:
        self._num_events += 1
        heapq.heappush(self._events, (time_s, self._num_events, what, who))

    def _free(self) -> list[Candidate]:
        return [Candidate(n, t.left_s) for n, t in enumerate(self._trials) if not t.is_held and not t.is_done]

    def _seat_idle(self) -> None:
        """Devices without work take what can go on."""
        for number, device in enumerate(self._devices):
            free = self._free()
            chosen = self.order.choose(number, free) if device.is_idle and free else None
            if chosen is None:
                continue
            self._trials[chosen].is_held, device.is_idle = True, False
            device.trial = chosen
            load_s = self._trials[chosen].units[self._trials[chosen].position].load_s
            device.copies_s = max(self._now_s, device.copies_s) + load_s
            self._at(device.copies_s, "begins", number)

    def _begin(self, number: int) -> None:
        """Compute, and bring in meanwhile what comes next."""
        device = self._devices[number]
        assert device.trial is not None
        trial = self._trials[device.trial]
        unit = trial.units[trial.position]
        self._at(self._now_s + unit.compute_s, "computed", number)
        device.following = None
        if not self.double_buffer:
            return
        free = self._free()
        candidates = free if len(free) > sum(d.is_idle for d in self._devices) else []
        if trial.position + 1 < len(trial.units):
            candidates = [*candidates, Candidate(device.trial, trial.left_s - unit.compute_s)]
        chosen = self.order.choose(number, candidates) if candidates else None
        if chosen is not None:
            self._reserve(device, chosen)

    def _reserve(self, device: _Device, chosen: int) -> None:
        trial = self._trials[chosen]
        following = trial.units[trial.position + (chosen == device.trial)]
        stays = chosen == device.trial and following.shard == trial.units[trial.position].shard
        trial.is_held, device.following = True, chosen
        device.copies_s = max(self._now_s, device.copies_s) + (0.0 if stays else following.load_s)
        device.loaded_s = device.copies_s

    def _computed(self, number: int) -> None:
        device = self._devices[number]
        assert device.trial is not None
        now, trial = device.trial, self._trials[device.trial]
        unit = trial.units[trial.position]
        trial.position += 1
        trial.left_s -= unit.compute_s
        follows = device.following == now
        stays = follows and trial.units[trial.position].shard == unit.shard
        device.copies_s = max(self._now_s, device.copies_s) + (0.0 if stays else unit.store_s)
        if not follows:
            self._at(device.copies_s, "home", now)
        device.trial = device.following
        if device.following is not None:
            self._at(max(self._now_s, device.loaded_s), "begins", number)
        else:
            self._at(self._now_s if self.double_buffer else device.copies_s, "free", number)
