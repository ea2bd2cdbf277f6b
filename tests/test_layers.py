"""The rules of the house that a machine can check: who imports whom, and what no module does."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement

from segstream import __version__
from segstream.plugins import KINDS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "segstream"

# From the bottom up. A module may import modules of its own line's group (the same word) and of lines above this one.
# Modules that share a line never import each other, unless the line is marked.
TOGETHER = "may import each other"
LAYERS: list[tuple[str, ...]] = [
    ("classes", "types", "atomic", "storage", "schema", "sections", "plugins", "config", "logs", TOGETHER),
    ("functional",),
    ("augment", "collate", "models", "memory", "data"),
    ("joint", "devices", "optimiser", TOGETHER),
    ("method",),
    ("methods", "offline"),
    ("engine", "evaluate", TOGETHER),
    ("checks", "runs", "live", "about", "pictures", "photos"),
    ("online", "lesson", "opening"),
    ("trained",),
    ("experiment", "teach"),
    ("compare", "report", "service"),
    ("demo",),
    ("cli",),
    ("__main__",),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names if name != TOGETHER}

WITHOUT_TORCH = {
    "classes",
    "atomic",
    "storage",
    "schema",
    "sections",
    "plugins",
    "config",
    "logs",
    "runs",
    "live",
    "report",
}
LATE_IMPORTS = {"cli", "plugins", "__init__"}  # whose functions may import; elsewhere just what is optional or slow:
LATE_MODULES = {"segstream.functional.objective_quad"}  # it imports Numba, which serves on first use
# Numba's cache on disk watches the age of one file only: machine code in two would go stale.
LONG = {"objective_machine.py"}
LATE_PACKAGES = {"numba", "llvmlite", "triton", "onnx", "onnxscript", "onnxruntime", "ray", "fastapi", "uvicorn"}


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    late: bool  # inside a function: happens when it is called
    typing: bool  # under `if TYPE_CHECKING`: never happens


@dataclass(frozen=True)
class Module:
    name: str  # dotted, such as segstream.models.head
    path: Path
    text: str
    tree: ast.Module

    @property
    def home(self) -> str:
        """The part of the package that it belongs to; empty for the package's own `__init__`."""
        return [*self.name.split("."), ""][1]

    @property
    def is_init(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def exported(self) -> list[str] | None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["__all__"]:
                return list(ast.literal_eval(node.value))
        return None


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, text, ast.parse(text, filename=str(path)))
    return found


def imports(module: Module) -> Iterator[Import]:
    def visit(node: ast.AST, late: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            checking = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, late, typing) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{module.path}:{child.lineno}: relative imports hide where things live"
                base = child.module or ""
                for alias in child.names:
                    deeper = f"{base}.{alias.name}"
                    yield Import(deeper if deeper in modules() else base, child.lineno, late, typing)
            else:
                yield from visit(child, inside, checking)

    yield from visit(module.tree, False, False)


def own_imports(module: Module) -> Iterator[Import]:
    return (i for i in imports(module) if i.module.split(".")[0] == "segstream")


def complaints(found: list[str]) -> str:
    return "\n" + "\n".join(found)


def test_every_module_has_its_layer() -> None:
    unknown = sorted({m.home for m in modules().values()} - set(LEVEL) - {"", "recipes"})
    assert not unknown, f"give {unknown} a line in LAYERS (and in DESIGN)"


def test_imports_point_down_only() -> None:
    found = []
    for module in modules().values():
        if not module.home or module.home == "recipes":
            continue
        for used in own_imports(module):
            home = [*used.module.split("."), ""][1]
            if not home or home == module.home:
                continue
            above = LEVEL[home] > LEVEL[module.home]
            beside = LEVEL[home] == LEVEL[module.home] and TOGETHER not in LAYERS[LEVEL[home]]
            if above or beside:
                found.append(f"{module.path}:{used.line}: {module.home} imports {home}")
    assert not found, complaints(found)


