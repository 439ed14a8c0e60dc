"""A running job changes, on simulated nodes: one node is replaced, and the job shrinks.

Beside Hulk a bare client makes the least change there is: it deletes one pod and creates it on another node, or deletes
the pods that are too many. Hulk sees what happened, makes another plan for the whole gang and commits it ("decided"),
then labels the pods that stay and replaces or removes the others ("carried out", to the last pod that runs or is gone).
As in a deployment, the bare client, which decides nothing, is beside the second. Simulated nodes start nothing, so this
is the control plane's part alone: no rank starts again.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.api_server import Bare, connect
from bench.deployment import PODS, Shape, as_created, cv_percent, hulk_jobs, job, p99, plan_committed, variation
from bench.raw import Raw
from bench.simulated import NAMESPACE, operator, simulated_lab
from bench.verdicts import verdict

BEFORE = Shape(50, 50, 20)
NUM_AFTER = 40
JOBS = hulk_jobs(NAMESPACE)
SELECTOR = "hulk.dev/job=bench"
TIMEOUT_S = 180.0
LOOK_EVERY_S = 0.02


@dataclass(frozen=True, slots=True)
class Change:
    """Seconds from the first request to the plan (0: nothing is planned) and on to the end; the pods that lived on."""

    decided_s: float
    carried_out_s: float
    num_kept: int
    num_pods: int


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a condition of the server; TimeoutError names it."""
    deadline = time.monotonic() + TIMEOUT_S
    while not await condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {TIMEOUT_S:g} s for {what}")
        await asyncio.sleep(LOOK_EVERY_S)


