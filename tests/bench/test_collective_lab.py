"""A rank that is killed or frozen, a region that is cut off: on an emulated WAN all others say the same, in time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hulk_lab.wan import relay
from hulk_lab.wan.addresses import LabNetwork
from lab_names import lab_name

from bench.allreduce.gang import Gang, wan
from bench.allreduce.profiles import lab_spec

pytestmark = pytest.mark.lab

SCRIPT = Path(__file__).with_name("lab_faults_script.py")
NODES = (2, 1, 1)
BOUND_S = 10.0
ALLOWANCE_S = 1.0
"""On top of the bound, in which beats and words over the WAN are: what a busy machine takes to run its processes."""
PATIENCE_S = 90.0


def outcomes(
    folder: Path, on_region_loss: str, fault: str, ranks: set[int], cut: Callable[[LabNetwork], None] | None = None
) -> dict[int, dict[str, object]]:
    """What these ranks were told in the end."""
    with wan(lab_spec("D", NODES, lab_name("faults"))) as net, Gang(net, SCRIPT, str(folder), on_region_loss, fault):
        wait_for(lambda: all((folder / f"began-{rank}").exists() for rank in ranks))
        if cut:
            cut(net)
        wait_for(lambda: all((folder / f"outcome-{rank}").exists() for rank in ranks))
    return {rank: json.loads((folder / f"outcome-{rank}").read_text()) for rank in ranks}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s"
        time.sleep(0.05)


def latest(folder: Path, found: dict[int, dict[str, object]], began: float) -> float:
    """Seconds until the last rank was told."""
    return max(float(str(each["at"])) for each in found.values()) - began


@pytest.mark.parametrize(
    ("fault", "says"), [("kill", "rank 3 was lost: it"), ("stop", "rank 3 was lost: nothing was heard of it for 6 s")]
)
def test_all_others_name_the_rank_within_the_bound(tmp_path: Path, fault: str, says: str) -> None:
    found = outcomes(tmp_path, "restart", fault, {0, 1, 2})
    began = float((tmp_path / "began-3").read_text())
    errors = {str(each["error"]) for each in found.values()}
    assert len(errors) == 1
    assert f"RankLostError: {says}" in errors.pop()
    assert latest(tmp_path, found, began) < BOUND_S + ALLOWANCE_S


def test_a_region_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    """Both sides live: the larger goes on with a sum of its own, the smaller ends. No packet says that it is gone."""
    cut_at: list[float] = []

    def cut(net: LabNetwork) -> None:
        cut_at.append(time.monotonic())
        for other in ("p", "o"):
            relay.cut(net, "t", other)
            relay.cut(net, other, "t")

    found = outcomes(tmp_path, "continue", "nothing", {0, 1, 2, 3}, cut)
    assert [found[rank].get("sum") for rank in range(4)] == [3.0, 3.0, 3.0, None]
    assert {str(found[rank]["error"]) for rank in range(3)} == {"MembershipChangedError: 3 ranks go on in epoch 1"}
    assert str(found[3]["error"]).startswith("RankLostError: rank 0 was lost: nothing was heard of it for 6 s")
    assert latest(tmp_path, found, cut_at[0]) < BOUND_S + ALLOWANCE_S
