"""What an import may load: the core stays light, whatever is installed beside it."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


def _loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100)
    return set(json.loads(child.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("statement", "forbidden"),
    [
        ("import kauldron_core", {"jax", "numpy", "ml_collections"}),
        ("import kauldron_core.rundir", {"jax", "numpy", "pyarrow"}),
        ("import kauldron_core.konfig", {"jax", "numpy"}),
        ("from kauldron_core import kd", {"tensorflow", "ray", "mlflow", "seqio", "grain", "pyarrow", "sklearn"}),
        ("import evaluators", {"tensorflow", "ray", "mlflow", "seqio"}),
        ("import pipelines.cli", {"jax", "numpy", "ray", "mlflow", "pyarrow"}),
    ],
)
def test_an_import_loads_only_what_it_needs(statement: str, forbidden: set[str]) -> None:
    assert not _loaded_by(statement) & forbidden
