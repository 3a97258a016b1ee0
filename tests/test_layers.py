"""Imports point one way, `__init__.py` files only re-export, and nothing is unpickled or evaluated."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "metareplay"

# Folders and single files from the first layer to the last. A file imports only from layers above its own.
LAYERS = (
    ("errors",),
    ("limits", "version"),
    (
        "arrays",
        "devices",
        "faults",
        "files",
        "heap",
        "interrupts",
        "locks",
        "optimisers",
        "permissions",
        "column_blocks",
        "scaling",
        "seeding",
        "settings",
        "terminal",
        "texts",
        "written_text",
    ),
    ("parts",),
    ("data",),
    ("benchmarks",),
    ("nets",),
    ("batches",),
    ("kernels",),
    ("posteriors",),
    ("task_maps",),
    ("likelihoods",),
    ("model",),
    ("model_changes",),
    ("strategies",),
    ("training",),
    ("inference",),
    ("learner",),
    ("streams",),
    ("export",),
    ("estimators",),
    ("integrations",),
    ("evaluation",),
    ("experiments",),
    ("living",),
    ("report",),
    ("paper",),
    ("serve",),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
FORBIDDEN_CALLS = {
    "eval",
    "exec",
    "torch.load",
    "torch.save",
    "yaml.load",
    "yaml.unsafe_load",
    "pandas.read_pickle",
    "pd.read_pickle",
}


def module_name(path: Path) -> str:
    """`src/metareplay/nets/mlp.py` -> `nets.mlp`; `nets/__init__.py` -> `nets`; the package itself -> ``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Absolute dotted names of everything a file imports, wherever in the file; `package` resolves relative imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> set[str]:
    """The project's modules that a file imports, named as in `MODULES`."""
    folder = ".".join(("metareplay", *path.relative_to(PACKAGE).parent.parts))
    found = set()
    for name in imported_names(ast.parse(path.read_text(encoding="utf-8")), folder):
        if name.split(".")[0] == "metareplay":
            inner = name.split(".")[1:]
            if ".".join(inner) not in MODULES:  # the last part is a name inside a module
                inner = inner[:-1]
            found.add(".".join(inner))
    return found


def direction_error(importer: str, imported: str) -> str | None:
    """Why `importer` may not import `imported`, or None if it may."""
    top, other = importer.split(".")[0], imported.split(".")[0]
    if imported == "":
        return "imports from the top of the package; name the module that defines it"
    if top != other:
        return None if RANK[other] < RANK[top] else f"imports {imported}, which is not in a layer above its own"
    if imported == top:
        return f"imports from its own folder's __init__.py; name the module in {top} that defines it"
    return None


