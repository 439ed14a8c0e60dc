"""The value network: its graphs, that numpy answers as PyTorch Geometric does, its guide, its training."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hulk_native import GRAPH_LIMIT
from hulk_placement.gnn.graphs import Graphs, figures_of, graphs_of
from hulk_placement.gnn.guide import Guide
from hulk_placement.gnn.network import Network
from hulk_placement.gnn.weights import Single, read
from hulk_placement.model import Layer, Model
from hulk_placement.solution import Budget
from hulk_placement.solve.together import DIVISION_SHARE, divisions_of, work_on
from hulk_placement.split.division import Divisions, Progress
from hulk_placement.split.laid_out import lay_out
from hulk_placement.topology import Topology
from hulk_placement.workload import Workload
from split_cases import model, topology, workload

from bench.divisions import SEARCHES, guided, sampling
from bench.divisions.blocks import by_size, equal_pieces, graph_of, parts_of
from bench.divisions.classify import Classifier
from bench.gnn.training.clusters import DATA_VERSION

SPEEDS = {"a0": 4e12, "a1": 1e12, "b0": 1e12, "b1": 2e12, "c0": 1e12}


def problem() -> Divisions:
    world = topology(SPEEDS, num_accelerators=4, memory_bytes=1 << 34)
    return divisions_of([workload(world, "team/one"), workload(world, "team/two", model(4))], world)


def two_jobs() -> tuple[list[Workload], Topology]:
    world = topology({"a0": 4e12, "a1": 1e12, "b0": 1e12, "b1": 1e12})
    return [workload(world, "team/one"), workload(world, "team/two", model(flops=3e12))], world


def divided(
    jobs: list[Workload],
    world: Topology,
    search: Callable[[Divisions, Progress, int], None],
    divisions: Divisions | None = None,
) -> float:
    divisions = divisions or divisions_of(jobs, world)
    work = work_on(divisions, Budget(20_000), lambda: 0.0)
    search(divisions, lambda: work.done() / DIVISION_SHARE, 0)
    final = lay_out(work, 0)
    assert final is not None
    return final.value


def shares(divisions: Divisions, num: int = 40) -> np.ndarray:
    chance = random.Random(0)
    drawn = [sampling.draw(divisions, chance)[0] for _ in range(num)]
    return np.stack([row for row in drawn if row.any()])


def with_shipped(network: Any, name: str) -> Any:
    """A network of torch with the package's weights; each parameter is known by the value that it is exported with."""
    import torch

    trained = Classifier if name == "classify" else Network
    exported, weights = network.exported(), trained.trained().weights
    assert exported.keys() == weights.keys()
    for parameter in network.parameters():
        (own,) = (key for key, array in exported.items() if np.array_equal(array.T, parameter.detach().numpy()))
        parameter.data = torch.tensor(weights[own].T.copy())
    return network


def test_a_graph_of_one_pool_by_hand() -> None:
    """Four accelerators of 4e12 FLOP/s: all the speed, four accelerators, and no one faster."""
    divisions = problem()
    figures = figures_of(divisions.jobs[0])
    row = np.zeros((1, len(divisions.pools.total_P)), np.int64)
    row[0, int(np.argmax(figures.speed_P))] = 4
    graphs = graphs_of(figures, row)
    speed, count, share = graphs.node_BN7[0, 0, :3]
    assert (speed, count, share) == pytest.approx((0.0, np.log10(4), 0.0))
    assert graphs.ideal_B[0] == pytest.approx(4 / (4 * figures.speed_P.max()))
    assert graphs.share_BN.tolist() == [[1.0]]


def test_figures_are_finite_and_within_limits() -> None:
    divisions = problem()
    graphs = graphs_of(figures_of(divisions.jobs[1]), shares(divisions))
    for array in graphs[:3]:
        assert np.isfinite(array).all()
        assert np.abs(array).max() <= GRAPH_LIMIT
    assert graphs.share_BN.sum(axis=1) == pytest.approx(np.ones(len(graphs.ideal_B)))


