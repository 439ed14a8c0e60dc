"""Jobs that are alike in one pass, and what the search is told of their runs."""

import asyncio

import pytest
from hulk_operator.planning.process import Problem, Search
from hulk_operator.reconcile.types import Planned
from hulk_placement.solution import Solution
from test_planning import WAIT_S, job, machines, node, planning_over

NUM_JOBS = 12


async def test_jobs_that_are_alike_are_planned_as_one_where_nodes_are() -> None:
    """12 jobs of 2 workers whose cpu a node has for 4: six nodes of 8 accelerators hold two jobs each at least."""
    nodes = [node(f"n-{number}", accelerators=8, cpu="4") for number in range(6)]
    keys = [f"job-{number:02}" for number in range(NUM_JOBS)]
    async with planning_over(*nodes, *(job(key) for key in keys)) as world:
        for key in keys:
            world.planner.request(f"lab/{key}")
        for _ in keys:
            await asyncio.wait_for(world.answered.get(), WAIT_S)
        answers = [world.planner.decision(f"lab/{key}") for key in keys]
        held = [name for answer in answers if answer is not None for name in machines(answer)]
        assert sorted(held) == [f"n-{number}" for number in range(6) for _ in range(4)]
        for answer in answers:
            assert isinstance(answer, Planned)
            said = f"Planned together with {NUM_JOBS - 1} other jobs: those that are alike have one layout"
            assert any(why.startswith(said) for why in answer.full.plan.why)


@pytest.mark.parametrize(
    ("training", "made", "expected"),
    [({"steps": 100}, 0, 100), ({"steps": 100}, 40, 60), ({"steps": 100}, 100, 1), ({}, 40, None)],
)
async def test_the_search_is_told_how_many_steps_are_left(
    training: dict[str, int], made: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Problem] = []

    async def solve(self: Search, problem: Problem) -> Solution:
        asked.append(problem)
        return await whole(self, problem)

    whole = Search.solve
    monkeypatch.setattr(Search, "solve", solve)
    resource, body = job("one", training={"globalBatch": 8, **training})
    if made:
        body["status"] = {"checkpoint": {"step": made, "where": "file:///there"}}
    async with planning_over(node("a"), node("b"), (resource, body)) as world:
        world.planner.request("lab/one")
        assert machines(await world.answer("one")) == ["a", "b"]
    assert [workload.num_steps for problem in asked for workload in problem.workloads] == [expected]
