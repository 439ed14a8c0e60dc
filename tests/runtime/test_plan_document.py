"""JSON's values become what the annotations say, or the error names the key."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hulk_runtime.plan.document import FULL, DocumentError, Natural, Positive, read


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A value with a dataclass in it."""

    ends: tuple[Natural, Natural]
    rate: float = 1.0
    cap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Has every kind of field."""

    name: str
    num_nodes: Positive
    links: Annotated[tuple[Link, ...], FULL]
    kind: Literal["wan", "lan"] = "wan"
    only: Literal["one"] = "one"
    is_measured: bool = False

    def __post_init__(self) -> None:
        if len(self.links) > self.num_nodes:
            raise ValueError(f"{len(self.links)} links of {self.num_nodes} nodes")


LINK = {"ends": [0, 1]}
WHOLE: dict[str, Any] = {"name": "a", "numNodes": 2, "links": [LINK, {"ends": [1, 0], "rate": 3, "cap": 2.5}]}


def test_values_are_of_the_types_that_the_annotations_name() -> None:
    found = read(Network, {**WHOLE, "later": {"more": 1}})
    assert found == Network(name="a", num_nodes=2, links=(Link(ends=(0, 1)), Link(ends=(1, 0), rate=3.0, cap=2.5)))
    assert type(found.links[1].rate) is float


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": 3}, "name: must be text, not 3"),
        ({"numNodes": True}, "numNodes: must be a whole number, not True"),
        ({"numNodes": 2.0}, "numNodes: must be a whole number, not 2.0"),
        ({"numNodes": 0}, "numNodes: must be > 0, not 0"),
        ({"numNodes": None}, "numNodes: must be a whole number, not None"),
        ({"links": []}, "links: must hold one or more, not []"),
        ({"links": "ab"}, "links: must be a list, not 'ab'"),
        ({"links": [LINK, 3]}, "links.1: must be an object, not 3"),
        ({"links": [{}]}, "links.0.ends: is missing"),
        ({"links": [{"ends": [0, 1, 2]}]}, "links.0.ends: must be a list of 2, not [0, 1, 2]"),
        ({"links": [{"ends": [0, -1]}]}, "links.0.ends: must be >= 0, not -1"),
        ({"links": [{**LINK, "rate": float("inf")}]}, "links.0.rate: must be a number, not inf"),
        ({"links": [{**LINK, "rate": 10**400}]}, "links.0.rate: must be a number, not 1000"),
        ({"links": [{**LINK, "cap": False}]}, "links.0.cap: must be a number, not False"),
        ({"kind": "man"}, "kind: must be 'wan' or 'lan', not 'man'"),
        ({"kind": ["wan"]}, "kind: must be 'wan' or 'lan', not ['wan']"),
        ({"only": "two"}, "only: must be 'one', not 'two'"),
        ({"isMeasured": 1}, "isMeasured: must be true or false, not 1"),
        ({"links": [LINK] * 3}, "3 links of 2 nodes"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DocumentError) as found:
        read(Network, {**WHOLE, **changes})
    assert str(found.value).startswith(complaint)
    assert len(str(found.value)) < 200
