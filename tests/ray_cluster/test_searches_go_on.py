"""A search that goes on makes the points that it would have made in one go; nothing is trained here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kauldron_core import konfig, rundir
from pipelines import experiment as experiments
from pipelines import planning
from pipelines.cli.words.command import read_command
from ray_cluster.driver import collect, layout
from ray_cluster.driver.board import StatusBoard
from ray_cluster.searches.made_trials import GrowingTrials
from ray_cluster.searches.spaces import identity

pytestmark = pytest.mark.cluster  # It imports Tune, and starts nothing.

DIGITS = "pipelines/configs/digits.py"
LOSS = "train/losses/total"
RATE, HIDDEN = "--sweep.optimizer.learning_rate=loguniform(1e-4, 1e-1)", "--sweep.model.hidden=[8, 16, 32]"
CUTS = [(3, 6), (1, 20), (11, 20), (4, 9, 12, 20)]


def _loss(point: Sequence[tuple[str, Any]]) -> float:
    values = dict(point)
    rate = values.get("optimizer.learning_rate", 0.01)
    return (math.log10(rate) + 2) ** 2 + values.get("model.hidden", 8) / 100 + values.get("seed", 0) / 10


def _prepare(root: Path, words: Sequence[str], number: int) -> planning.Prepared:
    name = (f"--run.root={root}", "--run.name=s", f"--run.num_samples={number}", f"--run.metric={LOSS}")
    command = read_command([DIGITS, *words, *name, "--run.mode=min"])
    return planning.prepare(command, experiments.read_spec(command), command="kdr sweep")


def _search(root: Path, words: Sequence[str], number: int, *, at_a_time: int = 1, is_killed: bool = False) -> list[str]:
    """Makes the trials that are missing, as a driver does, and returns the points of all.

    Args:
      root: The folder of runs.
      words: The axes and the search.
      number: How many trials there shall be.
      at_a_time: How many are open.
      is_killed: Leave the last ones open.
    """
    from ray_cluster.searches import searching  # Ray

    prepared = _prepare(root, words, number)
    prepared.write_sources()
    run = layout.lay_out(prepared.plan)
    layout.write_trials(prepared.plan, run)
    board = StatusBoard(run, {trial.name: trial.overrides for trial in prepared.plan.trials})
    growing = GrowingTrials(
        prepared.plan,
        prepared.plan.search,  # type: ignore[arg-type]
        run=run,
        board=board,
        unfinished=[one.name for one in run.trials() if one.status() not in rundir.TERMINAL],
        describe=lambda trial: {"name": trial.name},
    )
    maker = searching.make_trials_with(prepared.plan, growing, collect.collect(prepared.plan, run).rows)
    going: list[tuple[str, str]] = []
    for count in itertools.count():
        told = maker.suggest(str(count))
        if told == maker.FINISHED:
            break
        going.append((str(count), told["trial"]["name"]))
        if len(going) == at_a_time:
            _end(run, growing, maker.on_trial_complete, *going.pop(0))
    if not is_killed:
        for one in going:
            _end(run, growing, maker.on_trial_complete, *one)
    assert [trial.index for trial in growing.trials] == list(range(number))
    return [identity(trial.overrides) for trial in growing.trials]


def _end(run: rundir.RunDir, growing: GrowingTrials, complete: Callable[..., None], trial_id: str, name: str) -> None:
    loss = _loss(next(trial.overrides for trial in growing.trials if trial.name == name))
    with rundir.EventWriter(run.trial(name).events) as events:
        events.append("metrics", 10, split="train", values={"losses/total": loss})
    rundir.write_status(run.trial(name), "done")
    complete(trial_id, {LOSS: loss, "training_iteration": 1})


@pytest.mark.parametrize("search", ["random", "optuna(seed=3)"])
@pytest.mark.parametrize("cuts", CUTS)
def test_a_search_that_was_cut_equals_one_go(tmp_path: Path, search: str, cuts: tuple[int, ...]) -> None:
    """F04: trials 3 to 5 of a search that went on repeated 0 to 2."""
    words = [RATE, HIDDEN, f"--run.search={search}"]
    whole = _search(tmp_path / "whole", words, cuts[-1])
    for number in cuts:
        points = _search(tmp_path / "cut", words, number, at_a_time=1)
    assert points == whole
    assert len(set(points)) == cuts[-1]


def test_random_points_are_those_of_an_explicit_sweep(tmp_path: Path) -> None:
    drawn = _prepare(tmp_path / "explicit", [RATE, "--sweep.seed=randint(0, 9)"], 8).plan.trials
    words = [RATE, "--sweep.seed=randint(0, 9)", "--run.search=random"]
    assert _search(tmp_path / "search", words, 8) == [identity(trial.overrides) for trial in drawn]


@pytest.mark.parametrize("search", ["random", "optuna"])
def test_a_driver_that_was_killed_with_trials_open_goes_on_to_new_points(tmp_path: Path, search: str) -> None:
    """F04: a driver killed in a search of 20, of which 14 points were distinct."""
    words = [RATE, HIDDEN, f"--run.search={search}"]
    for number in (7, 13, 20):
        points = _search(tmp_path, words, number, at_a_time=3, is_killed=number < 20)
    assert len(set(points)) == 20


def test_a_trial_that_a_killed_driver_did_not_list_is_made_anew(tmp_path: Path) -> None:
    """F04: its folder stayed queued for ever beside the trials of the driver that went on."""
    words = [RATE, HIDDEN, "--run.search=optuna"]
    _search(tmp_path, words, 2)
    run = rundir.RunDir(tmp_path / "s")
    for name in ("0002-made", "0002-begun"):
        run.trial(name).create("{}")
        rundir.write_status(run.trial(name), "queued")
    with rundir.EventWriter(run.trial("0002-begun").events) as events:
        events.append("metrics", 10, split="train", values={"losses/total": 0.0})
    _search(tmp_path, words, 3)
    listed = [row["name"] for row in run.sweep["trials"]]
    assert sorted(trial.name for trial in run.trials()) == sorted([*listed, "0002-begun"])


def test_a_searcher_that_can_not_be_told_is_asked_again(tmp_path: Path) -> None:
    """F04: of others of Tune the suggestions that stand are repeated before new ones are made."""
    konfig.trust("tests")
    words = ["--sweep.seed=randint(0, 100)", "--run.search=tests.ray_cluster.walk_search.Walk()"]
    whole = _search(tmp_path / "whole", words, 9)
    _search(tmp_path / "cut", words, 4)
    assert _search(tmp_path / "cut", words, 9) == whole
    _search(tmp_path / "killed", words, 4, at_a_time=3, is_killed=True)
    assert len(set(_search(tmp_path / "killed", words, 9))) == len(set(whole)) == 9


@pytest.mark.parametrize("search", ["random", "optuna"])
@pytest.mark.parametrize("axis", ["choice([1e-2, 3e-2])", "[1e-2, 3e-2]"])
def test_points_are_distinct_while_there_are_any_and_then_marked(
    tmp_path: Path, search: str, axis: str, caplog: pytest.LogCaptureFixture
) -> None:
    """F18: a space of two points and five trials does not hang, and no repeat passes for another point."""
    words = [f"--sweep.optimizer.learning_rate={axis}", "--sweep.seed=randint(0, 2)", f"--run.search={search}"]
    points = _search(tmp_path, words, 6)
    assert len(set(points[:4])) == 4
    assert caplog.text.count("repeat points: all points that there are stand, 4") == 1
    prints = [row["fingerprint"] for row in rundir.RunDir(tmp_path / "s").sweep["trials"]]
    assert len(set(prints)) == 6
    assert sum("-" in one for one in prints) == 2


def test_a_function_that_chooses_goes_on_too() -> None:
    """F04: Optuna was not told of the points of a space whose parts depend on each other."""
    from ray_cluster.searches import searching, spaces

    config = konfig.ConfigDict({"hidden": 1, "rate": 0.1})

    def choose_size(choose: Any) -> None:
        if choose("hidden", "choice([1, 2, 3])") == 3:
            choose("rate", "uniform(0.1, 0.9)")

    def run(number: int, told: Sequence[tuple[spaces.Point, float]]) -> list[tuple[spaces.Point, float]]:
        space = spaces.SearchSpace(conditional=spaces.Conditional(choose_size, config))
        searcher, to_point = searching.make_searcher("optuna", space, metric=LOSS, mode="min", seed=1)
        for point, value in told:
            searcher.add_evaluated_point(dict(point), value)
        found = list(told)
        for index in range(len(told), number):
            searcher.begin(index, 0)
            point = to_point(searcher.suggest(str(index)) or {})
            value = sum(float(one) for _, one in point)
            searcher.on_trial_complete(str(index), {LOSS: value, "training_iteration": 1})
            found.append((point, value))
        return found

    whole = run(18, [])
    assert run(18, run(5, [])) == run(18, run(14, [])) == whole
