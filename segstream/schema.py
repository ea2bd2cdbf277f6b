"""Dataclasses as schemas: plain data (TOML, `--set key=value`) in, checked objects out, sentences where it is wrong."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args, get_origin

__all__ = ["build", "convert", "limited", "nearest", "parse", "to_plain", "to_toml"]

T = TypeVar("T")


def limited(default: T, *, low: float | None = None, above: float | None = None, choices: Sequence[T] = ()) -> T:
    """The default of a dataclass field together with what its values are limited to.

    >>> @dataclasses.dataclass
    ... class Training:
    ...     epochs: int = limited(60, low=0)
    >>> build(Training, {"epochs": -1}, source="my.toml")
    Traceback (most recent call last):
    ValueError: epochs in my.toml must be at least 0, not -1.
    """
    field: T = dataclasses.field(default=default, metadata={"low": low, "above": above, "choices": tuple(choices)})
    return field


def nearest(name: str, choices: Iterable[str], *, section: str = "") -> str:
    """A hint for a misspelt name, or the choices, which stand in `section`.

    >>> nearest("epoch", ["epochs", "batch"]), nearest("x", ["epochs", "batch"], section="base")
    (" Did you mean 'epochs'?", ' Known: base.batch, base.epochs.')
    """
    choices = sorted(choices)
    near = difflib.get_close_matches(name, choices, n=1)
    known = ", ".join(_join(section, choice) for choice in choices)
    return f" Did you mean {_join(section, near[0])!r}?" if near else f" Known: {known or 'none'}."


def build(cls: type[T], data: Mapping[str, Any], *, key: str = "", source: str) -> T:
    """An object of the dataclass `cls` from plain data; `key` is where in `source` the data stand.

    >>> @dataclasses.dataclass
    ... class Training:
    ...     epochs: int = 60
    >>> build(Training, {"epoch": 1}, key="base", source="my.toml")
    Traceback (most recent call last):
    ValueError: Unknown key 'base.epoch' in my.toml. Did you mean 'base.epochs'?
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"{key} in {source} must be a section with keys of its own, not {data!r}.")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    for name in data:
        if name not in fields:
            raise ValueError(f"Unknown key {_join(key, name)!r} in {source}.{nearest(name, fields, section=key)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in data:
            raise ValueError(f"{source} lacks {_join(key, name)}, which has no default.")
    values = {n: convert(v, hints[n], key=_join(key, n), source=source) for n, v in data.items()}
    for name, value in values.items():
        _check_limits(value, fields[name].metadata, key=_join(key, name), source=source)
    try:
        return cls(**values)
    except ValueError as error:  # what concerns several fields is checked by the class, which knows no files
        raise ValueError(f"{source}: {error}") from None


def convert(value: Any, kind: Any, *, key: str, source: str) -> Any:
    """`value` as the annotated type `kind`; lists become tuples and whole numbers floats, nothing else is changed.

    >>> convert([1, 2], tuple[float, float], key="augment.scale", source="my.toml")
    (1.0, 2.0)
    >>> convert("many", int, key="base.epochs", source="my.toml")
    Traceback (most recent call last):
    ValueError: base.epochs in my.toml must be a whole number, not 'many'.
    """
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type[Any], kind), value, key=key, source=source)
    if kind is Any or _is_mapping(kind):
        return _plain(value, key=key, source=source)
    found = _match(value, kind)
    if found is _NO:
        raise ValueError(f"{key} in {source} must be {_words(kind)}, not {value!r}.")
    return found


