"""A model as a list of layers -> the stages of a plan: their layers, what of them is one, and names to save by."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from hulk_runtime.errors import ConfigurationError
from hulk_runtime.pipeline.shared_parameters import Tie
from hulk_runtime.plan.wire import Stages

Place = tuple[int, str]
"""A layer and the name of a parameter in it."""


@dataclass(frozen=True, slots=True)
class LayeredModel:
    """A model as a list of layers whose parameters are those of `module`.

    `ties` are pairs that are one parameter though the list has two: one of each such class is the module's. What is
    one object in several layers needs no pair.
    """

    module: nn.Module
    layers: Sequence[nn.Module]
    ties: Sequence[tuple[Place, Place]] = ()


@dataclass(frozen=True, slots=True)
class Own:
    """Names and sizes of the parameters of every stage, in the order of its module, and of the whole model's.

    `in_stages`: the names of the stages' modules, `<layer>.<name>`, in the same order.
    """

    of_stages: tuple[tuple[tuple[str, int], ...], ...]
    of_model: tuple[tuple[str, int], ...]
    in_stages: tuple[tuple[str, ...], ...]


def ranges_of(told: Stages, num_layers: int) -> dict[str, range]:
    """The layers of each stage by its name. Raises ConfigurationError."""
    if told.stages[-1] >= num_layers:
        raise ConfigurationError(
            f"the plan's last stage begins at layer {told.stages[-1]}, the program's model has {num_layers} layers"
        )
    edges = [*told.stages, num_layers]
    return {str(n): range(*edges[n : n + 2]) for n in range(len(told.stages))}


def ties_of(whole: LayeredModel, ranges: Mapping[str, range]) -> list[Tie]:
    """What more than one stage has, or one stage twice, each with all its places: `<layer>.<name>` within a stage."""
    ties = []
    for places in _classes(whole):
        found: dict[tuple[str, int], str] = {}
        for layer, name, parameter in places:
            (stage,) = (stage for stage, numbers in ranges.items() if layer in numbers)
            found.setdefault((stage, id(parameter)), f"{layer}.{name}")  # a module names one object once
        if len(found) > 1:
            ties.append(Tie(tuple((stage, name) for (stage, _), name in found.items())))
    return ties


def own_of(whole: LayeredModel, ranges: Mapping[str, range]) -> Own:
    """Names as the module has them, also of what is tied. Raises ConfigurationError where one has none."""
    known = {id(parameter): name for name, parameter in whole.module.named_parameters()}
    names: dict[int, str] = {}
    for places in _classes(whole):
        own = next((known[id(parameter)] for *_, parameter in places if id(parameter) in known), None)
        if own is None:
            layer, name, _ = places[0]
            raise ConfigurationError(f"parameter {name} of layer {layer} is neither the module's nor tied to one of it")
        names.update({id(parameter): own for *_, parameter in places})
    stages, inside = [], []
    for stage, numbers in ranges.items():
        found = dict(nn.ModuleDict({str(n): whole.layers[n] for n in numbers}).named_parameters())
        if not found:
            raise ConfigurationError(f"stage {stage}, layers {numbers.start}-{numbers.stop - 1}, has no parameters")
        stages.append(tuple((names[id(parameter)], parameter.numel()) for parameter in found.values()))
        inside.append(tuple(found))
    of_model = tuple((name, parameter.numel()) for name, parameter in whole.module.named_parameters())
    return Own(tuple(stages), of_model, tuple(inside))


def _classes(whole: LayeredModel) -> list[list[tuple[int, str, nn.Parameter]]]:
    """Places of parameters that are one, all of them, in the order of the layers."""
    places = list(_places(whole))
    numbers = {(layer, name): number for number, (layer, name, _) in enumerate(places)}
    strange = [place for tie in whole.ties for place in tie if place not in numbers]
    if strange:
        layer, name = strange[0]
        raise ConfigurationError(f"layer {layer} has no parameter {name}, which is said to be tied")
    first = {id(parameter): number for number, (*_, parameter) in reversed(list(enumerate(places)))}
    class_of = [first[id(parameter)] for *_, parameter in places]
    for one, other in whole.ties:
        joined = class_of[numbers[one]], class_of[numbers[other]]
        class_of = [min(joined) if c in joined else c for c in class_of]
    found: dict[int, list[tuple[int, str, nn.Parameter]]] = {}
    for c, place in zip(class_of, places, strict=True):
        found.setdefault(c, []).append(place)
    return list(found.values())


def _places(whole: LayeredModel) -> Iterator[tuple[int, str, nn.Parameter]]:
    for number, layer in enumerate(whole.layers):
        for name, parameter in layer.named_parameters(remove_duplicate=False):
            yield number, name, parameter