def test_the_order_of_pools_and_padding_change_nothing() -> None:
    divisions = problem()
    rows, figures = shares(divisions), figures_of(divisions.jobs[0])
    answers = Network.trained().ratios(graphs_of(figures, rows))
    alone = [Network.trained().ratios(graphs_of(figures, row[None]))[0] for row in rows]
    assert np.array(alone) == pytest.approx(answers, abs=1e-5)
    full = rows[(rows > 0).sum(axis=1) == (rows > 0).sum(axis=1).max()]
    graphs = graphs_of(figures, full)
    order = np.random.default_rng(0).permutation(graphs.share_BN.shape[1])
    shuffled = graphs._replace(
        node_BN7=graphs.node_BN7[:, order],
        edge_BNN4=graphs.edge_BNN4[:, order][:, :, order],
        share_BN=graphs.share_BN[:, order],
    )
    assert Network.trained().ratios(shuffled) == pytest.approx(Network.trained().ratios(graphs), abs=1e-5)


@pytest.mark.parametrize("is_shipped", [False, True])
def test_numpy_answers_as_pytorch_geometric_does(is_shipped: bool) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from bench.gnn.training.model import Value, batch_of

    torch.manual_seed(1)
    network, divisions = with_shipped(Value(), "value") if is_shipped else Value(), problem()
    graphs = graphs_of(figures_of(divisions.jobs[0]), shares(divisions))
    with torch.no_grad():
        expected = network(batch_of(graphs, np.arange(len(graphs.ideal_B)))).numpy()
    numpy = Network.trained() if is_shipped else Network(network.exported())
    assert np.abs(numpy.ratios(graphs) - expected).max() < 1e-5


@pytest.mark.parametrize("is_shipped", [False, True])
def test_the_classifier_answers_as_pytorch_geometric_does(is_shipped: bool) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from bench.gnn.training.classifier import Convolution

    torch.manual_seed(1)
    network = with_shipped(Convolution(), "classify") if is_shipped else Convolution()
    graph = graph_of(problem())
    with torch.no_grad():
        expected = network(*(torch.tensor(array, dtype=torch.float32) for array in graph[:2])).numpy()
    numpy = Classifier.trained() if is_shipped else Classifier(network.exported())
    assert np.abs(numpy.answers(graph) - expected).max() < 1e-5


def test_blocks_are_all_machines_and_parts_of_them_are_what_jobs_have() -> None:
    divisions = problem()
    graph, pieces = graph_of(divisions), equal_pieces(divisions)
    accelerators = np.bincount(graph.pool_N, weights=graph.num_N)
    assert accelerators.tolist() == divisions.pools.total_P.tolist()
    assert graph.share_N.sum() == pytest.approx(1.0)
    held = np.stack(
        [np.bincount(graph.pool_N, weights=row) for row in parts_of(divisions, graph, pieces) * graph.num_N]
    )
    assert held == pytest.approx(pieces[by_size(divisions)])


def test_the_classifier_is_right_more_often_than_one_class_on_clusters_it_has_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch_geometric")
    from bench.gnn.training import classifier, samples

    monkeypatch.setattr(samples, "SEARCHED", 200)
    found = [classifier.example_of(samples.problem(99, number)[0], 0) for number in range(8)]
    examples = [example for example in found if example is not None]
    right = sum(example.right(Classifier.trained().answers(example.graph)) for example in examples)
    by_class = np.zeros(6)
    for example in examples:
        by_class[: len(example.part_JN)] += example.part_JN @ example.graph.num_N
    assert right > by_class.max()


