"""Axes: what each text means, how they combine, and that random ones are drawn the same everywhere."""

from __future__ import annotations

import math
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.overrides.literals import AXIS_FUNCTIONS
from kauldron_core.sweeps.grids import GRIDS
from kauldron_core.sweeps.sampling import PARAMETERS, Distribution

with konfig.imports():
    import optax


@pytest.fixture
def cfg() -> konfig.ConfigDict:
    return konfig.ConfigDict(
        {"seed": 0, "rate": 0.1, "name": "a", "layers": [1], "debug": False, "note": None, "model": {"bias": True}}
    )


def values(cfg: Any, text: str) -> tuple[Any, ...]:
    (axis,) = sweeps.from_strings(cfg, [text])
    assert isinstance(axis, sweeps.Axis)
    return axis.values


def drawn(cfg: Any, text: str, count: int = 20, seed: int = 0) -> list[Any]:
    (axis,) = sweeps.from_strings(cfg, [text])
    return [value for ((_, value),) in axis.points(count, seed)]


def refused(cfg: Any, *texts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        sweeps.expand(cfg, sweeps.from_strings(cfg, texts))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_axis_over_lists(cfg: Any) -> None:
    """O04: an axis over lists."""
    assert values(cfg, "layers=[[1,2],[3, 4]]") == ([1, 2], [3, 4])
    trials = sweeps.expand(cfg, sweeps.from_strings(cfg, ["layers=[[1,2],[3,4]]", "seed=[5, 6]"]))
    assert [dict(trial.overrides) for trial in trials] == [
        {"layers": [1, 2], "seed": 5},
        {"layers": [1, 2], "seed": 6},
        {"layers": [3, 4], "seed": 5},
        {"layers": [3, 4], "seed": 6},
    ]
    assert values(cfg, "name=['[1,2]', '[3,4]']") == ("[1,2]", "[3,4]")
    assert values(cfg, "note=['[1,2]']") == ("[1,2]",)


def test_a_nested_bool_and_float_from_text(cfg: Any) -> None:
    """O20: a nested bool and float from text."""
    assert values(cfg, "model.bias=[True, False]") == (True, False)
    assert values(cfg, "rate=[1, 0.5]") == (1.0, 0.5)
    assert "Write: '--sweep.model.bias=[True, False]'" in refused(cfg, "model.bias=[true, false]")


def test_text_fields_need_no_quotes(cfg: Any) -> None:
    assert values(cfg, "name=[a b, 'c, d', 5, [x, y], None]") == ("a b", "c, d", "5", "[x, y]", "None")


def test_grid_functions(cfg: Any) -> None:
    assert values(cfg, "seed=range(2, 8, 3)") == (2, 5)
    assert values(cfg, "seed=range(start=1, stop=3)") == (1, 2)
    assert values(cfg, "rate=linspace(0, 1, 5)") == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert values(cfg, "rate=logspace(1e-5, 1, 6)") == (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    assert values(cfg, "rate=linspace(3, 9, 1)") == (3.0,)
    assert "expected int" in refused(cfg, "seed=linspace(0, 1, 3)")
    assert "no values" in refused(cfg, "seed=range(0)")
    assert "cannot be 0" in refused(cfg, "seed=range(0, 3, 0)")
    assert "at least 1" in refused(cfg, "rate=linspace(0, 1, 0)")
    assert "too many" in refused(cfg, "seed=range(1000000000000)")
    assert "finite" in refused(cfg, "rate=linspace(0, inf, 3)")
    assert "the form is linspace(start, stop, num)" in refused(cfg, "rate=linspace(0, 1)")
    assert "the form is linspace(start, stop, num)" in refused(cfg, "rate=linspace(0, 1, 2, 3)")
    assert "the form is linspace(start, stop, num)" in refused(cfg, "rate=linspace(0, 1, count=3)")


@pytest.mark.parametrize(
    "text", ["1e-3", "(1, 2)", "1, 2", "abc", "'abc'", "[]", "", "None", "optax.sgd(0.1)", "{1, 2}"]
)
def test_what_is_no_list_is_refused_with_the_list_form(cfg: Any, text: str) -> None:
    assert "Write: '--sweep.note=[" in refused(cfg, f"note={text}")


def test_a_zip_moves_paths_together(cfg: Any) -> None:
    (axis,) = sweeps.from_strings(cfg, ["seed,rate=[(1, 2), (3, 4.5),]"])
    assert axis == sweeps.Axis(("seed", "rate"), ((1, 2.0), (3, 4.5)))
    (axis,) = sweeps.from_strings(cfg, ["seed, name=[[1, a], [2, 'b, c']]"])
    assert axis == sweeps.Axis(("seed", "name"), ((1, "a"), (2, "b, c")))
    form = "Write: '--sweep.seed,rate=[(VALUE, VALUE), (VALUE, VALUE)]'"
    for text in ("[(1, 2, 3)]", "[1, 2]", "(1, 2)", "[]", "range(3)", "[()]"):
        assert form in refused(cfg, f"seed,rate={text}")
    assert "expected int" in refused(cfg, "seed,rate=[(a, 1)]")
    assert "zipped with itself" in refused(cfg, "seed,seed=[(1, 2)]")


@pytest.mark.parametrize(
    ("text", "least", "most", "kind"),
    [
        ("rate=uniform(-1, 2)", -1, 2, float),
        ("rate=loguniform(1e-5, 1e-1)", 1e-5, 1e-1, float),
        ("rate=quniform(0, 1, 0.25)", 0, 1, float),
        ("seed=quniform(0, 100, 10)", 0, 100, int),
        ("seed=randint(3, 6)", 3, 5, int),
        ("rate=normal(0, 1)", -6, 6, float),
        ("note=uniform(low=0, high=1)", 0, 1, float),
    ],
)
def test_draws_stay_in_range(cfg: Any, text: str, least: float, most: float, kind: type) -> None:
    found = drawn(cfg, text, 500)
    assert all(type(value) is kind and least <= value <= most for value in found)
    assert len(set(found)) > 2


def test_draws_cover_the_whole_range(cfg: Any) -> None:
    assert set(drawn(cfg, "seed=randint(0, 5)", 200)) == set(range(5))
    assert set(drawn(cfg, "rate=quniform(0, 1, 0.25)", 200)) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert set(drawn(cfg, "name=choice([a, b, c])", 100)) == {"a", "b", "c"}
    assert set(drawn(cfg, "debug=choice(True, False)", 100)) == {True, False}
    assert abs(sum(drawn(cfg, "rate=normal(3, 2)", 2000)) / 2000 - 3) < 0.2
    logs = [math.log10(value) for value in drawn(cfg, "rate=loguniform(1e-4, 1)", 2000)]
    assert abs(sum(logs) / 2000 + 2) < 0.1


def test_draws_depend_on_seed_path_and_number_only(cfg: Any) -> None:
    text = "rate=uniform(0, 1)"
    assert drawn(cfg, text, 10) == drawn(cfg, text, 20)[:10]
    assert drawn(cfg, text, 10, seed=1) != drawn(cfg, text, 10)
    both = sweeps.expand(cfg, sweeps.from_strings(cfg, ["seed=randint(0, 1000)", text]), num_samples=10)
    assert [dict(trial.overrides)["rate"] for trial in both] == drawn(cfg, text, 10)
    # Written down, so that another Python or platform cannot change them unnoticed.
    assert drawn(cfg, text, 3) == [0.7240700259480487, 0.007313718401388971, 0.9060901613316866]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate=uniform(2, 1)", "low 2 has to be below high 1"),
        ("rate=uniform(1, 1)", "has to be below"),
        ("rate=loguniform(0, 1)", "above 0"),
        ("rate=uniform(0, inf)", "finite"),
        ("rate=quniform(0, 1, 2)", "at most high - low"),
        ("rate=normal(0, 0)", "above 0"),
        ("seed=randint(0, 1.5)", "two ints"),
        ("seed=randint(5, 5)", "excluded"),
        ("seed=uniform(0, 5)", "use randint"),
        ("name=uniform(0, 1)", "expected str"),
        ("rate=choice([])", "at least one value"),
        ("rate=choice()", "at least one value"),
        ("rate=choice([a])", "expected float"),
        ("rate=uniform(0)", "the form is uniform(low, high)"),
        ("rate=uniform(a, b)", "expected int | float"),
        ("rate=tune.uniform(0, 1)", "Write: '--sweep.rate=uniform(0, 1)'"),
        ("rate=np.random.uniform(0, 1)", "Write: '--sweep.rate=uniform(0, 1)'"),
        ("rate=log_uniform(1, 2)", "Write: '--sweep.rate=loguniform(1, 2)'"),
    ],
)
def test_random_axes_are_checked(cfg: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sweeps.from_strings(cfg, [text])
    assert message in str(caught.value)


def test_random_axes_are_drawn_jointly_and_multiply_with_grids(cfg: Any) -> None:
    axes = sweeps.from_strings(cfg, ["rate=uniform(0, 1)", "seed=[1, 2]", "layers=choice([[1], [2]])"])
    trials = sweeps.expand(cfg, axes, num_samples=3)
    assert len(trials) == 6
    assert sweeps.num_points(axes, 3) == 6
    rates = [dict(trial.overrides)["rate"] for trial in trials]
    assert len(set(rates)) == 3


def test_samples_without_a_random_axis_are_refused(cfg: Any) -> None:
    with pytest.raises(ConfigError, match="draws nothing"):
        sweeps.expand(cfg, sweeps.from_strings(cfg, ["seed=[1, 2]"]), num_samples=5)


def test_a_path_belongs_to_one_axis(cfg: Any) -> None:
    assert "two axes set this path" in refused(cfg, "seed=[1]", "seed=[2]")
    assert "two axes set this path" in refused(cfg, "seed,rate=[(1, 2)]", "rate=[2]")


def test_python_axes_combine_like_those_of_the_command_line(cfg: Any) -> None:
    seeds, rates = sweeps.axis("seed", [1, 2]), sweeps.axis("rate", [0.1, 0.2])

    def points(axes: Any) -> list[dict[str, Any]]:
        return [dict(trial.overrides) for trial in sweeps.expand(cfg, axes)]

    product = [{"seed": s, "rate": r} for s in (1, 2) for r in (0.1, 0.2)]
    assert points(sweeps.product(seeds, rates)) == points([seeds, rates]) == product
    assert points(sweeps.from_strings(cfg, ["seed=[1, 2]", "rate=[0.1, 0.2]"])) == product
    assert points(sweeps.zip_axes(seeds, rates)) == [{"seed": 1, "rate": 0.1}, {"seed": 2, "rate": 0.2}]
    assert points(sweeps.chain(seeds, rates)) == [{"seed": 1}, {"seed": 2}, {"rate": 0.1}, {"rate": 0.2}]
    nested = sweeps.product(sweeps.chain(seeds, sweeps.axis("seed", [9])), sweeps.zip_axes(rates))
    assert len(points(nested)) == 6
    with pytest.raises(ConfigError, match="seed has 2, rate has 1"):
        points(sweeps.zip_axes(seeds, sweeps.axis("rate", [0.1])))
    with pytest.raises(ConfigError, match="without values"):
        sweeps.axis("seed", [])


def test_random_axes_in_a_zip_follow_the_length_of_the_others(cfg: Any) -> None:
    (rate,) = sweeps.from_strings(cfg, ["rate=uniform(0, 1)"])
    trials = sweeps.expand(cfg, sweeps.zip_axes(sweeps.axis("seed", [1, 2, 3]), rate))
    assert len({dict(trial.overrides)["rate"] for trial in trials}) == 3


def test_values_that_depend_on_another_axis(cfg: Any) -> None:
    """U10: values that depend on another axis."""
    cfg.optimizer = optax.adam(1e-3)
    # An axis inside of what another replaces works where each value takes it.
    texts = ["optimizer=[optax.adam(0.1), optax.lion(0.2)]", "optimizer.b1=[0.8, 0.9]"]
    axes = sweeps.from_strings(cfg, texts)
    assert sweeps.num_points(axes) == 4
    trials = sweeps.expand(cfg, axes)
    assert [trial.config(cfg).optimizer for trial in trials] == [
        optax.adam(0.1, b1=0.8),
        optax.adam(0.1, b1=0.9),
        optax.lion(0.2, b1=0.8),
        optax.lion(0.2, b1=0.9),
    ]
    assert (
        sweeps.expand(cfg, sweeps.from_strings(cfg, texts[::-1]))[0].config(cfg).optimizer
        == trials[0].config(cfg).optimizer
    )
    # Also where the config itself has no such argument, whatever the order.
    cfg.optimizer = optax.sgd(1e-3)
    assert len(sweeps.expand(cfg, sweeps.from_strings(cfg, texts))) == 4
    assert len(sweeps.expand(cfg, sweeps.from_strings(cfg, texts[::-1]))) == 4
    # Where one does not, the sweep is refused when it is made.
    assert "unknown key 'b1'" in refused(cfg, "optimizer=[optax.adam(0.1), optax.sgd(0.2)]", "optimizer.b1=[0.8, 0.9]")
    # Values are literals: one axis cannot name another.
    assert "arithmetic" in refused(cfg, "seed=[1, 2]", "rate=[seed * 2]")
    # Points written out may depend on each other as they like, and their number is known.
    dependent = sweeps.from_points({"seed": seed, "rate": seed / 10} for seed in (1, 2))
    assert sweeps.num_points([dependent]) == 2


def test_names_of_distributions_are_their_parameters() -> None:
    assert Distribution("uniform", (0, 1)).draw(0.5) == 0.5
    assert str(Distribution("choice", (1, 2))) == "choice([1, 2])"
    assert set(PARAMETERS) == {"uniform", "loguniform", "quniform", "randint", "normal", "choice"}


@hypothesis.settings(deadline=None)
@hypothesis.given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_product_has_as_many_trials_as_its_lengths_multiply_to(lengths: list[int]) -> None:
    cfg = konfig.ConfigDict({f"x{index}": 0 for index in range(len(lengths))})
    axes = [sweeps.axis(f"x{index}", range(length)) for index, length in enumerate(lengths)]
    trials = sweeps.expand(cfg, axes)
    assert len(trials) == sweeps.num_points(axes) == math.prod(lengths)
    assert len({trial.name for trial in trials}) == len({trial.fingerprint for trial in trials}) == len(trials)
    assert len(sweeps.expand(cfg, sweeps.chain(*axes))) == sum(lengths)


@hypothesis.settings(deadline=None)
@hypothesis.given(st.text(alphabet="[](){},='\"0123456789.e-+abnNoe rangeliuspchoy#", max_size=40))
def test_any_axis_text_is_an_axis_or_one_line(text: str) -> None:
    cfg = konfig.ConfigDict({"seed": 0, "rate": 0.1, "name": "a", "note": None, "layers": [1]})
    for field in ("seed", "rate", "name", "note", "layers", "seed,rate"):
        try:
            axis = sweeps.parse_axis(cfg, field, text)
        except ConfigError as error:
            assert str(error).isprintable()
            continue
        for point in axis.points(2, 0)[:20]:
            assert [path for path, _ in point] == field.split(",")


def test_what_a_value_is_told_to_be_an_axis_by_are_the_functions_of_axes() -> None:
    assert {*GRIDS, *PARAMETERS} == AXIS_FUNCTIONS
