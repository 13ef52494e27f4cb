"""A config reads and writes like an object, keeps its types, and follows its references."""

import copy
import pickle

import pytest

from kauldron_core import konfig


@pytest.fixture
def cfg():
    return konfig.ConfigDict({"steps": 100, "model": {"width": 8, "layers": [{"size": 1}, {"size": 2}]}})


def test_references_follow_their_source_through_copies_and_pickles(cfg):
    cfg.decay = cfg.ref.steps * 2 + 1
    for other in (cfg, copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg)), konfig.from_json(konfig.to_json(cfg))):
        other.steps = 7
        assert other.decay == 15


def test_shared_nodes_stay_shared(cfg):
    cfg.again = cfg.model
    for other in (copy.deepcopy(cfg), pickle.loads(pickle.dumps(cfg)), konfig.from_json(konfig.to_json(cfg))):
        assert other.again is other.model and other.model is not cfg.model


def test_a_saved_config_is_read_back_equal(cfg, tmp_path):
    konfig.save(cfg, tmp_path / "config.json")
    assert konfig.load(tmp_path / "config.json") == cfg
