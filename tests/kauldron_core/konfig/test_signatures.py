"""An argument that the target does not take is refused as it is written, with the closest one that it takes."""

import functools
import sys

import flax.linen as flax_nn
import pytest

from kauldron_core import konfig
from kauldron_core.errors import ConfigError
from kauldron_core.konfig.calls.signatures import signature_of

with konfig.imports():
    import functools as cfunctools

    import optax
    from flax import linen as nn
    from flax import nnx

    from tests.kauldron_core.konfig import sample

TYPOS = {
    "function": (
        lambda: optax.adam(learnig_rate=0.1),
        "optax.adam: unknown argument 'learnig_rate'. Did you mean 'lear",
    ),
    "flax module": (lambda: nn.Dense(feature=3), "nn.Dense: unknown argument 'feature'. Did you mean 'features'?"),
    "nnx module": (lambda: nnx.Linear(1, 2, rng=0), "nnx.Linear: unknown argument 'rng'. Did you mean 'rngs'?"),
    "dataclass": (lambda: sample.Layer(1, scal=1.0), "sample.Layer: unknown argument 'scal'. Did you mean 'scale'?"),
    "named tuple": (lambda: sample.Point(1, z=2), "sample.Point: unknown argument 'z'."),
    "class with __init__": (lambda: sample.Layer.Nested(y=1), "sample.Layer.Nested: unknown argument 'y'."),
    "class method": (
        lambda: sample.Layer.doubled(sise=1),
        "sample.Layer.doubled: unknown argument 'sise'. Did you mean",
    ),
    "partial": (
        lambda: cfunctools.partial(nn.Dense, feature=3),
        "unknown argument 'feature'. Did you mean 'features'?",
    ),
    "too many by position": (lambda: sample.Point(1, 2, 3), "takes 2 arguments by position; there is no number 2"),
    "twice": (lambda: sample.Point(1, x=2), "'x' is given by name and by position"),
    "from a dict": (
        lambda: konfig.ConfigDict({"a": [{"__qualname__": "optax:sgd", "lr": 1}]}),
        "cfg.a[0]: optax.sgd: unknown argument 'lr'.",
    ),
}


@pytest.mark.parametrize("name", TYPOS)
def test_a_typo_in_a_call_is_refused(name):
    make, message = TYPOS[name]
    with pytest.raises(ConfigError) as caught:
        made = make()
        konfig.ConfigDict({"x": made})  # A partial becomes a call when it is put into a config.
    assert message in str(caught.value)
    assert isinstance(caught.value, TypeError) and "\n" not in str(caught.value)


def test_a_typo_in_an_assignment_is_refused():
    cfg = konfig.ConfigDict({"optimizer": optax.adam(learning_rate=0.1), "model": nn.Dense(3)})
    with pytest.raises(
        ConfigError, match=r"optax\.adam: unknown argument 'learning_rat'\. Did you mean 'learning_rate'"
    ):
        cfg.optimizer.learning_rat = 1.0
    with pytest.raises(ConfigError, match=r"'features' is given by position already; set \[0\]"):
        cfg.model.features = 4
    with pytest.raises(ConfigError, match="is given by name and by position"):
        cfg.optimizer[0] = 0.1
    with pytest.raises(ConfigError, match="not the name of an argument"):
        cfg.optimizer[None] = 1
    cfg.optimizer.b1 = 0.8
    cfg.model.use_bias = False
    assert konfig.resolve(cfg).model == flax_nn.Dense(3, use_bias=False)


def test_targets_with_kwargs_take_anything():
    cfg = sample.Anything(1, 2, 3, whatever=4)
    cfg.more = 5
    assert konfig.resolve(cfg).kwargs == {"whatever": 4, "more": 5}


def test_a_missing_argument_is_found_when_resolved():
    with pytest.raises(ConfigError, match=r"cfg\.x: nn\.Dense: the argument 'features' is needed"):
        konfig.resolve(konfig.ConfigDict({"x": nn.Dense()}))
    konfig.resolve(konfig.ConfigDict({"x": cfunctools.partial(nn.Dense)}))


def test_a_gap_between_positional_arguments_is_found():
    cfg = sample.Anything(1, 2, 3)
    del cfg[1]
    with pytest.raises(ConfigError, match="positional argument 1 is missing before number 2"):
        konfig.resolve(cfg)


def test_targets_that_are_not_imported_are_checked_when_resolved(tmp_path, monkeypatch):
    (tmp_path / "a_module_for_later.py").write_text("def function(size): return size\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with konfig.imports(lazy=True):
        import a_module_for_later
    cfg = a_module_for_later.function(sise=3)
    assert "a_module_for_later" not in sys.modules
    with pytest.raises(ConfigError, match=r"unknown argument 'sise'\. Did you mean 'size'"):
        konfig.resolve(cfg)
    with pytest.raises(ConfigError, match="unknown argument"):
        a_module_for_later.function(sice=3)  # Now it is imported.
    del sys.modules["a_module_for_later"]


def test_builtin_functions_without_a_signature_take_anything():
    assert konfig.resolve({"__qualname__": "builtins:dict", "a": 1}) == {"a": 1}
    assert signature_of(dict) is None


def test_wrapped_and_unhashable_targets():
    @functools.wraps(sample_function)
    def wrapper(*args, **kwargs):
        return sample_function(*args, **kwargs)

    class Unhashable:
        __hash__ = None

        def __call__(self, x): ...

    assert signature_of(wrapper).by_name == {"a", "b"}
    assert signature_of(Unhashable()).by_name == {"x"}


def sample_function(a, b=1): ...
