"""No module of a package leads back to itself by imports, those under TYPE_CHECKING and inside functions included."""

import ast
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kauldron_core", "evaluators", "ray_cluster", "pipelines")


def _modules(package: str) -> dict[str, Path]:
    files = (ROOT / package).rglob("*.py")
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def _imports(file: Path, modules: dict[str, Path]) -> set[str]:
    """Returns the modules that a file imports anywhere in it; a package stands for its `__init__` alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names.update(full if full in modules else node.module for full in inner.values())
    return names & modules.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_leads_back_to_itself(package: str) -> None:
    modules = _modules(package)
    assert modules, f"{package} has no modules"
    order = graphlib.TopologicalSorter({name: _imports(file, modules) for name, file in modules.items()})
    order.prepare()  # Raises CycleError, with the modules of the circle.
