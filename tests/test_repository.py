"""What holds for the repository as a whole: nothing private in it, short files, one version everywhere."""

import ast
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in sorted((ROOT / "src" / "metareplay").rglob("*.py"))
}
MAX_FILE_LINES = 350
MAX_BODY_LINES = 60
FORBIDDEN = ("/work/", "../shared", "claude", "anthropic", "openai", "pypi.org", "files.pythonhosted", "registry.npmjs")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")


def repository_files() -> list[Path]:
    """Files that git tracks or would add; of an unpacked archive without git, everything but the ignored folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        ignored = {
            line.strip().rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
        } | {".git"}
        return [
            path
            for path in ROOT.rglob("*")
            if path.is_file() and not ignored.intersection(path.relative_to(ROOT).parts)
        ]
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def forbidden_words(text: str) -> list[str]:
    return [word for word in FORBIDDEN if word in text.lower()]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from the first statement after the docstring to the end."""
    first = function.body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    if has_docstring and len(function.body) == 1:
        return 0
    start = function.body[1].lineno if has_docstring else first.lineno
    assert function.end_lineno is not None
    return function.end_lineno - start + 1


def test_no_private_paths_or_hosts() -> None:
    found = {}
    for path in repository_files():
        content = path.read_bytes()
        if (
            path != Path(__file__)
            and b"\0" not in content
            and (words := forbidden_words(content.decode("utf-8", errors="replace")))
        ):
            found[str(path.relative_to(ROOT))] = words
    assert found == {}


def test_the_search_sees_the_repository() -> None:
    names = {str(path.relative_to(ROOT)) for path in repository_files()}
    assert {"pyproject.toml", "Makefile", "src/metareplay/errors.py", "tests/conftest.py"} <= names
    assert not any(name.startswith((".venv/", ".git/", "runs/")) for name in names)


def test_forbidden_words_are_found() -> None:
    assert [
        len(forbidden_words(text)) for text in ("see /work/x", "OpenAI", "https://pypi.org/simple", "an open air")
    ] == [1, 1, 1, 0]


def test_files_are_short() -> None:
    lengths = {name: len(source.splitlines()) for name, source in SOURCES.items()}
    assert {name: length for name, length in lengths.items() if length >= MAX_FILE_LINES} == {}


def test_links_in_a_circle_are_thought_of() -> None:
    """``Path.resolve`` raises errors that nobody expects; ``metareplay.files.real_path`` does not."""
    assert [name for name, source in SOURCES.items() if re.search(r"\.resolve\(", source)] == []


def test_functions_are_short() -> None:
    lengths = {
        f"{name}: {node.name}": body_lines(node)
        for name, source in SOURCES.items()
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 1000  # the search sees them
    assert {name: length for name, length in lengths.items() if length > MAX_BODY_LINES} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def f():\n    '''Doc.'''", 0),
        ("def f():\n    '''Doc.'''\n\n    a = 1\n    return a", 2),
        ("def f():\n    return (\n        1\n    )", 3),
    ],
)
def test_body_lines(source: str, lines: int) -> None:
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert body_lines(function) == lines


def test_the_makefile_explains_its_targets() -> None:
    targets = re.findall(r"^([a-z-]+):.*## \S", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"help", "install", "demo", "browser", "test", "test-slow", "bench", "lint", "format", "clean"} <= set(
        targets
    )


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[-1] == "make test"
    assert "make browser" in lines
    # the page's tests may not be skipped here
    assert any(line.startswith("export METAREPLAY_BROWSER=required") for line in lines)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["steps"][-1] == {"run": "make test"}


def test_one_version_everywhere() -> None:
    version = PYPROJECT["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    assert f'"{version}"' in SOURCES["src/metareplay/version.py"]
    assert re.search(
        rf"^## .*\b{re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_every_dependency_is_pinned() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    wanted = [*PYPROJECT["project"]["dependencies"], *(name for names in extras.values() for name in names)]
    names = {re.split(r"[\[<>=!~ ]", requirement)[0].lower() for requirement in wanted} - {"metareplay"}
    pinned = {line.split("==")[0].lower() for line in CONSTRAINTS.splitlines() if "==" in line}
    assert names <= pinned, f"missing in constraints.txt: {sorted(names - pinned)}"


def test_pins_are_plain_versions() -> None:
    lines = [line for line in CONSTRAINTS.splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
