"""A run lies in a folder: the address of a bucket is refused wherever a run is named, before a folder is made."""

from pathlib import Path

import pytest

import evaluators
import pipelines
from kauldron_core import kd
from kauldron_core.errors import ConfigError
from kauldron_core.rundir import RunDir
from pipelines.cli import main
from ray_cluster import spec

DIGITS = str(Path(__file__).parents[3] / "pipelines/configs/digits.py")
PIPELINE = DIGITS.replace("digits.py", "digits_pipeline.py")
BUCKET = "gs://bucket/runs"


@pytest.mark.parametrize(
    "words",
    [
        ["train", DIGITS, f"--run.root={BUCKET}"],
        ["train", DIGITS, f"--run.name={BUCKET}"],
        ["train", DIGITS, f"--start-from={BUCKET}"],
        ["sweep", DIGITS, "--sweep.seed=[1]", f"--run.root={BUCKET}"],
        ["sweep", DIGITS, "--sweep.seed=[1]", "--run.name=s3://demo"],
        ["sweep", f"--resume={BUCKET}"],
        ["eval", BUCKET],
        ["status", BUCKET],
        ["best", BUCKET],
        ["logs", BUCKET, "0"],
        ["stop", BUCKET],
        ["rm", BUCKET, "--yes"],
        ["ls", BUCKET],
        ["record", BUCKET],
        ["ckpt", "ls", BUCKET],
        ["ckpt", "show", BUCKET],
        ["ckpt", "verify", BUCKET],
        ["ckpt", "rm", BUCKET, "1"],
        ["ckpt", "export", BUCKET, "--to=here"],
        ["config", "diff", BUCKET, DIGITS],
        ["pipeline", "run", PIPELINE, f"--cfg.root={BUCKET}"],
        ["submit", "--dry-run", "sweep", "--sweep.seed=[1]", f"--run.root={BUCKET}"],
        ["submit", "--dry-run", "eval", BUCKET],
        ["preflight", f"--root={BUCKET}"],
    ],
    ids=lambda words: " ".join(word for word in words if "/" not in word),
)
def test_a_bucket_is_refused_in_one_line_before_a_folder_is_made(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F23: `--run.root=gs://bucket/runs` made a local folder `gs:` and failed at the first save."""
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "is an address; runs in a bucket are not supported yet, checkpoints and data may be" in line
    assert list(tmp_path.iterdir()) == []


def test_python_refuses_it_too() -> None:
    """F23: the same where a run is named in Python."""
    for make in (
        lambda: pipelines.Sweep(root=BUCKET),
        lambda: spec.Sweep(name="gs://demo"),
        lambda: pipelines.Pipeline(name="demo", root=BUCKET),
        lambda: RunDir(BUCKET),
        lambda: RunDir(Path(BUCKET)),
        lambda: kd.load_run(f"{BUCKET}/demo"),
        lambda: evaluators.evaluate_run(f"{BUCKET}/demo"),
        lambda: kd.train.EventsWriter(workdir=BUCKET),
        lambda: kd.train.Profiler(workdir=BUCKET),
    ):
        with pytest.raises(ConfigError, match="runs in a bucket are not supported yet"):
            make()


def test_addresses_of_checkpoints_are_taken() -> None:
    """F23: only where a run lies must be a folder."""
    assert kd.ckpts.Checkpointer(workdir="gs://bucket/mine").workdir == "gs://bucket/mine"
    assert kd.ckpts.PartialKauldronLoader(workdir="gs://bucket/mine", new_to_old={"params": "params"}).workdir


def test_the_home_of_nobody_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "~nobody-of-this-name/runs"]) == 2
    assert "starts with the home of a user who is not there" in capsys.readouterr().err
