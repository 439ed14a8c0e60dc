"""Reads the keys of a Hugging Face `config.json`, which families spell differently, and names those that are wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MAX_SIZE = 2**24
MAX_LAYERS = 1024
"""Far above any model: more is a mistake, and every layer costs the planner time."""

FUNCTION_VALUES = {"relu": 0, "gelu_new": 4}
"""Values that transformers' activation functions keep beside their output: most are one kernel, which keeps its input.
ReLU's gradient needs its output alone. The tanh form that `gelu_new` names is many operations: input, half of it, the
tangent, and that plus one."""


class Keys:
    """The keys of one config. What is wrong raises a ValueError that names the key and what it holds.

    A key that is null counts as absent, as transformers has it.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    def has(self, *names: str) -> bool:
        """Whether one of the names is there."""
        return any(self._config.get(name) is not None for name in names)

    def matching(self, pattern: str) -> list[str]:
        """The names with the pattern in them."""
        return [name for name in map(str, self._config) if re.search(pattern, name)]

    def value(self, name: str) -> Any:
        """Whatever is under the name."""
        return self._config[name]

    def values(self) -> Mapping[str, Any]:
        """All of them, as they are."""
        return self._config

    def is_number(self, name: str) -> bool:
        """Whether a number or a list is under the name, and neither a text nor true or false."""
        value = self._config[name]
        return isinstance(value, int | float | list) and type(value) is not bool

    def inner(self, name: str) -> Keys:
        """The keys of a config within this one."""
        value = self._config[name]
        if not isinstance(value, Mapping):
            raise _wrong(name, value, "must be a map of keys")
        return Keys(value)

    def size(self, *names: str, default: int | None = None, least: int = 1, most: int = MAX_SIZE) -> int:
        """A whole number under one of the names; where several of them are there they must agree."""
        found = {name: self._config[name] for name in names if self.has(name)}
        for name, value in found.items():
            if type(value) is not int or not least <= value <= most:
                raise _wrong(name, value, f"must be a whole number from {least} to {most}")
        if len(set(found.values())) > 1:
            raise ValueError(f"config.json: {' and '.join(f'{name} {value}' for name, value in found.items())} differ")
        if found:
            return int(next(iter(found.values())))
        if default is None:
            raise ValueError(f"config.json has none of {', '.join(names)}")
        return default

    def layers(self, *names: str, default: int | None = None) -> int:
        """A number of layers."""
        return self.size(*names, default=default, most=MAX_LAYERS)

    def heads(self, *names: str, hidden: int) -> tuple[int, int]:
        """The number of heads, and the width of each: `head_dim`, or the model's width divided."""
        heads = self.size(*names)
        if not self.has("head_dim") and hidden % heads:
            raise ValueError(f"config.json: hidden {hidden} is no multiple of {heads} heads")
        return heads, self.size("head_dim", default=hidden // heads)

    def key_value_heads(self, heads: int, default: int) -> int:
        """Of grouped queries."""
        found = self.size("num_key_value_heads", default=default)
        if heads % found:
            raise ValueError(f"config.json: {heads} heads are no multiple of num_key_value_heads {found}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """true or false."""
        value = self._config.get(name)
        if value is not None and not isinstance(value, bool):
            raise _wrong(name, value, "must be true or false")
        return default if value is None else value

    def text(self, *names: str, default: str = "") -> str:
        """The text under the first of the names that is there."""
        name = next(filter(self.has, names), names[0])
        value = self._config.get(name)
        if value is not None and not isinstance(value, str):
            raise _wrong(name, value, "must be a text")
        return default if value is None else value

    def numbers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers, empty where it is absent."""
        value = self._config.get(name) or []
        if not isinstance(value, list) or any(type(entry) is not int for entry in value):
            raise _wrong(name, value, "must be a list of whole numbers")
        return tuple(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, empty where it is absent."""
        value = self._config.get(name) or []
        if not isinstance(value, list) or any(not isinstance(entry, str) for entry in value):
            raise _wrong(name, value, "must be a list of texts")
        return tuple(value)

    def model_class(self) -> str:
        """The first of `architectures`, "" where there is none."""
        value = self._config.get("architectures") or [""]
        if not isinstance(value, list) or not isinstance(value[0], str):
            raise _wrong("architectures", value, "must be a list of texts")
        return value[0]

    def refuse(self, name: str, why: str) -> None:
        """ValueError where the key is there and neither null nor false nor empty."""
        if self._config.get(name):
            raise _wrong(name, self._config[name], why)

    def sequence_length(self, positions: int) -> int:
        """Tokens of a training sequence: Hulk's own key `sequence_length`, else as many as there are positions."""
        length = self.size("sequence_length", default=positions)
        if length > positions:
            raise ValueError(
                f"config.json: sequence_length {length} is more than {positions} positions: give a smaller "
                "model.sequenceLength, or a config with more positions"
            )
        return length

    def keeps_scores(self) -> bool:
        """Whether the whole square of attention scores is kept: without a fused kernel, which knows no soft cap."""
        implementation = self.text("attn_implementation", "_attn_implementation")
        return implementation == "eager" or self.has("attn_logit_softcapping")

    def function_values(self, *names: str, default: str = "gelu") -> int:
        """What the activation function under one of the names keeps beside its output."""
        return FUNCTION_VALUES.get(self.text(*names, default=default), 1)


def _wrong(name: str, value: object, why: str) -> ValueError:
    text = f"of {len(hex(value)) - 2} hex digits" if isinstance(value, int) and abs(value) > 1 << 64 else repr(value)
    return ValueError(f"config.json: {name} {text[:60]}: {why}")
