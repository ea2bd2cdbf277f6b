"""The rows of a comparison's table: which methods, with which settings of theirs and which changes of the recipe.

A row is written `er`, `er:view=background`, `em:cosine=false:dynamic_sampling=false` or, with a key of the recipe,
`er:memory.policy=class_balanced`. Three words stand for more: `all` methods, the five rows of the `ablation` of em, and
`joint`, the bound. Nothing here imports PyTorch: what is known of a method comes as `Facts`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from segstream.schema import convert, nearest, parse

__all__ = ["JOINT", "Facts", "Row", "Spec", "expand", "parse_rows", "parse_seeds", "split_list"]

ALL, ABLATION, JOINT, EM = "all", "ablation", "joint", "em"
SWITCHES = ("class_balanced", "relabelling", "cosine", "dynamic_sampling")  # in the order in which the rows add them
BOTH_VIEWS = ("ignore", "background")
ROLES = ("headline", "bound", "variant", "other view")  # of two equal rows the one whose role stands first is kept


@dataclass(frozen=True)
class Spec:
    """A row as it was written: a method, settings of it as texts, and `key=value` texts for the recipe.

    word   the word that stood for it, where it was not written out

    >>> Spec("er", {"view": "background"}, ("memory.capacity=20",)).method
    'er'
    """

    method: str
    settings: Mapping[str, str] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    word: str = ""

    @property
    def text(self) -> str:
        """The row, in one spelling for all orders of its parts."""
        return ":".join([self.method, *sorted(f"{k}={v}" for k, v in self.settings.items()), *sorted(self.overrides)])


@dataclass(frozen=True)
class Facts:
    """What rows need to know of a method.

    kinds     the type of each setting;  defaults: its value where nobody says anything
    memory    whether it keeps exemplars;  tunable: values of settings that are worth a search

    >>> Facts("er", kinds={}, defaults={"view": "ignore"}, views=("ignore", "background")).both_views
    True
    """

    name: str
    kinds: Mapping[str, Any]
    defaults: Mapping[str, Any]
    views: tuple[str, ...] = ()
    memory: bool = True
    tunable: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def both_views(self) -> bool:
        """Whether it has the two plain views of unlabelled pixels, and no other: then a comparison shows both."""
        return set(self.views) == set(BOTH_VIEWS)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    settings   what is put over the recipe's settings of the method;  overrides: changes of the recipe, `key=value`
    role       headline; "other view" of unlabelled pixels; variant: spelled by the user; bound
    seeds      how many runs

    >>> Row("er", label="er view=background", settings={"view": "background"}, role="other view").given
    {'view': 'background'}
    """

    method: str
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    role: str = "headline"
    seeds: int = 1

    @property
    def given(self) -> dict[str, Any]:
        """Settings and dotted keys of the recipe in one."""
        pairs = (text.partition("=") for text in self.overrides)
        return dict(self.settings) | {key.strip(): value.strip() for key, _, value in pairs}

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "label": self.label,
            "given": self.given,
            "role": self.role,
            "seeds": self.seeds,
        }


# ---- as it is written


def split_list(text: str) -> list[str]:
    """Parts between commas, but for commas inside brackets or quotes.

    >>> split_list("er:augment.scale=[0.5, 2.0], em")
    ['er:augment.scale=[0.5, 2.0]', 'em']
    """
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        else:
            depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def parse_rows(text: str, methods: Sequence[str]) -> tuple[Spec, ...]:
    """What `--methods` says; `methods` are those that there are.

    >>> [spec.text for spec in parse_rows("er:view=background,joint", ["em", "er"])]
    ['er:view=background', 'joint']
    >>> parse_rows("emm", ["em", "er"])
    Traceback (most recent call last):
    ValueError: --methods names 'emm'. Did you mean 'em'?
    """
    found: list[Spec] = []
    for part in split_list(text):
        if not part:
            raise ValueError(f"--methods {text!r} has an empty part; write names separated by single commas.")
        found += _specs(part, methods, "--methods")
    return tuple(found)


def _specs(text: str, methods: Sequence[str], option: str) -> list[Spec]:
    name, *parts = re.split(r":(?=[A-Za-z_][\w.]*\s*=)", text)
    name = name.strip()
    if name == ALL and not parts:
        return [Spec(method, word=ALL) for method in methods]
    if name == ABLATION and not parts and EM in methods:
        off = [SWITCHES[n:] for n in range(len(SWITCHES))]
        return [*(Spec(EM, dict.fromkeys(switches, "false"), word=ABLATION) for switches in off), Spec(EM)]
    if name in (ALL, ABLATION) and parts:
        raise ValueError(f"{option} {text!r}: {name!r} stands for several rows; write settings behind single methods.")
    if ":" in name:
        raise ValueError(f"{option} {text!r}: expected method:setting=value, such as er:view=background.")
    if name not in methods and name != JOINT:
        raise ValueError(f"{option} names {name!r}.{nearest(name, [*methods, ALL, ABLATION, JOINT])}")
    settings: dict[str, str] = {}
    overrides: list[str] = []
    for part in parts:
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in settings or any(o.startswith(f"{key}=") for o in overrides):
            raise ValueError(f"{option} {text!r} sets {key!r} twice.")
        if key.startswith("methods."):
            setting = key.rpartition(".")[2]
            raise ValueError(f"{option} {text!r}: write {setting}={value} behind the method, without {key!r}.")
        if "." in key:
            overrides.append(f"{key}={value}")
        else:
            settings[key] = value
    if name == JOINT and settings:
        raise ValueError(f"{option} {text!r}: joint is no method and has no settings; keys of the recipe have a dot.")
    return [Spec(name, settings, tuple(overrides))]