def test_no_circles() -> None:
    """Within a layer too: what a module imports while it is imported never comes back to it."""
    done: set[str] = set()

    def follow(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"a circle: {' -> '.join((*trail, name))}"
        if name in done or name not in modules():
            return
        for used in own_imports(modules()[name]):
            if not used.late and not used.typing and used.module != "segstream":
                follow(used.module, (*trail, name))
        done.add(name)

    for name in modules():
        follow(name, ())


@pytest.mark.parametrize(
    ("who", "never"),
    [
        ("segstream.methods", "segstream.data"),  # no peeking
        ("segstream.methods", "segstream.methods"),
        ("segstream.memory.policies", "segstream.memory.memory"),
        ("segstream.memory.policies", "segstream.memory.policies"),
        ("segstream.memory.policies", "segstream.models"),
        ("segstream.data.datasets", "segstream.data.stream"),
        ("segstream.models.networks", "segstream.models.segmenter"),
    ],
)
def test_who_never_knows_whom(who: str, never: str) -> None:
    found = []
    for module in modules().values():
        if module.name.startswith(f"{who}."):
            found += [
                f"{module.path}:{used.line}: {module.name} imports {used.module}"
                for used in own_imports(module)
                if f"{used.module}.".startswith(f"{never}.") and used.module not in (who, module.name)
            ]
    assert not found, complaints(found)


def test_no_torch_below() -> None:
    """What reads folders and prints help never waits for torch, nor does anything that it imports."""

    def loads(name: str, seen: set[str]) -> str | None:
        """How importing a module leads to torch."""
        if name in seen:
            return None
        seen.add(name)
        packages = [".".join(name.split(".")[:n]) for n in range(1, name.count(".") + 1)]
        for package in packages:
            if package in modules() and (way := loads(package, seen)):
                return way
        for used in imports(modules()[name]):
            if used.late or used.typing:
                continue
            if used.module.split(".")[0] in (
                "torch",
                "torchvision",
                "timm",
                "lightning_fabric",
                "numba",
                "safetensors",
            ):
                return f"{name} imports {used.module}"
            if used.module in modules() and (way := loads(used.module, seen)):
                return f"{name} -> {way}"
        return None

    names = [m.name for m in modules().values() if m.home in WITHOUT_TORCH or m.name in ("segstream", "segstream.cli")]
    ways = [loads(name, set()) for name in names]
    assert not any(ways), complaints([way for way in ways if way])


def test_help_comes_at_once() -> None:
    """Within a second of computing, the best of some: other programs may be at work on this machine."""
    resource = pytest.importorskip("resource", reason="tells how long a process computed; not on Windows")
    took = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from segstream.cli import main; main()", "--help"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout
        if took[-1] < 1:
            break
    assert min(took) < 1, f"`segstream --help` computed for {min(took):.2f} s"


def test_help_loads_no_torch() -> None:
    code = (
        "import sys\nfrom segstream.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'numba', 'timm', 'matplotlib', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_no_import_hides_in_a_function() -> None:
    found = [
        f"{module.path}:{used.line}: {used.module}"
        for module in modules().values()
        if module.home not in LATE_IMPORTS and not (module.is_init and _is_lazy(module))
        for used in imports(module)
        if used.late and used.module.split(".")[0] not in LATE_PACKAGES and used.module not in LATE_MODULES
    ]
    assert not found, complaints(found)


def _is_lazy(module: Module) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in module.tree.body)


def calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_only_the_command_line_prints() -> None:
    found = [
        f"{module.path}:{call.lineno}: {name}"
        for module in modules().values()
        if module.home != "cli"
        for name, call in calls(module)
        if name in ("print", "sys.stdout.write", "sys.stderr.write", "input")
    ]
    assert not found, complaints(found)


def test_nothing_is_unpickled() -> None:
    found = []
    for module in modules().values():
        for used in imports(module):
            if used.module.split(".")[0] in ("pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"):
                found += [f"{module.path}:{used.line}: imports {used.module}"]
        for name, call in calls(module):
            safe = [k for k in call.keywords if k.arg == "weights_only" and getattr(k.value, "value", None) is True]
            pickles = [
                k for k in call.keywords if k.arg == "allow_pickle" and getattr(k.value, "value", None) is not False
            ]
            if name in ("torch.save", "eval", "exec") or (name == "torch.load" and not safe) or pickles:
                found.append(f"{module.path}:{call.lineno}: {name}")
    assert not found, complaints(found)


def test_state_is_written_in_one_place() -> None:
    """Durable state goes through storage: nobody else calls what writes safetensors to a path."""
    found = [
        f"{module.path}:{call.lineno}: {name}"
        for module in modules().values()
        for name, call in calls(module)
        if name.endswith("save_file") or (module.home == "runs" and name.endswith((".write_text", ".write_bytes")))
    ]
    assert not found, complaints(found)


def test_no_error_is_swallowed() -> None:
    found = []
    for module in modules().values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler):
                kinds = ["bare"] if node.type is None else re.findall(r"\w+", ast.unparse(node.type))
                again = any(isinstance(inner, ast.Raise) and inner.exc is None for inner in ast.walk(node))
                if {"bare", "Exception", "BaseException"} & set(kinds) and not again:
                    found.append(f"{module.path}:{node.lineno}: except {' '.join(kinds)}")
    assert not found, complaints(found)


