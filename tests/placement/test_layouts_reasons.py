"""Wishes that no layout can meet are refused with both named, before or after the search, and only such."""

from __future__ import annotations

from typing import Any

import pytest
from depth import num_examples
from hulk_placement.cost.closed_form.setting import Ground
from hulk_placement.layer_pins import LayerPin, stages_needed
from hulk_placement.layouts.joined import unjoined
from hulk_placement.layouts.place import place
from hulk_placement.layouts.space import space_of
from hulk_placement.layouts.trials import Trials
from hulk_placement.model import Layer, Model
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.layout_searches import SEARCHES

LINK = Link(0.01, 1e8)
IN_A, IN_B = LayerPin((0,), regions=("a",)), LayerPin((1,), regions=("b",))


def world(*links: str, inside: str = "abc", machines: tuple[str, ...] = ("a0", "b0")) -> Topology:
    """Machines in the regions of their first letters, and links by the letters of their ends, like "ab"."""
    between = {(pair[0], pair[1]): LINK for pair in (*links, *(2 * region for region in inside))}
    made = tuple(Machine(name, name[0], flops_per_s=1e12, price_per_hour=2.0) for name in machines)
    return Topology(made, region_links=between)


def job(topology: Topology, **asked: Any) -> Workload:
    layers = tuple(Layer(f"l{n}", 1_000, 1e9, 2e9, 1_000, 1_000) for n in range(2))
    free = {"max_workers": 100, "pipeline": None, "tensor": None, **asked}
    return Workload("team/job", Model(layers), 2, {m.name: 1 for m in topology.machines}, **free)


@pytest.mark.parametrize(
    ("topology", "asked", "reason", "said"),
    [
        (
            world("ab", "ba"),
            {"pipeline": 1, "layer_pins": (IN_A, IN_B)},
            "ContradictoryPlacement",
            "Pins of layer 0 in a and of layer 1 in b have no machine in common: they need 2 stages, and 1 is asked",
        ),
        (
            world(),
            {"min_workers": 2},
            "OnlyUnknownLinks",
            "Needs at least 2 accelerators; known links join at most 1 of 2. Nothing is known of 2 of 2 region links: "
            "a to b, b to a.",
        ),
        (world("ab"), {"pipeline": 2}, "OnlyUnknownLinks", "Nothing is known of 1 of 2 region links: b to a."),
        (
            world(inside="", machines=("a0", "a1")),
            {"min_workers": 2},
            "OnlyUnknownLinks",
            "join at most 1 of 2. Nothing is known of 1 of 1 region links: a to a.",
        ),
        (
            world(),
            {"layer_pins": (LayerPin((0, 1), regions=("z",), machines=("y0",)),)},
            "PinsNotPossible",
            "A pin has layers 0-1 in z or on y0, and none of 2 machines is there.",
        ),
        (
            world(),
            {"layer_pins": (IN_A, IN_B)},
            "OnlyUnknownLinks",
            "Pins bind layer 0 in a and layer 1 in b; no known links join them. Nothing is known of 2 of 2",
        ),
        (
            world("ab", "ba", "bc", "cb", machines=("a0", "b0", "c0")),
            {"pipeline": 2, "layer_pins": (IN_A, LayerPin((1,), regions=("c",)))},
            "PinsNotPossible",
            "where it must be: layer 0 in a; layer 1 in c. Nothing is known of 2 of 6 region links: a to c, c to a.",
        ),
        (
            world("ab", "ba"),
            {"max_price_per_hour": 3.0, "min_workers": 2},
            "PriceLimit",
            "layouts evaluated costs at most 3 an hour.",
        ),
        (
            world("ab", "ba"),
            {"max_price_per_hour": 3.9, "layer_pins": (IN_A,), "min_workers": 2},
            "ContradictoryPlacement",
            "A pin has layer 0 in a, where 2 accelerators cost at least 4 an hour; at most 3.9 an hour is asked for",
        ),
        (
            world("ab", "ba", machines=("a0", "b0")),
            {"layer_pins": (IN_A, IN_B), "data": 2},
            "PinsNotPossible",
            "has every pinned layer where it must be: layer 0 in a; layer 1 in b.",
        ),
    ],
    ids=[
        "stages",
        "two regions",
        "one way",
        "inside",
        "nowhere",
        "pins",
        "pins through another",
        "price",
        "dear",
        "replicas",
    ],
)
def test_what_excludes_every_layout_is_named(topology: Topology, asked: dict[str, Any], reason: str, said: str) -> None:
    found = place(job(topology, **asked), topology, Budget(2_000))
    assert isinstance(found, Unplaced)
    assert found.reason == reason, found
    assert said in found.message


def test_pins_need_a_stage_wherever_no_machine_may_have_both_sides() -> None:
    machines = world(machines=("a0", "a1", "b0")).machines
    pins = (LayerPin((0, 3), regions=("a",)), LayerPin((1,), machines=("a1",)), LayerPin((2,), regions=("b",)))
    assert stages_needed(pins, machines).num_stages == 3
    assert stages_needed(pins, machines).apart == (0, 2)
    assert stages_needed(pins[:2], machines).num_stages == 1
    assert stages_needed((), machines).num_stages == 1


PAIRS = [a + b for a in "abc" for b in "abc" if a != b]


@settings(max_examples=num_examples(60), deadline=None)
@given(st.sets(st.sampled_from(PAIRS)), st.sets(st.sampled_from("abc")), st.integers(1, 3), st.booleans())
def test_what_links_are_said_to_exclude_the_exact_search_does_not_find(
    links: set[str], inside: set[str], min_workers: int, is_pinned: bool
) -> None:
    topology = world(*sorted(links), inside="".join(sorted(inside)), machines=("a0", "a1", "b0", "c0"))
    asked = job(topology, min_workers=min_workers, layer_pins=(IN_A, IN_B) if is_pinned else ())
    trials = Trials(Ground.of(asked, topology, topology.machines))
    SEARCHES["exact"](trials, space_of(trials.ground), lambda: True, 0)
    if any(map(trials.is_possible, trials.best(trials.num_kept))):
        assert unjoined(trials.ground, min_workers) is None
