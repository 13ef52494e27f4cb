"""A user's own project in a real sweep: every kind of process finds what its config calls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kauldron_core import rundir
from tests.pipelines.test_own_project import write_project

pytestmark = [pytest.mark.cluster, pytest.mark.process, pytest.mark.timeout(300)]

# Data of the user's own, which worker processes read and change.
DATA = """
import dataclasses


@dataclasses.dataclass(frozen=True)
class Source:
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return {name: values[index] for name, values in load().items()}


@dataclasses.dataclass(frozen=True)
class Halve(real_kd.data.MapTransform):
    def map(self, element):
        return {**element, "x": element["x"] / 2}


with konfig.imports():
    from MODULE import Halve as ConfigHalve, Source as ConfigSource
"""
DS = "kd.data.py.DataSource(data_source=ConfigSource(), batch_size=8, num_workers=1, transforms=[ConfigHalve()])"


def test_a_sweep_goes_on_and_is_evaluated_in_a_project_of_ones_own(tmp_path, ray_session):
    """F09: model, data, transforms and their workers come from the user's folder, which is sent along, or is a copy."""
    file = tmp_path / write_project(tmp_path, "own_package.experiment")
    text = file.read_text().replace(
        "from kauldron_core import konfig, kontext", "from kauldron_core import kd as real_kd, konfig, kontext", 1
    )
    text = text.replace("\n\ndef get_config", DATA.replace("MODULE", "own_package.experiment") + "\n\ndef get_config")
    file.write_text(text.replace("kd.data.InMemoryPipeline(loader=load, batch_size=8)", DS))
    kdr = str(Path(sys.executable).with_name("kdr"))
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    address = f"--address={ray_session}"

    def call(*words):
        done = subprocess.run([kdr, *words, "--no-tracking"], env=own, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stdout, done.stderr)

    call("train", str(file.relative_to(tmp_path)), "--run.name=a")
    run = rundir.RunDir(tmp_path / "runs" / "a")
    (trial,) = run.trials()
    shutil.rmtree(trial.path)  # The run keeps the point, and nothing of what came of it.
    call("sweep", f"--resume={run.path}", "--run.working_dir=.", address)
    assert trial.status() == "done"
    results = rundir.read_eval_results(trial)
    assert [key for key, record in results.items() if record["status"] == "done"] == [("val", 2), ("val", 4)]
    call("eval", "runs/a", "--again", "--actors=1", address)
