"""TPU slices, with nodes that only say that they have TPUs: a trial's hosts are those of one slice, in its order."""

import time

import pytest

import ray_cluster
from kauldron_core import rundir
from kauldron_core.errors import ConfigError
from ray_cluster import Sweep
from ray_cluster.cluster import environment
from ray_cluster.spec import TpuSlice
from ray_cluster.workers.jax_process import ProcessSettings
from tests.ray_cluster import tiny

ASKED = TpuSlice("v4", "2x2x2")


@pytest.mark.parametrize(
    ("fields", "hosts"),
    [
        ({"accelerator": "v6e", "topology": "4x4", "resources": {"TPU": 4}}, 4),
        ({"accelerator": "TPU-V6E", "topology": "2x4", "resources": {"TPU": 8}}, 1),
        ({"accelerator": "v6e", "topology": "2x4", "resources": {"TPU": 4, "CPU": 8}, "hosts": 2}, 2),
    ],
)
def test_a_slice_says_how_many_hosts_a_trial_has(fields, hosts):
    assert Sweep(**fields).hosts == hosts


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"topology": "4x4"}, "run.accelerator: a TPU slice needs it, too."),
        ({"accelerator": "v6e"}, "run.topology: a TPU slice needs it, too."),
        ({"accelerator": "v6e", "topology": "4by4"}, "run.topology: '4by4' is no shape."),
        ({"accelerator": "v6e", "topology": "4x4"}, r"a slice v6e 4x4 has 16 chips, .* such as \{'TPU': 4\}; got"),
        ({"accelerator": "v6e", "topology": "4x4", "resources": {"TPU": 3}}, "has 16 chips"),
        ({"accelerator": "v6e", "topology": "4x4", "resources": {"TPU": 4}, "hosts": 2}, "run.hosts: 2, and a slice"),
    ],
)
def test_what_is_no_slice_is_refused_in_one_line(fields, fault):
    with pytest.raises(ConfigError, match=fault) as caught:
        Sweep(**fields)
    assert "\n" not in str(caught.value)


@pytest.fixture
def tpu_nodes(ray_session):
    """Two hosts of one slice join the session's Ray, in the other order."""
    import ray
    from ray._private import worker
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.head_node = worker._global_node
    cluster.redis_address = None
    for number in (1, 0):
        environment = {"TPU_NAME": "slice-a", "TPU_WORKER_ID": str(number)}
        labels = {
            "ray.io/tpu-slice-name": "slice-a",
            "ray.io/tpu-worker-id": str(number),
            "ray.io/tpu-pod-type": "v4-16",
            "ray.io/tpu-topology": "2x2x2",
        }
        head = {"TPU-v4-16-head": 1} if number == 0 else {}
        cluster.add_node(wait=False, num_cpus=1, resources={"TPU": 4, **head}, labels=labels, env_vars=environment)
    deadline = time.monotonic() + 30
    while sum(node["Alive"] for node in ray.nodes()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    yield
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node)


@pytest.mark.cluster
@pytest.mark.usefixtures("no_leaks", "tpu_nodes")
def test_a_trial_has_the_hosts_of_one_slice_in_their_order(tmp_path):
    import ray

    from ray_cluster.cluster import slices
    from ray_cluster.workers.worker_group import WorkerGroup

    assert slices.count(ASKED) == 1
    with pytest.raises(ConfigError, match=r"asked for a slice v6e 4x4\. Available: v4-16 2x2x2 \(hosts: 2\)"):
        slices.count(TpuSlice("v6e", "4x4"))
    with pytest.raises(ConfigError, match=r"unknown v4 topology '2x2x3'. Did you mean '2x2x4'?"):
        slices.count(TpuSlice("v4", "2x2x3"))

    group = WorkerGroup(
        ProcessSettings(run_dir=str(tmp_path)),
        resources={"TPU": 4},
        variables={"JAX_PLATFORMS": "cpu"},
        num_hosts=2,
        tpu_slice=ASKED,
    )
    deadline = time.monotonic() + 60
    while group.warmed(wait_s=0.5) is None:
        assert time.monotonic() < deadline
    # Another trial has to wait until this one gives its slice back.
    next_one = slices.Reservation(ASKED, resources={"TPU": 4}, num_hosts=2)
    assert next_one.take(wait_s=0.5) is None
    group.kill()
    placed = next_one.take(wait_s=20.0)
    assert placed is not None and placed.wait(20)
    nodes = {node["NodeID"]: node["Labels"].get("ray.io/tpu-worker-id") for node in ray.nodes()}
    bundles = ray.util.placement_group_table(placed)["bundles_to_node_id"]
    assert [nodes[bundles[number]] for number in range(2)] == ["0", "1"]
    next_one.release()


@pytest.mark.cluster
@pytest.mark.soak
@pytest.mark.usefixtures("no_leaks", "tpu_nodes")
def test_trials_that_own_a_slice_take_turns_on_it(run_dir, monkeypatch):
    # The nodes only say that they have TPUs: JAX finds its CPU there.
    monkeypatch.setattr(environment, "platform_of", lambda resources: "cpu")
    plan = tiny.plan(
        run_dir,
        *(tiny.trial(index) for index in range(2)),
        pools=(),
        accelerator="v4",
        topology="2x2x2",
        resources={"TPU": 4},
    )
    results = ray_cluster.run(plan)
    assert [row.status for row in results.rows] == ["done", "done"]
    run = rundir.RunDir(run_dir)
    workers = [rundir.read_status(run.trial(row.name))["worker"] for row in results.rows]
    assert workers[0]["pid"] == workers[1]["pid"]
    assert all((run.trial(row.name).logs / "stdout-1.log").exists() for row in results.rows)
