"""Meshes from plain numbers: what is worked out, what is refused, which devices become neighbours."""

import dataclasses

import jax
import pytest

from kauldron_core.errors import ConfigError
from kauldron_core.sharding import MeshSpec, current_mesh, in_mesh


@dataclasses.dataclass(frozen=True)
class Device:
    """As much of a device as a layout looks at."""

    id: int
    process_index: int = 0
    slice_index: int = 0
    platform: str = "cpu"
    device_kind: str = "cpu"


def devices(count, *, per_slice=None, per_process=None):
    return [
        Device(i, slice_index=i // (per_slice or count), process_index=i // (per_process or per_slice or count))
        for i in range(count)
    ]


def ids(grid):
    return [device.id for device in grid.flat]


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({}, {"data": 8}),
        ({"axes": ("data", "fsdp")}, {"data": 8, "fsdp": 1}),
        ({"axes": ("data", "fsdp", "model"), "ici_shape": (1, -1, 2)}, {"data": 1, "fsdp": 4, "model": 2}),
        ({"axes": ["data", "model"], "ici_shape": [2, 4]}, {"data": 2, "model": 4}),
        ({"axes": "x", "ici_shape": 8}, {"x": 8}),
    ],
)
def test_one_size_is_worked_out(fields, shape):
    spec = MeshSpec(**fields)
    assert spec.shape(devices(8)) == shape
    assert list(spec.device_grid(devices(8)).shape) == list(shape.values())
    assert spec == MeshSpec(**fields) and hash(spec) == hash(MeshSpec(**fields))


def test_slices_are_the_outer_part_of_their_axis():
    spec = MeshSpec(axes=("a", "b", "c"), ici_shape=(1, 2, 2), dcn_shape=(1, 1, 2))
    grid = spec.device_grid(devices(8, per_slice=4))
    assert spec.shape(devices(8, per_slice=4)) == {"a": 1, "b": 2, "c": 4}
    # A plain reshape would tear the slices apart: [[0, 1, 2, 3], [4, 5, 6, 7]].
    assert ids(grid) == [0, 1, 4, 5, 2, 3, 6, 7]


def test_processes_stand_for_slices_where_there_are_none():
    spec = MeshSpec(axes=("data", "fsdp"), ici_shape=(1, -1), dcn_shape=(-1, 1))
    found = devices(8, per_process=2)
    assert spec.shape(found) == {"data": 4, "fsdp": 2}
    assert ids(spec.device_grid(found)) == list(range(8))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ici_shape": (6,)}, "sharding.mesh.ici_shape: (6,) needs 6 devices, not the 8 devices there are."),
        (
            {"axes": ("data", "model"), "ici_shape": (-1, 3)},
            "sharding.mesh.ici_shape: (-1, 3) needs a multiple of 3 devices, not the 8 devices there are.",
        ),
        (
            {"axes": ("data", "model"), "ici_shape": (4, 2), "dcn_shape": (2, 1)},
            "sharding.mesh.ici_shape: (4, 2) needs 8 devices, not the 4 devices in each of 2 slices there are.",
        ),
        (
            {"axes": ("data", "model"), "ici_shape": (2, 2), "dcn_shape": (3, 1)},
            "sharding.mesh.dcn_shape: (3, 1) needs 3 slices, not the 2 slices there are.",
        ),
    ],
)
def test_a_shape_that_does_not_fit_says_both_numbers(fields, message):
    with pytest.raises(ConfigError) as error:
        MeshSpec(**fields).device_grid(devices(8, per_slice=4 if "dcn_shape" in fields else None))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"axes": ("a", "b"), "ici_shape": (-1, -1)}, "has -1 more than once"),
        ({"axes": ("a", "b"), "ici_shape": (8,)}, "must have a size for each of the axes ('a', 'b')"),
        ({"axes": ("a", "a")}, "each once"),
        ({"axes": ()}, "one or more names"),
        ({"ici_shape": (0,)}, "neither positive nor -1"),
        ({"axis_types": "explizit"}, "unknown type 'explizit'. Did you mean 'explicit'? Available: auto, explicit."),
        ({"axis_types": ("auto", "auto")}, "one for all axes, or one for each"),
    ],
)
def test_a_description_without_sense_is_refused_when_made(fields, message):
    with pytest.raises(ConfigError) as error:
        MeshSpec(**fields)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_mesh_of_other_machines_fits_the_devices_there_are():
    spec = MeshSpec(axes=("fsdp", "model"), ici_shape=(4, 2), dcn_shape=(2, 1))
    assert spec.fitting(devices(1)).shape(devices(1)) == {"fsdp": 1, "model": 1}
    assert spec.fitting(devices(3)).shape(devices(3)) == {"fsdp": 3, "model": 1}
    assert spec.fitting(devices(16, per_slice=8)) is spec


def test_axes_are_auto_unless_told():
    auto, explicit = MeshSpec().build(), MeshSpec(axis_types="explicit").build()
    assert auto.axis_types == (jax.sharding.AxisType.Auto,)
    assert explicit.axis_types == (jax.sharding.AxisType.Explicit,)


def test_the_mesh_in_scope_is_the_innermost():
    outer, inner = MeshSpec(axes=("x",)).build(), MeshSpec(axes=("y",)).build()
    assert current_mesh().axis_names == ("data",)
    with jax.set_mesh(outer):
        assert current_mesh().axis_names == ("x",)
        with in_mesh(inner):
            assert current_mesh() is inner
            assert jax.sharding.get_abstract_mesh().axis_names == ("y",)
        assert current_mesh().axis_names == ("x",)
