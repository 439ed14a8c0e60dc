"""Several jobs on the same links: each plans, and is predicted, with its share of them."""

from __future__ import annotations

import pytest
import worlds
from hulk_placement.cost.predict import predict
from hulk_placement.solve import solve
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology

LITTLE = {("P", "O"): 0.01, ("O", "P"): 0.01}


def test_a_share_is_a_share_of_both_kinds_of_links() -> None:
    machines = (Machine("a0", "a"), Machine("b0", "b"))
    links = {("a", "b"): Link(0.1, 8e6), ("b", "a"): Link(0.2, 6e6)}
    topology = Topology(machines, node_links={("a0", "b0"): Link(0.3, 4e6)}, region_links=links)
    shared = topology.with_shares({("a", "b"): 0.25})
    assert shared.region_link("a", "b").bandwidth_bytes_per_s == 2e6
    assert shared.link("a0", "b0").bandwidth_bytes_per_s == 1e6
    assert shared.region_link("b", "a") == topology.region_link("b", "a")


@pytest.mark.parametrize("mode", ["ring", "wan"])
def test_a_plan_takes_longer_with_little_of_a_link_and_is_made_for_it(mode: str) -> None:
    topology = worlds.profile("B")
    job = worlds.workload(topology, sync=Sync(mode), min_workers=6)
    shared = topology.with_shares(LITTLE)
    alone, beside = (solve([job], [], known).plans[job.key] for known in (topology, shared))
    surprised = predict(alone, job, shared)
    assert surprised.step_s > alone.prediction.step_s
    assert beside.prediction.step_s <= surprised.step_s * 1.01  # ranked by coarse chunks
    if beside.collective is not None:
        whole = beside.collective.network.regions.index("P"), beside.collective.network.regions.index("O")
        rate = beside.collective.network.rate[whole[0]][whole[1]]
        assert rate == pytest.approx(topology.region_link("P", "O").bandwidth_bytes_per_s / 100)


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=f"link P to O: a share of {share} must be > 0 and <= 1"):
        worlds.profile("A").with_shares({("P", "O"): share})
