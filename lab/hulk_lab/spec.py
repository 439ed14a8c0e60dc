"""One YAML file -> LabSpec: the regions, nodes, links and simulated nodes of one lab.

Everything the lab builds is derived from this value and the lab's slot (`hulk_lab.wan.addresses`); the planner never
sees it: Hulk measures the links it describes.

A file looks like this (every directed region pair is named once):

    regions:
      - {name: us, nodes: [{speed: 0.2}, {speed: 0.3, accelerators: 2}]}
      - {name: eu, nodes: 2}
    links:
      - {source: us, target: eu, rttMs: 80, mbitPerS: 40}
      - {source: eu, target: us, rttMs: 80, mbitPerS: 25}
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

MAX_REGIONS = 15
MAX_NODES = 64
MAX_KWOK_NODES = 2000
MIN_MTU, MAX_MTU = 576, 9000
MIN_SPEED = 0.1
"""Of a core, for each accelerator: the kernel's least quota (1 ms) in the longest period that spoils no timing."""
HEADER_BYTES = 52
"""IPv4 (20) + TCP (20) + timestamps (12): what a full segment carries beside its payload."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


def is_name(name: str) -> bool:
    """Whether a lab, region or node may be called so: nothing else becomes a part of a path."""
    return _NAME.fullmatch(name) is not None


def checked_name(kind: str, name: str) -> str:
    """The name, or ValueError with the rule it breaks."""
    if not is_name(name):
        raise ValueError(f"{kind} name {name!r} must be 1 to 40 of a-z, 0-9 and -, starting and ending without -")
    return name


class NodeSpec(_Model):
    """A real node: its own kubelet, containerd and network namespace."""

    name: str = ""
    """Empty in a file means `<region>-<position>`; never empty inside a LabSpec."""
    speed: float = Field(default=0.16, gt=0, le=64)
    """Share of one core that the job pods of this node get together (1.0 = one core)."""
    accelerators: int = Field(default=1, ge=0, le=64)
    """Advertised as nvidia.com/gpu."""

    @model_validator(mode="after")
    def _quota_exists(self) -> NodeSpec:
        if round(self.speed, 9) < round(MIN_SPEED * self.accelerators, 9):
            raise ValueError(
                f"node {self.name}: speed {self.speed:g} must be at least {MIN_SPEED:g} of a core for each of its "
                f"{self.accelerators} accelerators: a smaller CPU quota would need a period above 10 ms"
            )
        return self


class RegionSpec(_Model):
    """A region: a router namespace and the nodes behind it."""

    name: str
    nodes: tuple[NodeSpec, ...] = Field(min_length=1)

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return checked_name("region", name)

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, data: Any) -> Any:
        """A count becomes that many default nodes; a node without a name gets `<region>-<position>`."""
        if not isinstance(data, dict):
            return data
        nodes = data.get("nodes")
        if isinstance(nodes, int):
            if nodes < 1:
                raise ValueError(f"region {data.get('name')}: nodes {nodes} must be >= 1")
            nodes = [{}] * nodes
        if not isinstance(nodes, (list, tuple)):
            return data
        named = []
        for i, node in enumerate(nodes):
            fields = node.model_dump() if isinstance(node, NodeSpec) else dict(node)
            named.append({**fields, "name": fields.get("name") or f"{data.get('name')}-{i}"})
        return {**data, "nodes": named}


class LinkSpec(_Model):
    """A directed region pair: exactly one of rttMs (one way is half of it) and oneWayMs."""

    source: str
    target: str
    rtt_ms: float | None = Field(default=None, gt=0, le=2000)
    one_way_ms: float | None = Field(default=None, gt=0, le=1000)
    mbit_per_s: float = Field(gt=0, le=2000)
    """TCP payload rate of this direction, 10^6 bit/s."""

    @model_validator(mode="after")
    def _one_latency(self) -> LinkSpec:
        if (self.rtt_ms is None) == (self.one_way_ms is None):
            raise ValueError(
                f"link {self.source}->{self.target}: give exactly one of rttMs and oneWayMs, "
                f"got rttMs={self.rtt_ms} and oneWayMs={self.one_way_ms}"
            )
        return self

    @property
    def delay_ms(self) -> float:
        """One-way delay; half of the round trip where the file gives that."""
        if self.one_way_ms is not None:
            return self.one_way_ms
        assert self.rtt_ms is not None
        return self.rtt_ms / 2

    def wire_bytes_per_s(self, mtu: int) -> float:
        """Rate of IP packets that lets full TCP segments carry `mbit_per_s` of payload."""
        return self.mbit_per_s * 1e6 / 8 * mtu / (mtu - HEADER_BYTES)


class KwokSpec(_Model):
    """Simulated nodes, beside or instead of real ones: they have no network and run nothing."""

    nodes: int = Field(default=0, ge=0, le=MAX_KWOK_NODES)
    regions: int = Field(default=4, ge=1, le=100)
    """Node i is in region `kwok-<i mod regions>`."""
    accelerators: int = Field(default=16, ge=0, le=64)
    cpu: int = Field(default=64, ge=1)
    memory_gib: int = Field(default=512, ge=1)


class LabSpec(_Model):
    """A whole lab."""

    name: str = "hulk"
    regions: tuple[RegionSpec, ...] = Field(default=(), max_length=MAX_REGIONS)
    links: tuple[LinkSpec, ...] = ()
    mtu: int = Field(default=1500, ge=MIN_MTU, le=MAX_MTU)
    router_buffer_ms: float = Field(default=150, ge=1, le=5000)
    """Drop-tail buffer before each directed link, as time at that link's rate."""
    congestion_control: Literal["cubic", "bbr", "reno"] = "cubic"
    """Of nodes and pods; a new namespace would otherwise inherit the machine's choice."""
    slow_start_after_idle: bool = True
    """Of nodes and pods: whether a connection's congestion window shrinks while it is silent, as Linux has it."""
    ipv6: bool | Literal["only"] = False
    """Whether nodes, pods and services have IPv6 addresses too, which then come first; `only`: and none of IPv4."""
    kwok: KwokSpec = KwokSpec()
    kueue: bool = False
    """Whether Kueue's own controller runs; it is built at the first use, for some ten minutes."""
    pod_groups: bool = False
    """Whether the API server has PodGroups and the scheduler binds their pods together: alphas of Kubernetes 1.36."""

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return checked_name("lab", name)

    @model_validator(mode="after")
    def _whole(self) -> LabSpec:
        _check_names(self)
        _check_links(self)
        return self

    @property
    def num_nodes(self) -> int:
        """Real nodes."""
        return sum(len(region.nodes) for region in self.regions)

    def nodes(self) -> Iterator[tuple[int, RegionSpec, NodeSpec]]:
        """(index, region, node) of every real node; the index is unique in the lab and decides its addresses."""
        every = ((region, node) for region in self.regions for node in region.nodes)
        return ((i, region, node) for i, (region, node) in enumerate(every))

    def link(self, source: str, target: str) -> LinkSpec:
        """The directed link; ValueError names the pair and the regions there are."""
        for link in self.links:
            if (link.source, link.target) == (source, target):
                return link
        regions = ", ".join(region.name for region in self.regions)
        raise ValueError(f"no link {source}->{target}: the regions are {regions}")

    def rtt_ms(self, source: str, target: str) -> float:
        """Both one-way delays."""
        return self.link(source, target).delay_ms + self.link(target, source).delay_ms


