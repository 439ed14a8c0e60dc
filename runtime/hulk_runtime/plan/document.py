"""JSON's values -> frozen dataclasses, by their annotations, with the first key that does not fit in the error.

Only the standard library: a plan is also read inside programs whose images hold other versions of any other package,
or none. Keys are the fields' names in camelCase; those that no field has are ignored. What a dataclass requires of its
fields together is in its `__post_init__`, as a ValueError.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sync:
    ...     mode: Literal["ring", "local"]
    ...     inner_steps: Positive = 1
    >>> read(Sync, {"mode": "local", "innerSteps": 8})
    Sync(mode='local', inner_steps=8)
    >>> read(Sync, {"mode": "local", "innerSteps": 0})
    Traceback (most recent call last):
    hulk_runtime.plan.document.DocumentError: innerSteps: must be > 0, not 0
"""

import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")
Reader = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Must:
    """What a field requires of its value."""

    words: str
    holds: Callable[[Any], bool]


Natural = Annotated[int, Must("be >= 0", lambda number: number >= 0)]
Positive = Annotated[int, Must("be > 0", lambda number: number > 0)]
FULL: Final = Must("hold one or more", bool)


class DocumentError(ValueError):
    """What does not fit, and the keys on the way there."""

    def __init__(self, what: str, *keys: str) -> None:
        super().__init__(f"{'.'.join(keys)}: {what}" if keys else what)
        self._what, self._keys = what, keys

    def under(self, key: str) -> "DocumentError":
        """As the document above names it."""
        return DocumentError(self._what, key, *self._keys)


def read(kind: type[Value], content: object) -> Value:
    """An object of a dataclass. Raises DocumentError."""
    reader: Callable[[object], Value] = _reader(kind)  # type: ignore[arg-type]  # a class can be hashed
    return reader(content)


def key_of(name: str) -> str:
    """The key of a field.

    >>> key_of("global_batch")
    'globalBatch'
    """
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


@cache
def _reader(kind: Any) -> Reader:
    """Of values that one annotation describes."""
    origin, inner = get_origin(kind), get_args(kind)
    if is_dataclass(kind):
        return _object(kind)
    if origin is Annotated:
        return _checked(_reader(inner[0]), inner[1:])
    if origin is Literal:
        return _one_of(inner)
    if origin is tuple:
        return _all(_reader(inner[0])) if inner[1:] == (...,) else _each([_reader(part) for part in inner])
    if origin in (Union, UnionType):
        (only,) = (part for part in inner if part is not type(None))
        return _or_null(_reader(only))
    return _SIMPLE[kind]


def _object(kind: Any) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    required = {field.name for field in fields(kind) if field.default is field.default_factory is MISSING}
    readers = [(key_of(field.name), field.name, _reader(hints[field.name])) for field in fields(kind)]

    def read_object(content: Any) -> Any:
        if not isinstance(content, Mapping):
            raise _wrong("be an object", content)
        values = {}
        for key, name, reader in readers:
            if key in content:
                try:
                    values[name] = reader(content[key])
                except DocumentError as error:
                    raise error.under(key) from None
            elif name in required:
                raise DocumentError("is missing", key)
        try:
            return kind(**values)
        except ValueError as error:
            raise DocumentError(str(error)) from error

    return read_object


def _checked(reader: Reader, required: tuple[Must, ...]) -> Reader:
    def read_checked(content: Any) -> Any:
        found = reader(content)
        for must in required:
            if not must.holds(found):
                raise _wrong(must.words, content)
        return found

    return read_checked


def _one_of(allowed: tuple[object, ...]) -> Reader:
    def read_one_of(content: Any) -> Any:
        if type(content) is not str or content not in allowed:
            raise _wrong(f"be {' or '.join(map(repr, allowed))}", content)
        return content

    return read_one_of


def _all(reader: Reader) -> Reader:
    def read_all(content: Any) -> tuple[Any, ...]:
        found = []
        for number, item in enumerate(_listed(content)):
            try:
                found.append(reader(item))
            except DocumentError as error:
                raise error.under(str(number)) from None
        return tuple(found)

    return read_all


def _each(readers: list[Reader]) -> Reader:
    def read_each(content: Any) -> tuple[Any, ...]:
        if len(_listed(content)) != len(readers):
            raise _wrong(f"be a list of {len(readers)}", content)
        return tuple(reader(item) for reader, item in zip(readers, content, strict=True))

    return read_each


def _listed(content: Any) -> Any:
    if not isinstance(content, list | tuple):
        raise _wrong("be a list", content)
    return content


def _or_null(reader: Reader) -> Reader:
    return lambda content: None if content is None else reader(content)


def _is(kind: type, words: str) -> Reader:
    def read_simple(content: Any) -> Any:
        if type(content) is not kind:  # JSON's true would pass for 1
            raise _wrong(words, content)
        return content

    return read_simple


def _number(content: Any) -> float:
    try:
        found = float(content) if type(content) in (int, float) else math.nan
    except OverflowError:
        found = math.nan
    if not math.isfinite(found):
        raise _wrong("be a number", content)
    return found


def _wrong(words: str, content: object) -> DocumentError:
    return DocumentError(f"must {words}, not {reprlib.repr(content)}")


_SIMPLE: Final[Mapping[Any, Reader]] = {
    int: _is(int, "be a whole number"),
    str: _is(str, "be text"),
    bool: _is(bool, "be true or false"),
    float: _number,
}