def parse(text: str, kind: Any) -> Any:
    """What a person meant by `text` on a command line: a TOML value, or the bare text, or a list with commas.

    >>> parse("1e-2", float), parse("16", str), parse("a,b", tuple[str, ...]), parse("em", Any), parse("on", bool)
    (0.01, '16', ['a', 'b'], 'em', 'on')
    """
    value = _literal(text)
    if _match(value, kind) is not _NO and kind is not Any:
        return value
    for option in get_args(kind) if _is_union(kind) else (kind,):
        if option is str:
            return text
        if option is types.NoneType and text.lower() == "none":
            return None
        if option is bool and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if get_origin(option) is tuple and get_origin(get_args(option)[0]) is None and not text.startswith("["):
            parts = [parse(part.strip(), get_args(option)[0]) for part in text.split(",")] if text.strip() else []
            if _match(parts, option) is not _NO:
                return parts
    return value


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and mappings as dictionaries and lists, nothing shared.

    >>> to_plain({"a": (1, 2)})
    {'a': [1, 2]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {k: to_plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(v) for v in value]
    return value


def to_toml(data: Mapping[str, Any]) -> str:
    """TOML text of plain data: values first, then sections.

    >>> print(to_toml({"title": "a", "base": {"lr": 0.01, "on": True}}), end="")
    title = "a"
    <BLANKLINE>
    [base]
    lr = 0.01
    on = true
    """
    lines: list[str] = []
    _write_section(data, (), lines)
    return "\n".join(lines).lstrip("\n") + "\n"


_NO = object()
_WORDS = {int: ("a whole number", "whole numbers"), float: ("a number", "numbers"), str: ("a text", "texts")}


def _join(key: str, name: str) -> str:
    return f"{key}.{name}" if key else name


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (types.UnionType, typing.Union)


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind) or kind
    return isinstance(origin, type) and issubclass(origin, Mapping)


def _match(value: Any, kind: Any) -> Any:
    """`value` as a `kind`, or _NO."""
    if kind is Any:
        return value
    if _is_union(kind):
        return next((found for k in get_args(kind) if (found := _match(value, k)) is not _NO), _NO)
    if get_origin(kind) is typing.Literal:
        return value if any(type(value) is type(c) and value == c for c in get_args(kind)) else _NO
    if get_origin(kind) is tuple:
        return _match_tuple(value, get_args(kind))
    if kind is float:
        return float(value) if type(value) in (int, float) and _is_finite(value) else _NO
    if kind in (int, str, bool, types.NoneType):
        return value if type(value) is kind else _NO
    raise TypeError(f"{kind!r} is no type that a setting can have.")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        return False


def _match_tuple(value: Any, kinds: tuple[Any, ...]) -> Any:
    if not isinstance(value, list | tuple):
        return _NO
    if kinds[-1] is ...:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        return _NO
    found = tuple(_match(v, k) for v, k in zip(value, kinds, strict=True))
    return _NO if any(f is _NO for f in found) else found


def _words(kind: Any, *, many: bool = False) -> str:
    if _is_union(kind):
        return " or ".join(_words(k, many=many) for k in get_args(kind) if k is not types.NoneType)
    if get_origin(kind) is typing.Literal:
        return " or ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        count = "" if kinds[-1] is ... else f"{len(kinds)} "
        return f"{'lists' if many else 'a list'} of {count}{_words(kinds[0], many=True)}"
    if kind is bool:
        return "true or false"
    return _WORDS[kind][many]


def _check_limits(value: Any, limits: Mapping[str, Any], *, key: str, source: str) -> None:
    low, above, choices = limits.get("low"), limits.get("above"), limits.get("choices")
    for number in value if isinstance(value, tuple) else (value,):
        if low is not None and number < low:
            raise ValueError(f"{key} in {source} must be at least {low}, not {number}.")
        if above is not None and number <= above:
            raise ValueError(f"{key} in {source} must be more than {above}, not {number}.")
    if choices and value not in choices:
        known = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{key} in {source} must be one of {known}, not {value!r}.")


def _plain(value: Any, *, key: str, source: str) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v, key=_join(key, k), source=source) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, key=key, source=source) for v in value]
    if isinstance(value, bool | int | str) or (isinstance(value, float) and _is_finite(value)):
        return value
    raise ValueError(f"{key} in {source} must be a number, a text, true or false, or a list of these, not {value!r}.")


def _literal(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        value = {}
    found = value["value"] if len(value) == 1 else text
    if isinstance(found, datetime.date | datetime.time | dict):
        return text
    if isinstance(found, str) and re.fullmatch(r"[+-]?(\d+\.|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)  # .5 and 5. are numbers to people, though not to TOML
    return found


def _write_section(data: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    values = {k: v for k, v in data.items() if not isinstance(v, Mapping)}
    if path and (values or not data):
        lines += ["", f"[{'.'.join(map(_toml_key, path))}]"]
    lines += [f"{_toml_key(k)} = {_toml_value(v)}" for k, v in values.items()]
    for k, v in data.items():
        if isinstance(v, Mapping):
            _write_section(v, (*path, k), lines)


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml_value(v) for v in value)}]"
    if isinstance(value, int | float):
        return repr(value)
    raise TypeError(f"{value!r} cannot be written as TOML.")
