"""Which trials of a sweep are planned to train together, anew and when a run goes on."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from kauldron_core import konfig, packs, rundir, train
from kauldron_core.errors import ConfigError
from pipelines import planning
from pipelines.cli import main
from pipelines.packing import shared_out, with_packs
from ray_cluster.driver import layout
from ray_cluster.workers import pack_records
from tests.pipelines.test_sweep import DIGITS, prepare

RATES = "--sweep.optimizer.learning_rate=[1e-3, 2e-3, 3e-3, 4e-3, 5e-3]"


def planned(tmp_path: Path, *words: str, **fields: object) -> planning.Prepared:
    few = ("--cfg.num_train_steps=4", "--cfg.checkpointer.save_interval_steps=2")
    found = prepare(*few, *words, f"--run.root={tmp_path}", "--run.name=demo", "--run.max_concurrent=1")
    return with_packs(replace(found, plan=replace(found.plan, **fields)), address="local")


def lay_out(prepared: planning.Prepared) -> rundir.RunDir:
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    return run


def trained(run: rundir.RunDir, prepared: planning.Prepared, *, until: int) -> None:
    """Trains the first pack until it has saved a step, as its worker would."""
    (planned, *_) = prepared.plan.packs
    configs = [train.load_config(run.trial(name)) for name in planned.trials]
    pack = packs.Pack.from_json(run.pack(planned.name).read()["pack"])
    for told in packs.iter_train(configs, pack, folder=run.pack(planned.name).path):
        if isinstance(told.event, train.Saved) and told.event.step >= until:
            break


def sizes(prepared: planning.Prepared) -> list[int]:
    return [len(pack.trials) for pack in prepared.plan.packs]


def test_trials_that_differ_in_numbers_are_packed_and_the_plan_says_why(tmp_path: Path) -> None:
    found = planned(tmp_path, RATES, "--sweep.model.hidden=[4, 8]", "--run.pack=3")
    assert sizes(found) == [3, 3, 2, 2]
    assert {name.split("hidden=")[1] for name in found.plan.packs[0].trials} == {"4"}
    text = "\n".join(found.pack_notes)
    assert "optimizer.learning_rate: packed" in text
    assert "model.hidden: not packed" in text
    assert list(tmp_path.iterdir()) == []


def test_automatic_packs_are_as_many_as_run_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [DIGITS, RATES, "--cfg.num_train_steps=4", f"--run.root={tmp_path}", "--run.resources={'CPU': 1e-3}"]
    assert main(["sweep", *words, "--pack=auto", "--dry-run"]) == 0
    # More run at a time than there are.
    assert "packs       none: there are no more trials than run at a time" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--run.pack=off"], ()),
        (["--run.pack=2", "--run.hosts=2"], ("none: each trial has several hosts",)),
        (
            ["--run.pack=2", "--run.scheduler=asha", "--run.metric=train/losses/total"],
            ("none: a search or scheduler decides about each trial on its own",),
        ),
        (["--run.pack=2", "--run.stop=train/losses/total<=0.1"], ("none: run.stop ends each trial on its own",)),
    ],
)
def test_trials_that_are_decided_about_one_by_one_are_not_packed(tmp_path: Path, words: list[str], expected) -> None:
    found = planned(tmp_path, RATES, *words)
    assert found.plan.packs == ()
    assert found.pack_notes == expected


@pytest.mark.parametrize(("value", "expected"), [("0", "0 is neither"), ("maybe", "maybe"), ("1.5", "1.5")])
def test_another_size_of_packs_is_refused(
    tmp_path: Path, value: str, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", DIGITS, RATES, f"--run.root={tmp_path}", f"--pack={value}", "--dry-run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and "run.pack" in error and expected in error and error.count("\n") == 1


def test_a_pack_that_began_goes_on_as_it_is_and_new_trials_make_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(tmp_path, RATES, "--run.pack=3")
    run = lay_out(found)
    trained(run, found, until=2)
    exported = tmp_path / "exported"
    assert main(["ckpt", "export", str(run.path), "2", "--trial=1", f"--to={exported}", "--trust=pipelines"]) == 0
    assert "step 2" in capsys.readouterr().out
    (_, own), (_, other) = train.load_run(run.trials()[1], step=2), train.load_run(exported)
    assert all(np.array_equal(*pair) for pair in zip(jax.tree.leaves(own), jax.tree.leaves(other), strict=True))
    again = planned(tmp_path, RATES, "--run.pack=5")
    assert [pack.trials for pack in again.plan.packs] == [pack.trials for pack in found.plan.packs]
    # What is left of one whose trial was deleted goes on alone: that trial begins anew.
    shutil.rmtree(run.trial(found.plan.packs[0].trials[0]).path)
    run.trial(found.plan.trials[0].name).create(found.plan.trials[0].config_json)
    without = planned(tmp_path, RATES, "--run.pack=5")
    assert [pack.trials for pack in without.plan.packs] == [found.plan.packs[1].trials]


@pytest.mark.parametrize(
    ("sizes", "slots", "expected"),
    [([9], 2, [5, 4]), ([9], 1, [9]), ([9, 8], 2, [9, 8]), ([9, 8], 5, [5, 4, 4, 4]), ([2, 9], 2, [1, 1, 5, 4])],
)
def test_there_are_as_many_packs_as_run_at_a_time(sizes: list[int], slots: int, expected: list[int]) -> None:
    made = [packs.Pack(tuple(range(size)), ("seed",)) for size in sizes]
    assert [len(part.members) for part in shared_out(made, slots)] == expected


def test_a_worker_with_another_device_tries_a_pack_out_itself(tmp_path: Path) -> None:
    found = planned(tmp_path, RATES, "--run.pack=3", "--run.resources={'GPU': 1}")
    assert "a worker tries each out on its own device before it begins" in found.pack_notes
    run = lay_out(found)
    # Trials that are none of one pack, on a closer look.
    (first, *_) = found.plan.packs[0].trials
    config = konfig.load(run.trial(first).config_path)
    config.model.hidden = 5
    rundir.write_atomic(run.trial(first).config_path, konfig.to_json(config))
    with pytest.raises(ConfigError, match=r"they train alone: model\.hidden: "):
        list(pack_records.records_of(run.pack(found.plan.packs[0].name), threading.Event()))