def test_a_model_that_sends_nothing_over_links_that_carry_nothing_has_figures() -> None:
    world = topology({"a0": 1e12, "b0": 1e12})
    apart = replace(world, region_links={pair: link for pair, link in world.region_links.items() if pair[0] == pair[1]})
    silent = Model(tuple(Layer(f"layer.{n}", 1_000, 1e12, 2e12, 0, 0) for n in range(2)))
    divisions = divisions_of([workload(apart, trained=silent)], apart)
    graphs = graphs_of(figures_of(divisions.jobs[0]), np.array([[1, 1]]))
    assert np.isfinite(graphs.edge_BNN4).all()
    assert np.isfinite(Network.trained().ratios(graphs)).all()


def test_an_exchange_is_guessed_to_be_better_and_divisions_are_ranked_by_guesses() -> None:
    divisions = problem()
    guide = Guide(divisions, Network.trained())
    counts = sampling.draw(divisions, random.Random(3))
    before = sum(float(guide.guess(job, counts[job][None])[0]) for job in range(2))
    for seed in range(8):
        rise, changed = guide.exchange(counts, random.Random(seed))
        after = sum(float(guide.guess(job, changed[job][None])[0]) for job in range(2))
        assert rise <= 0.0
        assert (changed.sum(axis=0) == divisions.pools.total_P).all()
        assert (rise == 0.0) == (changed == counts).all()
        assert rise == 0.0 or after != before
    drawn = [sampling.draw(divisions, random.Random(seed)) for seed in range(8)]
    values = [sum(float(guide.guess(job, counts[job][None])[0]) for job in range(2)) for counts in guide.ranked(drawn)]
    assert values == sorted(values)


def test_a_network_that_is_wrong_does_no_harm_at_convergence() -> None:
    """Guesses only order what is priced: with a network that prefers the worst the optimum is still found."""

    class Wrong:
        def ratios(self, graphs: Graphs) -> Single:
            return -Network.trained().ratios(graphs)

    jobs, world = two_jobs()
    proven = divided(jobs, world, SEARCHES["exact"])
    divisions = divisions_of(jobs, world)
    guide = Guide(divisions, Wrong())
    wrong = divided(
        jobs, world, lambda tried, progress, seed: guided.search_with(tried, progress, seed, guide), divisions
    )
    assert wrong == pytest.approx(proven, abs=1e-9)


def test_weights_are_small_and_say_how_they_were_made() -> None:
    for package, name in (("hulk_placement.gnn", "value"), ("bench.divisions", "classify")):
        with resources.as_file(resources.files(package).joinpath(f"{name}.npz")) as path:
            weights, made = read(path)
            assert path.stat().st_size < 1_000_000
        assert all(np.isfinite(array).all() for array in weights.values())
        assert made["command"].startswith("python -m bench.gnn.training --seed ")
        assert made["data"] == DATA_VERSION
        assert made["score"]
    assert made["score"]["share_right"] > made["score"]["share_of_one_class"]


def test_planning_imports_neither_torch_nor_pytorch_geometric() -> None:
    lines = "import sys, hulk_placement.solve, bench.divisions.compare; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.whole  # in short: numpy answers as PyTorch Geometric does, by the shipped weights
def test_training_is_the_same_for_a_seed_and_what_it_writes_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch_geometric")
    from bench.gnn.training import samples
    from bench.gnn.training.train import train

    monkeypatch.setattr(samples, "SEARCHED", 60)
    monkeypatch.setattr(samples, "NUM_SHARES", 2)
    scores = [train(seed=3, num_problems=12, folder=tmp_path / name) for name in "ab"]
    assert scores[0] == scores[1]
    (weights, made), (others, _) = (read(tmp_path / name / "value.npz") for name in "ab")
    assert made["command"] == "python -m bench.gnn.training --seed 3 --problems 12"
    assert all(np.array_equal(weights[name], others[name]) for name in weights)
    divisions = problem()
    assert np.isfinite(Network(weights).ratios(graphs_of(figures_of(divisions.jobs[0]), shares(divisions)))).all()