async def running(bare: Bare, selector: str) -> dict[str, str]:
    """Uids by name of the pods that run and are not being deleted."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in await bare.matching(PODS, selector)
        if pod.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


async def settled(bare: Bare, selector: str, num_pods: int, gone: str = "") -> bool:
    """Whether exactly so many pods exist, all run, and the one with the uid `gone` is not among them."""
    pods = await bare.matching(PODS, selector)
    alive = await running(bare, selector)
    return len(pods) == len(alive) == num_pods and gone not in alive.values()


async def changed(
    bare: Bare,
    selector: str,
    num_after: int,
    gone: str,
    act: Callable[[], Awaitable[None]],
    plan: asyncio.Task[float] | None = None,
) -> Change:
    """Do it, and wait until exactly `num_after` pods run, without the one of uid `gone`; `plan`: its commit."""
    before = set((await running(bare, selector)).values())
    start = time.monotonic()
    await act()

    async def done() -> bool:
        return await settled(bare, selector, num_after, gone)

    await until(done, f"{num_after} pods of {selector}")
    end = time.monotonic()
    decided = start if plan is None else await asyncio.wait_for(plan, TIMEOUT_S)
    after = await running(bare, selector)
    return Change(decided - start, end - decided, len(before & set(after.values())), len(after))


async def patch(bare: Bare, path: str, body: dict[str, Any]) -> None:
    """Merge-patch one object."""
    headers = {"Content-Type": "application/merge-patch+json"}
    async with bare.session.patch(bare.url + path, json=body, headers=headers) as answer:
        answer.raise_for_status()


async def hulk(bare: Bare) -> tuple[Change, Change, list[dict[str, Any]]]:
    """Replace and shrink by Hulk; also the pods as they were before."""
    body = job(BEFORE)
    body["spec"]["template"]["spec"]["containers"][0]["command"] = ["/opt/hulk/bin/hulk-launch", "train.py"]
    await bare.create(JOBS, body)
    await until(lambda: settled(bare, SELECTOR, BEFORE.num_pods), "the job's pods")
    pods = await bare.matching(PODS, SELECTOR)
    lost = pods[len(pods) // 2]
    node = f"/api/v1/nodes/{lost['spec']['nodeName']}"

    async def replace() -> None:
        await patch(bare, node, {"spec": {"unschedulable": True}})
        await bare.delete(f"{PODS}/{lost['metadata']['name']}")

    plan = asyncio.create_task(plan_committed(bare, NAMESPACE, after=1))
    replaced = await changed(bare, SELECTOR, BEFORE.num_pods, lost["metadata"]["uid"], replace, plan)

    async def shrink() -> None:
        await patch(bare, f"{JOBS}/bench", {"spec": {"workers": {"min": NUM_AFTER, "max": NUM_AFTER}}})

    plan = asyncio.create_task(plan_committed(bare, NAMESPACE, after=2))
    shrunk = await changed(bare, SELECTOR, NUM_AFTER, "", shrink, plan)
    await bare.delete(f"{JOBS}/bench")
    await bare.delete_all(PODS, SELECTOR)
    await patch(bare, node, {"spec": {"unschedulable": None}})
    return replaced, shrunk, pods


async def least(bare: Bare, pods: Sequence[dict[str, Any]]) -> tuple[Change, Change]:
    """The same by a client that deletes and creates only what must be."""
    selector = "bench=bare"
    bodies = [as_created(pod) for pod in pods]
    await bare.create_all(PODS, bodies)
    await until(lambda: settled(bare, selector, len(bodies)), "the bare client's pods")
    moved = bodies[len(bodies) // 2]
    names = [body["metadata"]["name"] for body in bodies]
    uid = (await running(bare, selector))[moved["metadata"]["name"]]

    async def replace() -> None:
        await bare.delete(f"{PODS}/{moved['metadata']['name']}")
        again = {**moved, "metadata": {**moved["metadata"], "name": "bare-again"}}
        again["spec"] = {key: value for key, value in moved["spec"].items() if key not in ("affinity", "hostname")}
        await bare.create(PODS, again)

    replaced = await changed(bare, selector, len(bodies), uid, replace)
    surplus = [name for name in names if name != moved["metadata"]["name"]][: len(bodies) - NUM_AFTER]

    async def shrink() -> None:
        await asyncio.gather(*(bare.delete(f"{PODS}/{name}") for name in surplus))

    shrunk = await changed(bare, selector, NUM_AFTER, "", shrink)
    await bare.delete_all(PODS, selector)
    return replaced, shrunk


async def measure(kubeconfig: Any, num_runs: int, raw: Raw) -> dict[str, list[Change]]:
    """`num_runs` rounds of both clients, one after the other in each round."""
    found: dict[str, list[Change]] = {}
    async with connect(kubeconfig) as bare:
        for _ in range(num_runs):
            replaced, shrunk, pods = await hulk(bare)
            bare_replaced, bare_shrunk = await least(bare, pods)
            rows = {
                "one node replaced, hulk": replaced,
                "one node replaced, bare": bare_replaced,
                f"{BEFORE.num_pods} -> {NUM_AFTER} pods, hulk": shrunk,
                f"{BEFORE.num_pods} -> {NUM_AFTER} pods, bare": bare_shrunk,
            }
            for name, change in rows.items():
                found.setdefault(name, []).append(change)
                raw.add(change, what=name)
    return found


def to_bare(found: dict[str, list[Change]], name: str) -> list[float]:
    """Seconds to carry it out over those of the bare client in the same round."""
    floors = found[name.replace("hulk", "bare")]
    return [own.carried_out_s / floor.carried_out_s for own, floor in zip(found[name], floors, strict=True)]


def verdicts(found: dict[str, list[Change]]) -> list[str]:
    """Each change against the aims of a deployment, and no pod touched that the bare client leaves alone."""
    lines: list[str] = []
    for name in [name for name in found if name.endswith("hulk")]:
        ratios, least_kept = to_bare(found, name), max(c.num_kept for c in found[name.replace("hulk", "bare")])
        lines += [
            verdict(f"{name}, carried out / bare client", statistics.median(ratios), "at most", 1.2),
            verdict(f"{name}, CV of that ratio, %", cv_percent(ratios), "at most", 4),
            verdict(f"{name}, p99 in seconds", p99([change.carried_out_s for change in found[name]]), "below", 2),
            verdict(f"{name}, pods kept", min(change.num_kept for change in found[name]), "at least", least_kept),
        ]
    return lines


def table(found: dict[str, list[Change]]) -> Table:
    """Medians, p99, the ratio to the bare client of the same round, and the pods that were left alone."""
    num_runs = max(len(changes) for changes in found.values())
    columns = ("decided", "carried out", "p99", "CV", "x bare", "ratio CV", "pods kept", "pods after")
    view = Table("change, client", *columns)
    view.title = f"{BEFORE}, {num_runs} runs (simulated nodes; seconds, medians)"
    for name, changes in found.items():
        seconds = [change.carried_out_s for change in changes]
        ratios = to_bare(found, name)
        view.add_row(
            name,
            f"{statistics.median(change.decided_s for change in changes):.2f}",
            f"{statistics.median(seconds):.2f}",
            f"{p99(seconds):.2f}",
            variation(seconds),
            f"{statistics.median(ratios):.1f}",
            variation(ratios),
            str(min(change.num_kept for change in changes)),
            str(changes[-1].num_pods),
        )
    return view


def main(num_runs: int = 20) -> None:
    """Measure both changes on one control plane."""
    console = Console(highlight=False, width=120)
    with simulated_lab() as lab, operator(lab):
        found = asyncio.run(measure(lab.control.kubeconfig, num_runs, Raw("change")))
        console.print(table(found))
        console.print("\n".join(verdicts(found)))
