"""Jobs of a namespace that share its quota where nobody decides among them: in turn, and nothing is left lying."""

from typing import Any, cast

from hulk_operator.planning.plan_grants import solved
from hulk_operator.planning.process import Problem, Search
from hulk_placement.fleet.quotas import Quotas
from hulk_placement.model import Model
from hulk_placement.plan import NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.solution import Solution
from hulk_placement.topology import Machine, Topology
from hulk_placement.workload import Workload

TWO = Topology((Machine("a", "eu", num_accelerators=4), Machine("b", "eu", num_accelerators=4)))


def workload(key: str, most: int, **fields: Any) -> Workload:
    model = Model.of_totals(num_parameters=1, flops_per_sequence=1.0)
    return Workload(key=key, model=model, global_batch=8, candidates={"a": 8, "b": 8}, max_workers=most, **fields)


class Sparing:
    """A search that never gives a job more than one worker, on the first machine with room."""

    def __init__(self) -> None:
        self.asked: list[Problem] = []

    async def solve(self, problem: Problem) -> Solution:
        self.asked.append(problem)
        plans = {}
        for one in problem.workloads:
            machine = next(machine for machine in problem.topology.machines if machine.num_accelerators)
            slot = WorkerSlot(machine.name, machine.region, one.accelerators_per_worker)
            plans[one.key] = Plan(one.key, 1, (slot,), (8,), 8, 1, NOT_PREDICTED, Layout(1, 1, 1))
        return Solution(plans, {})


async def test_what_one_does_not_use_of_a_quota_is_the_next_ones_in_the_same_pass() -> None:
    search = Sparing()
    wanting = [workload("lab/one", 4, created_s=1.0), workload("lab/two", 4, created_s=2.0), workload("other/x", 2)]
    problem, found = await solved(cast(Search, search), wanting, TWO, {}, Quotas({"lab": 3}))
    assert set(found.plans) == {"lab/one", "lab/two", "other/x"}
    assert found.unplaced == {}
    first, second = search.asked
    assert {one.key: one.max_workers for one in first.workloads} == {"lab/one": 3, "other/x": 2}
    assert {one.key: one.max_workers for one in second.workloads} == {"lab/two": 2}
    assert [machine.num_accelerators for machine in second.topology.machines] == [2, 4]
    assert [one.key for one in problem.workloads] == ["lab/one", "lab/two", "other/x"]


async def test_pods_that_stay_for_a_job_count_once() -> None:
    search = Sparing()
    staying = workload("lab/one", 4, min_workers=2, kept={"a": 2})
    await solved(cast(Search, search), [staying], TWO, {}, Quotas({"lab": 3}, {"lab": 2}))
    assert [one.max_workers for one in search.asked[0].workloads] == [3]


async def test_over_its_quota_already_a_namespace_gets_nothing_more() -> None:
    _, found = await solved(cast(Search, Sparing()), [workload("lab/one", 4)], TWO, {}, Quotas({"lab": 3}, {"lab": 5}))
    assert found.plans == {}
    why = found.unplaced["lab/one"]
    assert why.reason == "Queued"
    assert why.message.endswith("and of the quota of namespace lab 0 accelerators are left.")
