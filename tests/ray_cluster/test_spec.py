"""The value objects of a sweep refuse what can't run, and cost neither Ray nor JAX."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import ray_cluster
from kauldron_core.errors import ConfigError
from ray_cluster import EvalPool, Plan, PlannedTrial, Sidecar, Sweep, eval_pools


def _trial(name: str, index: int = 0) -> PlannedTrial:
    return PlannedTrial(name=name, index=index, fingerprint=name, config_json="{}")


def test_every_public_name_exists():
    assert all(hasattr(ray_cluster, name) for name in ray_cluster.__all__)


@pytest.mark.process
def test_the_value_objects_import_neither_ray_nor_jax():
    code = "import sys, ray_cluster; print([m for m in ('ray', 'jax', 'numpy', 'mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"resources": {"CPU": 0}}, "run.resources: CPU must be positive, got 0."),
        ({"resources": {"GPU": float("nan")}}, "run.resources: GPU must be positive, got nan."),
        ({"resources": {"CPU": "two"}}, "run.resources: CPU must be a number, got 'two'."),
        ({"mode": "best"}, "run.mode: 'best' is neither 'max' nor 'min'."),
        ({"max_failures": -1}, "run.max_failures: -1 is too small; the least is 0."),
        ({"max_concurrent": 0}, "run.max_concurrent: 0 is too small; the least is 1."),
    ],
)
def test_a_bad_run_spec_is_refused_in_one_line(fields, words):
    with pytest.raises(ConfigError) as caught:
        Sweep(**fields)
    assert str(caught.value) == words


def test_numbers_of_numpy_are_those_of_python():
    """F34: from Python they come as an array holds them, and `sweep.json` has to hold them."""
    sweep = Sweep(num_samples=np.int64(3), hang_timeout_s=np.float32(2.5), resources={"CPU": np.int64(2)})
    assert [type(value) for value in (sweep.num_samples, sweep.hang_timeout_s, sweep.resources["CPU"])] == [
        int,
        float,
        int,
    ]
    assert sweep == Sweep(num_samples=3, hang_timeout_s=2.5, resources={"CPU": 2})
    with pytest.raises(ConfigError, match="num_samples: 0 is too small"):
        Sweep(num_samples=np.int64(0))


def test_a_plan_needs_trials_with_names_of_their_own():
    with pytest.raises(ConfigError, match="no trials"):
        Plan(sweep=Sweep(), run_dir="runs/a", trials=())
    with pytest.raises(ConfigError, match="'0000' is used twice"):
        Plan(sweep=Sweep(), run_dir="runs/a", trials=(_trial("0000"), _trial("0000", 1)))


@dataclasses.dataclass
class _Strategy:
    is_standalone: bool = True
    job_group: str = "eval"
    resources: dict | None = None


def test_one_pool_per_job_group_and_resources():
    pools = eval_pools(
        [
            {"test": _Strategy(), "val": _Strategy(), "inline": _Strategy(is_standalone=False)},
            {"test": _Strategy(), "big": _Strategy(resources={"GPU": 1})},
        ]
    )
    assert pools == (
        EvalPool(evaluators=("test", "val")),
        EvalPool(evaluators=("big",), resources={"GPU": 1}),
    )


def test_anything_with_the_three_methods_is_a_sidecar():
    class Recorder:
        def start(self, run_dir):
            pass

        def poll(self):
            pass

        def close(self, results):
            pass

    assert isinstance(Recorder(), Sidecar)
