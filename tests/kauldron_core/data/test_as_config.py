"""Pipelines in a config: described, saved, changed and resolved like everything else."""

import json
import subprocess
import sys

import numpy as np
import pytest

from kauldron_core import data, konfig

with konfig.imports():
    from kauldron_core import kd


def load_numbers():
    return {"id": np.arange(10), "image": np.full((10, 2, 2, 1), 255, np.uint8)}


def make_config():
    cfg = konfig.ConfigDict()
    cfg.ds = kd.data.InMemoryPipeline(
        loader=load_numbers,
        batch_size=4,
        shuffle=True,
        num_epochs=1,
        batch_drop_remainder="pad",
        transforms={
            "scale": kd.data.ValueRange(key="image", vrange=(0, 1)),
            "flat": kd.data.Rearrange(key="image", pattern="h w c -> (h w c)"),
            "entries": kd.data.Elements(rename={"id": "number"}),
        },
    )
    return cfg


def test_a_pipeline_is_a_config_entry():
    cfg = make_config()
    cfg.ds.seed = 3
    ds = konfig.resolve(cfg).ds
    assert isinstance(ds, data.InMemoryPipeline)
    assert len(ds) == 3
    batch = next(iter(ds))
    assert batch["image"].tolist() == [[1.0] * 4] * 4
    assert set(batch) == {"image", "number", data.PADDING_MASK}


def test_a_pipeline_survives_json_and_an_override_by_name():
    text = json.dumps(konfig.to_json(make_config()))
    cfg = konfig.from_json(json.loads(text))
    konfig.apply_overrides(cfg, ["ds.batch_size=2", "ds.transforms.scale.vrange=(0, 2)", "ds.seed=1"])
    ds = konfig.resolve(cfg).ds
    assert next(iter(ds))["image"].tolist() == [[2.0] * 4] * 2


@pytest.mark.process
def test_importing_the_room_loads_no_heavy_library():
    code = (
        "import sys; from kauldron_core import data\n"
        "ds = data.SeqIO(task='of_tomorrow', feature_lengths={'targets': 8}, feature_converter='lm', batch_size=2)\n"
        "ds = ds.for_eval().with_seed(0)  # Described, not opened.\n"
        "heavy = 'grain pyarrow tensorflow seqio PIL orbax sentencepiece ray'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