def _check_names(spec: LabSpec) -> None:
    if not spec.num_nodes and not spec.kwok.nodes:
        raise ValueError("a lab needs a region with nodes or kwok nodes, got 0 and 0")
    if spec.num_nodes > MAX_NODES:
        raise ValueError(f"{spec.num_nodes} real nodes, at most {MAX_NODES}: use kwok nodes for more")
    for kind, names in (
        ("region", [region.name for region in spec.regions]),
        ("node", [node.name for _, _, node in spec.nodes()]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{kind} names must be unique, used more than once: {', '.join(twice)}")
        for name in names:
            checked_name(kind, name)


def _check_links(spec: LabSpec) -> None:
    wanted = set(itertools.permutations((region.name for region in spec.regions), 2))
    given = [(link.source, link.target) for link in spec.links]
    missing = sorted(wanted - set(given))
    unknown = sorted(set(given) - wanted)
    if missing or unknown or len(given) != len(wanted):
        raise ValueError(
            f"{len(spec.regions)} regions need {len(wanted)} directed links, got {len(given)}"
            + "".join(f"; missing {a}->{b}" for a, b in missing)
            + "".join(f"; {a}->{b} is not a pair of two regions" for a, b in unknown)
            + "".join(f"; {a}->{b} given twice" for a, b in sorted({p for p in given if given.count(p) > 1}))
        )
    for a, b in wanted:
        there, back = spec.link(a, b).rtt_ms, spec.link(b, a).rtt_ms
        if there is not None and back is not None and there != back:
            raise ValueError(
                f"rttMs of {a}->{b} is {there:g} but of {b}->{a} {back:g}: a round trip is one number, "
                "give oneWayMs where the directions differ"
            )


def load(path: Path, name: str | None = None) -> LabSpec:
    """Read a lab file; `name` replaces the one in it. ValueError (pydantic's) says what is wrong and where."""
    data = yaml.safe_load(path.read_text()) or {}
    if not isinstance(data, dict):
        raise ValueError(f"{path}: a lab file is a mapping, got {type(data).__name__}")
    if name is not None:
        data["name"] = name
    return LabSpec.model_validate(data)


def dump(spec: LabSpec) -> str:
    """The YAML that `load` reads back to an equal value."""
    data = spec.model_dump(by_alias=True, exclude_none=True, mode="json")
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=120)
