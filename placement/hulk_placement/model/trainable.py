"""Which of a model's parameters are trained: all, a share of them as with LoRA, or those that patterns name.

What is frozen has no gradient, no optimizer state and no all-reduce, and its values are as wide as the precision of
compute (torch.autocast keeps four bytes of those that are trained). Gradients still pass through it to what is trained
before it; what comes before the first trained parameter keeps nothing for a backward pass and has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import accumulate

from hulk_placement.model.layer import NOTHING_FROZEN, Frozen, Layer


@dataclass(frozen=True, slots=True)
class Trainable:
    """A `share` of every parameter, or whole parameters by `patterns` of their names; of both, patterns decide."""

    share: float = 1.0
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"trainable: share {self.share} must be above 0 and at most 1")

    @property
    def is_all(self) -> bool:
        """Whether nothing is frozen."""
        return self.share == 1 and not self.patterns

    def share_of(self, name: str) -> float:
        """The trained share of the parameter of this name in the state dict.

        A pattern means a parameter when it matches its name or that of a module that it is in; `*` goes over dots.

        >>> only = Trainable(patterns=("*.q_proj.weight", "lm_head"))
        >>> [only.share_of(name) for name in ("layers.0.q_proj.weight", "layers.0.o_proj.weight", "lm_head.weight")]
        [1.0, 0.0, 1.0]
        """
        if not self.patterns:
            return self.share
        return float(any(self._means(pattern, name) for pattern in self.patterns))

    @staticmethod
    def _means(pattern: str, name: str) -> bool:
        return any(fnmatchcase(module, pattern) for module in accumulate(name.split("."), "{}.{}".format))

    def require_meant(self, names: Sequence[str]) -> None:
        """ValueError where a pattern means none of the parameters."""
        for pattern in self.patterns:
            if not any(self._means(pattern, name) for name in names):
                listed = ", ".join(names if len(names) <= 4 else [*names[:2], "...", *names[-2:]])
                raise ValueError(
                    f"trainable: {pattern!r} means none of the parameters that are counted ({listed}); adapters such "
                    "as LoRA's, which a model's description has not, are given as a share"
                )


def without_idle_backward(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """The layers, those before the first trained one without backward passes and what is kept for them."""
    found = list(layers)
    first = next((n for n, layer in enumerate(found) if layer.trained_parameters + layer.trained_tied_parameters), 0)
    idle = (
        replace(layer, backward_flops=0.0, activation_bytes=0, replicated_activation_bytes=0) for layer in found[:first]
    )
    return (*idle, *found[first:])


def partly_frozen(layers: Sequence[Layer], trainable: Trainable, value_bytes: int) -> tuple[Layer, ...]:
    """Layers of which no more than their names is known, such as those of a profile.

    Half of a backward pass is the products that gradients of weights come from.
    """
    if trainable.is_all:
        return tuple(layers)
    names = [f"{layer.name}.weight" for layer in layers]
    trainable.require_meant(names)
    shares = [trainable.share_of(name) for name in names]
    frozen = []
    for layer, share in zip(layers, shares, strict=True):
        tied_share = shares[layer.tied_to] if layer.tied_to is not None else 1.0
        found = frozen_of(layer.num_parameters, share, layer.tied_parameters, tied_share, value_bytes)
        frozen.append(replace(layer, frozen=found, backward_flops=layer.backward_flops * (1 + share) / 2))
    return without_idle_backward(frozen)


def frozen_of(num: int, share: float, num_tied: int, tied_share: float, value_bytes: int) -> Frozen:
    """What is frozen of so many parameters, and of those that the layer shares with an earlier one."""
    frozen = Frozen(num - round(num * share), num_tied - round(num_tied * tied_share), value_bytes)
    return frozen if frozen.num_parameters or frozen.tied_parameters else NOTHING_FROZEN