def test_files_and_functions_are_small() -> None:
    found = []
    for module in modules().values():
        lines = module.text.count("\n")
        if lines >= 350 and module.path.name not in LONG:
            found.append(f"{module.path}: {lines} lines")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and node.body:
                documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
                code = node.body[1:] if documented else node.body
                length = (node.end_lineno or 0) - code[0].lineno + 1 if code else 0
                if length > 50:
                    found.append(f"{module.path}:{node.lineno}: {node.name} has {length} lines")
    assert not found, complaints(found)


def public(module: Module) -> bool:
    return not any(part.startswith("_") for part in module.name.split("."))


def test_public_modules_say_what_they_export() -> None:
    found = [
        str(m.path)
        for m in modules().values()
        if public(m) and not m.is_init and m.home != "cli" and m.exported is None
    ]
    assert not found, complaints(found)


def promised(module: Module) -> set[str]:
    """What of a module is for users: all that a module of the first floor exports, what a package's `__init__`
    names (in its `__all__`), and a plug-in itself."""
    exported = module.exported or []
    package = module.name.rpartition(".")[0]
    if module.is_init or module.home == "cli":
        return set()
    if package == "segstream":
        return set(exported)
    if package in KINDS.values():
        return set(exported[:1])
    outer = {f"{module.name.split('.')[0]}.{module.home}", package}
    return {name for name in exported for o in outer if name in (modules()[o].exported or [])}


def test_public_objects_have_an_example_that_runs() -> None:
    found = []
    for module in modules().values():
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name not in promised(module):
                continue
            bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            shape_only = any(base.endswith(("Error", "Protocol", "TypedDict")) for base in bases)
            if not shape_only and ">>>" not in (ast.get_docstring(node) or ""):
                found.append(f"{module.path}:{node.lineno}: {node.name}")
    assert not found, complaints(found)


def test_every_module_says_what_it_is_for() -> None:
    found = [str(m.path) for m in modules().values() if m.tree.body and not ast.get_docstring(m.tree)]
    assert not found, complaints(found)


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    found = [
        f"{path}:{number}: {line.strip()}"
        for folder in ("segstream", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if marks.search(line)
    ]
    assert not found, complaints(found)


# ---- the project's own files


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_names_no_host() -> None:
    text = (ROOT / "lock.txt").read_text(encoding="utf-8")
    assert not re.search(r"://|--(index|extra-index|find-links|trusted-host)|@|\.\./|^-[efir]\b", text, re.MULTILINE)


def test_the_lock_covers_what_the_project_needs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "lock.txt").read_text(encoding="utf-8")
    locked: dict[str, list[str]] = {}
    for name, pinned in re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", text, re.MULTILINE):
        locked.setdefault(canonical(name), []).append(pinned)
    wanted = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    for requirement in map(Requirement, wanted):
        versions = locked.get(canonical(requirement.name))
        assert versions, f"{requirement.name} is not in lock.txt; run `make lock`"
        for found in versions:
            assert requirement.specifier.contains(found, prereleases=True), f"{requirement} but {found} in lock.txt"
    blocks = re.findall(r"^\S+==\S+.*(?:\n    .*)*", text, re.MULTILINE)
    assert blocks
    assert all("--hash=sha256:" in block for block in blocks)


def test_the_wheel_holds_the_whole_package() -> None:
    builder = WheelBuilder(str(ROOT))
    packed = {file.relative_path for file in builder.recurse_included_files()}
    there = {str(p.relative_to(ROOT)) for p in PACKAGE.rglob("*") if p.is_file() and p.parent.name != "__pycache__"}
    assert packed == there


def test_one_version() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(rf"^version: {re.escape(__version__)}$", cited, re.MULTILINE)
    assert version("segstream") == __version__, "install anew: make setup"