def parse_seeds(text: str | None, methods: Sequence[str]) -> dict[str, int]:
    """`--method-seeds er=2,em:cosine=false=1`: by row as written, or by method.

    >>> parse_seeds("er=2,lwf=1", ["er", "lwf"])
    {'er': 2, 'lwf': 1}
    """
    found: dict[str, int] = {}
    for part in split_list(text) if text else []:
        row, _, number = part.rpartition("=")
        if not row or not number.strip().isdigit() or int(number) < 1:
            raise ValueError(f"--method-seeds {text!r}: expected name=number, such as er=2,lwf=2.")
        for spec in _specs(row.strip(), methods, "--method-seeds"):
            if spec.word != ABLATION and row.strip() == ABLATION:
                continue  # em itself keeps its own number
            found[spec.text] = int(number)
    return found


# ---- as it is run


def expand(
    specs: Sequence[Spec],
    facts: Mapping[str, Facts],
    *,
    recipe: Mapping[str, Mapping[str, Any]] | None = None,
    chosen: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int = 1,
    method_seeds: Mapping[str, int] | None = None,
    other_view_seeds: int = 1,
) -> list[Row]:
    """The rows of one recipe's table.

    recipe   its settings of methods;  chosen: those that tuning found, or a file names; they go over the recipe's

    >>> er = Facts("er", kinds={"view": str}, defaults={"view": "ignore"}, views=("ignore", "background"))
    >>> [(row.label, row.role, row.seeds) for row in expand([Spec("er")], {"er": er}, seeds=3)]
    [('er', 'headline', 3), ('er view=background', 'other view', 1)]
    """
    chosen = chosen or {}
    below = {name: {**(recipe or {}).get(name, {}), **chosen.get(name, {})} for name in facts}
    found: dict[str, Row] = {}
    for spec in specs:
        wanted = _count(spec, seeds, method_seeds or {})
        for row in _of(spec, facts, below, chosen.get(spec.method, {})):
            row = replace(row, seeds=min(other_view_seeds, wanted) if row.role == "other view" else wanted)
            known = {} if row.method == JOINT else {**facts[row.method].defaults, **below[row.method], **row.settings}
            identity = json.dumps([row.method, known, sorted(row.overrides)], sort_keys=True)
            found[identity] = _one_of(found[identity], row) if identity in found else row
    return [row for row in found.values() if row.seeds]


def _of(
    spec: Spec, facts: Mapping[str, Facts], below: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, Any]
) -> list[Row]:
    """The row itself and, where its method has two views and none was written, the same in the other view."""
    if spec.method == JOINT:
        return [Row(JOINT, _label(JOINT, {}, spec.overrides), overrides=spec.overrides, role="bound")]
    fact = facts[spec.method]
    written = _typed(spec, fact)
    settings = {**chosen, **written}
    if _sees_plainly(spec.method, {**fact.defaults, **below[spec.method], **written}):
        # As er does, and in the view that was chosen for er.
        settings |= {"view": "background"} if below.get("er", {}).get("view") == "background" else {}
    label = _label(spec.method, written, spec.overrides)
    role = "variant" if written or spec.overrides else "headline"
    rows = [Row(spec.method, label, settings, spec.overrides, role)]
    if role == "headline" and fact.both_views:
        view = below[spec.method].get("view", fact.defaults["view"])
        (other,) = (v for v in fact.views if v != view)
        told = _label(spec.method, {"view": other}, ())
        rows.append(Row(spec.method, told, {**settings, "view": other}, (), "other view"))
    return rows


def _typed(spec: Spec, fact: Facts) -> dict[str, Any]:
    """The settings with their types, in the method's own order."""
    for key in spec.settings:
        if key not in fact.kinds:
            raise ValueError(f"The method {spec.method!r} has no setting {key!r}.{nearest(key, fact.kinds)}")
    source = f"--methods {spec.text}"
    return {
        key: convert(parse(spec.settings[key], kind), kind, key=key, source=source)
        for key, kind in fact.kinds.items()
        if key in spec.settings
    }


def _sees_plainly(method: str, settings: Mapping[str, Any]) -> bool:
    """Whether this is em without relabelling, where nobody says how it sees pixels without a label."""
    return method == EM and not settings.get("relabelling", True) and settings.get("view") == "latent"


def _label(method: str, settings: Mapping[str, Any], overrides: Sequence[str]) -> str:
    return " ".join([method, *(f"{key}={_text(value)}" for key, value in settings.items()), *sorted(overrides)])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _count(spec: Spec, seeds: int, method_seeds: Mapping[str, int]) -> int:
    """A number for this very row, for its method, for the bound, which is one training, or for all."""
    return method_seeds.get(spec.text) or method_seeds.get(spec.method) or (1 if spec.method == JOINT else seeds)


def _one_of(first: Row, second: Row) -> Row:
    """Two rows that compute the same are one."""
    kept = min(first, second, key=lambda row: ROLES.index(row.role))
    return replace(kept, seeds=max(first.seeds, second.seeds))
