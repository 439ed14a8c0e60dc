"""The newest state that is complete in any of the job's stores -> this rank's part of it, from the nearest that has it.

The ranks agree: each store is looked through by one rank, all learn what it found and choose the same state, and where
one of them cannot read its part, all go on with the next older one.
"""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from hulk_runtime.checkpoints.object_store import Store
from hulk_runtime.checkpoints.sharded import Manifest, ShardedCheckpoints
from hulk_runtime.errors import CheckpointError, ConfigurationError, FencedError
from hulk_runtime.sharded_checkpoints import safe_pickle
from hulk_runtime.sharded_checkpoints.storage import Reader


@dataclass(frozen=True, slots=True)
class Listing:
    """What one store has, as the rank that looked found it. `fault`: why it may have more."""

    url: str
    manifests: tuple[Manifest, ...] = ()
    fault: str = ""
    fenced: str = ""
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A state, and where its copies are, by the stores' URLs."""

    age: tuple[int, int]
    copies: list[tuple[str, Manifest]] = field(default_factory=list)


def listing(checkpoints: ShardedCheckpoints) -> Listing:
    """Begin in one store."""
    url = checkpoints.store.url
    try:
        return Listing(url, tuple(checkpoints.begin()), "; ".join(checkpoints.faults))
    except FencedError as error:
        return Listing(url, fenced=str(error))
    except CheckpointError as error:
        return Listing(url, fault=str(error))


def candidates(listings: Sequence[Listing]) -> list[Candidate]:
    """The states that are there, newest first."""
    found: dict[tuple[int, int], Candidate] = {}
    for each in listings:
        for manifest in each.manifests:
            found.setdefault(manifest.age, Candidate(manifest.age)).copies.append((each.url, manifest))
    return [found[age] for age in sorted(found, reverse=True)]


def by_distance(candidate: Candidate, stores: Sequence[str], replica: int | None) -> list[tuple[str, Manifest]]:
    """The copies in the order in which a rank reads them. `stores`: its nearest first.

    `replica`: of those that train apart, each of which has a copy of its own: first that one.
    """

    def distance(found: tuple[str, Manifest]) -> tuple[bool, int, int]:
        url, manifest = found
        is_others = replica is not None and manifest.copy != replica % manifest.num_copies
        return is_others, stores.index(url), manifest.copy

    return sorted(candidate.copies, key=distance)


def replaced(manifest: Manifest, replica: int | None) -> tuple[int, int] | None:
    """Of a replica that begins with another one's copy: its own number, and the other's."""
    return None if replica is None or replica == manifest.copy else (replica, manifest.copy)


def load(
    to_fill: Callable[[Collection[str]], dict[str, Any]],
    manifest: Manifest,
    at: ShardedCheckpoints,
    store: Callable[[str], Store],
) -> dict[str, Any]:
    """Read this rank's part. `to_fill`: what is read into, by the names that there are; `store`: one by its URL.

    Raises CheckpointError where it is damaged, ConfigurationError where it is of another model, or lacks
    the state of one of a script's other objects.
    """
    metadata = safe_pickle.metadata(at.metadata(manifest))
    state = to_fill(metadata.state_dict_metadata)
    reader = Reader(metadata, partial(_folder, manifest, at, store))
    planner = _Planner()
    planner.set_up_planner(state, metadata, is_coordinator=True)
    try:
        plan = planner.create_local_plan()
    except (KeyError, RuntimeError, ValueError) as error:  # a name, or a shape
        raise ConfigurationError(f"another model or optimizer: {error}") from error
    _require_same_types(planner.state_dict, metadata)
    (whole,) = planner.create_global_plan([plan])
    reader.read_data(planner.finish_plan(whole), planner)
    return state


def _require_same_types(state: Mapping[str, Any], metadata: Metadata) -> None:
    """Torch would round what is read into a narrower type. Raises ConfigurationError."""
    for name, value in state.items():
        held = metadata.state_dict_metadata.get(name)
        if not isinstance(value, torch.Tensor) or not isinstance(held, TensorStorageMetadata):
            continue
        if held.properties.dtype != value.dtype:
            raise ConfigurationError(f"{name} is {value.dtype} here and {held.properties.dtype} there")


class _Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Torch's own runs what the bytes name."""
        name = read_item.dest_index.fqn
        found = safe_pickle.unpacked(name, value.getvalue())
        set_element(self.original_state_dict, self.mappings[name], found)


def _folder(manifest: Manifest, at: ShardedCheckpoints, store: Callable[[str], Store], file: str) -> Store:
    url = dict(manifest.files).get(file)
    return (at.store if url is None else store(url)).folder(manifest.name)