def only_tensors(call: ast.Call) -> bool:
    """Whether this is `torch.load(..., weights_only=True)`, for weights that a package ships as a .pth file."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return ast.unparse(call.func) == "torch.load" and given.get("weights_only") == "True"


def forbidden_uses(source: str) -> list[str]:
    """Everything in a file that could run or unpickle foreign data."""
    tree = ast.parse(source)
    found = [
        name
        for name in imported_names(tree, "metareplay")
        if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if ast.unparse(node.func) in FORBIDDEN_CALLS and not only_tensors(node):
                found.append(ast.unparse(node.func))
            for keyword in node.keywords:
                if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                    found.append("allow_pickle")
    return found


def surplus_statements(source: str, *, top: bool) -> list[str]:
    """Statements of an `__init__.py` besides docstring, imports, `__all__`, and `__version__` and lazy imports."""
    surplus = []
    for number, node in enumerate(ast.parse(source).body):
        names = {ast.unparse(target) for target in node.targets} if isinstance(node, ast.Assign) else set()
        if isinstance(node, ast.AnnAssign):
            names = {ast.unparse(node.target)}
        fine = isinstance(node, ast.Import | ast.ImportFrom) or names == {"__all__"}
        fine = fine or (number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        if top:
            lazy = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
            guarded = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            fine = fine or lazy or guarded or names in ({"__version__"}, {"_LAZY"})
        if not fine:
            surplus.append(ast.unparse(node).splitlines()[0])
    return surplus


def test_every_module_has_a_layer() -> None:
    unknown = {name.split(".")[0] for name in MODULES if name} - set(RANK)
    assert not unknown, f"add {sorted(unknown)} to LAYERS in this test"


def test_imports_point_to_layers_above() -> None:
    imports = {name: sorted(own_imports(path)) for name, path in MODULES.items() if path.name != "__init__.py"}
    errors = [
        f"{name} {error}"
        for name, names in imports.items()
        for imported in names
        if (error := direction_error(name, imported))
    ]
    assert not errors, "\n".join(errors)


def test_folders_reexport_only_their_own() -> None:
    inits = {name: own_imports(path) for name, path in MODULES.items() if name and path.name == "__init__.py"}
    foreign = {name: [other for other in found if not other.startswith(f"{name}.")] for name, found in inits.items()}
    assert not {name: others for name, others in foreign.items() if others}


def test_imports_have_no_cycles() -> None:
    graph = {name: own_imports(path) for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other in a circle: {' -> '.join(error.args[1])}")


def test_nothing_is_unpickled_or_evaluated() -> None:
    uses = {name: forbidden_uses(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    assert not {name: used for name, used in uses.items() if used}


def test_yaml_and_json_are_read_in_one_place() -> None:
    readers = {"json.load", "json.loads", "yaml.safe_load", "yaml.load"}

    def uses(path: Path) -> set[str]:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        return {
            ast.unparse(call)
            for call in calls
            if ast.unparse(call) in readers or (isinstance(call, ast.Attribute) and call.attr == "model_validate_json")
        }

    assert {name for name, path in MODULES.items() if uses(path)} == {"texts"}


def test_init_files_only_reexport() -> None:
    inits = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items() if path.name == "__init__.py"}
    surplus = {name: surplus_statements(source, top=name == "") for name, source in inits.items()}
    assert not {name: statements for name, statements in surplus.items() if statements}


# The checks themselves, on sources that break the rules.


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("posteriors.families.gaussian", "posteriors.base", True),
        ("posteriors.families.gaussian", "nets.weights", True),
        ("posteriors.families.gaussian", "errors", True),
        ("posteriors.families.gaussian", "task_maps.hypernetwork", False),
        ("posteriors.families.gaussian", "posteriors", False),
        ("data.sources", "", False),
        ("errors", "seeding", False),
        ("model", "cli.main", False),
    ],
)
def test_direction_of_one_import(importer: str, imported: str, allowed: bool) -> None:
    assert (direction_error(importer, imported) is None) == allowed


def test_forbidden_uses_are_found() -> None:
    sources = [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import dill",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "from torch import save",
        "eval(text)",
        "exec(text)",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
    ]
    assert [len(forbidden_uses(source)) for source in sources] == [1] * len(sources)


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "np.load(path, allow_pickle=False)",
        "safetensors.torch.load_file(path)",
        "torch.load(path, weights_only=True)",
    ],
)
def test_harmless_uses_are_left_alone(source: str) -> None:
    assert forbidden_uses(source) == []


def test_relative_imports_are_resolved() -> None:
    tree = ast.parse("from .base import Task\nfrom ..errors import DataError\nfrom . import toy")
    assert list(imported_names(tree, "metareplay.benchmarks")) == [
        "metareplay.benchmarks.base.Task",
        "metareplay.errors.DataError",
        "metareplay.benchmarks.toy",
    ]


@pytest.mark.parametrize("source", ["x = 1", "def f():\n    pass", "from a import b\nb()", "class A:\n    pass"])
def test_surplus_statements_are_found(source: str) -> None:
    assert len(surplus_statements(source, top=True)) == 1


def test_lazy_imports_belong_to_the_top_alone() -> None:
    source = '"""Docs."""\nfrom a import b\n__all__ = ["b"]\ndef __getattr__(name: str) -> object: ...'
    assert surplus_statements(source, top=True) == []
    assert surplus_statements(source, top=False) == ["def __getattr__(name: str) -> object:"]
