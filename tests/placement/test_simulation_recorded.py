"""Steps of every kind take what was recorded of them when the simulation was numba's, November 2026."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hulk_placement.cost.simulation.outcome import simulate_step
from simulated_steps import drawn, figures

RECORDED: dict[str, list[float]] = json.loads((Path(__file__).parent / "golden" / "simulated-steps.json").read_text())


@pytest.mark.parametrize("seed", [*map(int, RECORDED)])
def test_drawn_steps_take_what_was_recorded(seed: int) -> None:
    assert figures(simulate_step(drawn(seed))) == pytest.approx(RECORDED[str(seed)], rel=1e-9, abs=1e-9)
