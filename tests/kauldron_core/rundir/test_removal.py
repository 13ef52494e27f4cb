"""Nothing outside of a run is removed or written, whatever lies in it."""

from __future__ import annotations

import os
import pathlib

import pytest

from kauldron_core import rundir
from kauldron_core.errors import ConfigError


@pytest.fixture
def run(tmp_path: pathlib.Path) -> rundir.RunDir:
    """A run with a trial, beside a folder that must stay as it is."""
    made = rundir.RunDir.create(tmp_path / "runs" / "demo")
    made.trial("0000").create("{}")
    (tmp_path / "precious" / "deep").mkdir(parents=True)
    (tmp_path / "precious" / "deep" / "file").write_text("precious")
    return made


def precious(run: rundir.RunDir) -> pathlib.Path:
    return run.path.parents[1] / "precious"


def test_a_file_a_folder_and_a_link_go_and_what_a_link_leads_to_stays(run: rundir.RunDir) -> None:
    """F47: of a link the link goes, its target stays; also of one that lies deep in a folder that goes."""
    trial = run.trial("0000")
    (trial.path / "checkpoints" / "ckpt_1").mkdir(parents=True)
    (trial.path / "checkpoints" / "ckpt_1" / "link").symlink_to(precious(run))
    (trial.path / "evals").symlink_to(precious(run))
    for name in ("checkpoints", "evals", "config.json", "is-not-there"):
        rundir.remove(trial.path / name, inside=run)
    assert list(trial.path.iterdir()) == []
    assert (precious(run) / "deep" / "file").read_text() == "precious"


@pytest.mark.parametrize(
    "path", ["../../precious", "trials/../../../precious", "trials/0000/../../../../precious/deep", "", "."]
)
def test_what_does_not_lie_in_the_run_by_its_name_is_left_alone(run: rundir.RunDir, path: str) -> None:
    """F46: no name leads removal out of the run, and the run itself does not lie in itself."""
    with pytest.raises(ConfigError, match="does not lie in"):
        rundir.remove(os.path.join(run, path), inside=run)
    assert (precious(run) / "deep" / "file").exists()


def test_a_link_on_the_way_is_not_gone_through(run: rundir.RunDir) -> None:
    """F47: a folder of a run that is a link into another folder leads no removal there."""
    run.trial("0001").path.symlink_to(precious(run))
    with pytest.raises(ConfigError, match="0001: is a link"):
        rundir.remove(run.trial("0001").path / "deep", inside=run)
    assert (precious(run) / "deep" / "file").exists()


def test_the_run_itself_may_be_reached_by_a_link(run: rundir.RunDir, tmp_path: pathlib.Path) -> None:
    link = rundir.RunDir(tmp_path / "latest")
    link.path.symlink_to(run.path)
    rundir.refuse_links(link)
    assert [trial.name for trial in link.trials()] == ["0000"]
    rundir.remove(link.trial("0000").config_path, inside=link)
    assert not run.trial("0000").exists()


def test_links_are_no_trials(run: rundir.RunDir) -> None:
    """F47: a trial folder that is a link is another run's, and so are all of them where `trials` is one."""
    run.trial("0001").path.symlink_to(run.trial("0000").path)
    assert [trial.name for trial in run.trials()] == ["0000"]
    other = rundir.RunDir.create(run.path.parent / "other")
    other.trials_path.rmdir()
    other.trials_path.symlink_to(run.trials_path)
    assert other.trials() == []


@pytest.mark.parametrize("place", ["trials/0001", "trials/0000/checkpoints", "trials/0000/logs/stdout.log", "code"])
def test_a_link_that_leads_out_is_refused_before_anything_is_written(run: rundir.RunDir, place: str) -> None:
    """F47: below a link that leads out, what is written would change what is not the run's."""
    rundir.refuse_links(run)
    link = run.path / place
    link.parent.mkdir(exist_ok=True, parents=True)
    link.symlink_to(precious(run))
    with pytest.raises(ConfigError, match=f"{place}: is a link that leads out of"):
        rundir.refuse_links(run)
    link.unlink()
    link.symlink_to(run.sweep_path)
    rundir.refuse_links(run)
