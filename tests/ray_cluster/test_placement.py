"""Requests that can't fit are refused with both numbers; evaluators leave trials their room."""

import pytest

from kauldron_core.errors import ConfigError
from ray_cluster import EvalPool, Plan, PlannedTrial, Sweep
from ray_cluster.cluster.placement import actor_options, refuse_impossible, share_when_tight

LAPTOP = {"CPU": 2.0, "memory": 16e9, "object_store_memory": 1e9}


def _plan(resources, *, own=None, pools=()) -> Plan:
    trial = PlannedTrial(name="0000", index=0, fingerprint="a", config_json="{}", resources=own)
    return Plan(sweep=Sweep(resources=resources), run_dir="runs/a", trials=(trial,), pools=pools)


def test_four_gpus_on_a_cpu_machine_are_refused_with_asked_and_available():
    """U14: four gpus on a cpu machine are refused with asked and available."""
    with pytest.raises(ConfigError) as caught:
        refuse_impossible(_plan({"GPU": 4}), [LAPTOP])
    assert str(caught.value) == ("run.resources: asked for GPU 4 on one node. Available: a node with GPU 0, CPU 2.")


def test_a_resource_that_no_node_knows_is_named_with_the_closest():
    with pytest.raises(ConfigError, match=r"run\.resources: unknown resource 'CPUS'\. Did you mean 'CPU'\?"):
        refuse_impossible(_plan({"CPUS": 1}), [LAPTOP])
    refuse_impossible(_plan({"disks": 1}), [LAPTOP, {**LAPTOP, "disks": 2.0}])


def test_a_trial_must_fit_one_node_not_their_sum():
    with pytest.raises(ConfigError, match="asked for CPU 3 on one node"):
        refuse_impossible(_plan({"CPU": 3}), [LAPTOP, LAPTOP])
    refuse_impossible(_plan({"CPU": 2}), [{"CPU": 1.0}, LAPTOP])


def test_a_trials_own_resources_count():
    """S10: a trials own resources count."""
    with pytest.raises(ConfigError, match="asked for CPU 8"):
        refuse_impossible(_plan({"CPU": 1}, own={"CPU": 8}), [LAPTOP])


def test_evaluators_that_fit_nowhere_are_refused():
    pools = (EvalPool(evaluators=("test",), resources={"GPU": 1}),)
    with pytest.raises(ConfigError, match="evaluators of job group 'eval': asked for GPU 1"):
        refuse_impossible(_plan({"CPU": 1}, pools=pools), [LAPTOP])


@pytest.mark.parametrize(("trial", "kept"), [({"CPU": 1}, {"CPU": 1}), ({"CPU": 2}, {})])
def test_an_evaluator_gives_up_its_cpu_only_where_no_trial_would_fit_beside_it(trial, kept):
    pools = (EvalPool(evaluators=("test",), resources={"CPU": 1}),)
    assert share_when_tight(pools, _plan(trial, pools=pools), [LAPTOP])[0].resources == kept


def test_actor_options_use_rays_names():
    options = actor_options({"CPU": 2, "GPU": 0.5, "memory": 1e9, "TPU": 4})
    assert options == {"num_cpus": 2, "num_gpus": 0.5, "memory": 1e9, "resources": {"TPU": 4}}
    assert actor_options({}) == {"num_cpus": 0}
