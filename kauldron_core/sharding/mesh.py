"""`MeshSpec`: a device mesh as a config describes it, and the mesh that rules use when nobody hands them one."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh

from kauldron_core.errors import ConfigError, unknown_name

AxisTypeName: TypeAlias = Literal["auto", "explicit"]
AnyMesh: TypeAlias = Mesh | AbstractMesh

DATA_AXES = ("replica", "data", "fsdp", "batch", "devices", "hosts")
"""Names of the axes that split a batch, unless one is told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshSpec:
    """Devices in a grid with named axes.

        kd.sharding.MeshSpec(axes=("data", "model"), ici_shape=(-1, 4))

    Attributes:
      axes: Names of the axes, from the outermost (least communication) to the innermost (most).
      ici_shape: Size of each axis within a slice, whose devices have fast links: the whole machine where there is one
        slice. One size may be -1: what is left. None puts all devices on the first axis.
      dcn_shape: Size of each axis across slices, or across processes where devices belong to no slice; the mesh is
        the product of both. One size may be -1. None is for a single slice.
      axis_types: `auto` lets the compiler work out shardings inside a program, `explicit` makes them part of the types
        of arrays; one for all axes, or one for each.
      allow_split_physical_axes: Whether an axis may be laid over a part of a physical one (TPU only).
    """

    axes: Sequence[str] = ("data",)
    ici_shape: Sequence[int] | None = None
    dcn_shape: Sequence[int] | None = None
    axis_types: AxisTypeName | Sequence[AxisTypeName] = "auto"
    allow_split_physical_axes: bool = False

    def __post_init__(self):
        for name in ("axes", "ici_shape", "dcn_shape", "axis_types"):
            value = getattr(self, name)
            if value is not None and not (name == "axis_types" and isinstance(value, str)):
                object.__setattr__(self, name, (value,) if isinstance(value, (str, int)) else tuple(value))
        _check(self)

    def shape(self, devices: Sequence[Any] | None = None) -> dict[str, int]:
        """Returns the size of each axis over `devices` (all, if None)."""
        ici, dcn = self._shapes(_all(devices))
        return {axis: i * d for axis, i, d in zip(self.axes, ici, dcn, strict=True)}

    def device_grid(self, devices: Sequence[Any] | None = None) -> np.ndarray:
        """Returns the devices in the order of the mesh, so that neighbours in the grid have fast links.

        Raises:
          ConfigError: If the shape does not fit the number of devices.
        """
        devices = _all(devices)
        ici, dcn = self._shapes(devices)
        split = self.allow_split_physical_axes
        if math.prod(dcn) == 1:
            return mesh_utils.create_device_mesh(ici, devices, allow_split_physical_axes=split)
        return mesh_utils.create_hybrid_device_mesh(
            ici, dcn, devices, process_is_granule=not _has_slices(devices), allow_split_physical_axes=split
        )

    def build(self, devices: Sequence[Any] | None = None) -> Mesh:
        """Returns the mesh over `devices` (all, if None)."""
        types = (self.axis_types,) * len(self.axes) if isinstance(self.axis_types, str) else self.axis_types
        kinds = {"auto": AxisType.Auto, "explicit": AxisType.Explicit}
        return Mesh(self.device_grid(devices), tuple(self.axes), axis_types=tuple(kinds[name] for name in types))

    def fitting(self, devices: Sequence[Any] | None = None) -> MeshSpec:
        """Returns this mesh, or where it does not fit `devices` one with the same axes and all of them on one axis.

        For what was trained elsewhere: a run of eight devices is evaluated on the one there is.
        """
        try:
            self._shapes(_all(devices))
        except ConfigError:
            first = data_axes(self.axes)[0]
            shape = tuple(-1 if axis == first else 1 for axis in self.axes)
            return dataclasses.replace(self, ici_shape=shape, dcn_shape=None)
        return self

    def _shapes(self, devices: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Returns the shape within and across slices, without -1."""
        slices, kind = 1, "slices" if _has_slices(devices) else "processes"
        dcn = (1,) * len(self.axes)
        if self.dcn_shape is not None:
            slices = len({_granule(device, kind == "slices") for device in devices})
            dcn = _filled(tuple(self.dcn_shape), slices, at="sharding.mesh.dcn_shape", what=kind)
        ici = (-1, *(1,) * (len(self.axes) - 1)) if self.ici_shape is None else tuple(self.ici_shape)
        what = "devices" if slices == 1 else f"devices in each of {slices} {kind}"
        if len(devices) % slices:
            raise ConfigError(
                f"sharding.mesh.dcn_shape: {len(devices)} devices are not shared equally by {slices} {kind}."
            )
        return _filled(ici, len(devices) // slices, at="sharding.mesh.ici_shape", what=what), dcn


@functools.lru_cache(maxsize=32)
def built(spec: MeshSpec, devices: tuple[Any, ...]) -> Mesh:
    """Returns the mesh of `spec`. Remembered: a step asks for it again and again."""
    return spec.build(devices)


def data_axes(axes: Sequence[str]) -> tuple[str, ...]:
    """Returns those of `axes` that split a batch: by their names (`DATA_AXES`), else the first."""
    return tuple(axis for axis in axes if axis in DATA_AXES) or tuple(axes[:1])


def check_axes(axes: Sequence[str], mesh: AnyMesh, *, at: str) -> None:
    """Raises ConfigError if `mesh` lacks one of `axes`."""
    for axis in axes:
        if axis not in mesh.axis_names:
            raise ConfigError(unknown_name("mesh axis", axis, mesh.axis_names, at=at))


_current: contextvars.ContextVar[AnyMesh | None] = contextvars.ContextVar("mesh", default=None)


@contextlib.contextmanager
def in_mesh(mesh: AnyMesh) -> Iterator[None]:
    """Makes `mesh` the one that rules use when they are called, and that JAX uses for a bare `PartitionSpec`.

    Works inside a traced function and then costs nothing when it runs.
    """
    token = _current.set(mesh)
    try:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            yield
    finally:
        _current.reset(token)


def mesh_in_scope() -> AnyMesh | None:
    """Returns the mesh of `in_mesh`, else that of `jax.set_mesh`, else None."""
    if (mesh := _current.get()) is not None:
        return mesh
    ambient = jax.sharding.get_abstract_mesh()
    return None if ambient.empty else ambient


def current_mesh() -> AnyMesh:
    """Returns the mesh in scope, else all devices along one axis `data`."""
    return mesh_in_scope() or built(MeshSpec(), tuple(jax.devices()))


def _all(devices: Sequence[Any] | None) -> Sequence[Any]:
    return jax.devices() if devices is None else list(devices)


def _has_slices(devices: Sequence[Any]) -> bool:
    return len({getattr(device, "slice_index", None) for device in devices}) > 1


def _granule(device: Any, by_slice: bool) -> Any:
    return device.slice_index if by_slice else device.process_index


def _filled(shape: tuple[int, ...], count: int, *, at: str, what: str) -> tuple[int, ...]:
    """Returns `shape` with -1 replaced, so that its product is `count`."""
    known = math.prod(size for size in shape if size != -1)
    if -1 in shape and count % known == 0:
        return tuple(count // known if size == -1 else size for size in shape)
    if known != count:
        asks = f"a multiple of {known}" if -1 in shape else str(known)
        raise ConfigError(f"{at}: {shape} needs {asks} {what.split()[0]}, not the {count} {what} there are.")
    return shape


def _check(spec: MeshSpec) -> None:
    axes = spec.axes
    if not axes or len(set(axes)) != len(axes):
        raise ConfigError(f"sharding.mesh.axes: {axes} must be one or more names, each once.")
    for name in ("ici_shape", "dcn_shape"):
        shape = getattr(spec, name)
        if shape is None:
            continue
        if len(shape) != len(axes):
            raise ConfigError(f"sharding.mesh.{name}: {shape} must have a size for each of the axes {axes}.")
        if shape.count(-1) > 1:
            raise ConfigError(f"sharding.mesh.{name}: {shape} has -1 more than once; only one size can be worked out.")
        if any(size < 1 and size != -1 for size in shape):
            raise ConfigError(f"sharding.mesh.{name}: {shape} holds a size that is neither positive nor -1.")
    types = spec.axis_types
    if not isinstance(types, str) and len(types) != len(axes):
        raise ConfigError(f"sharding.mesh.axis_types: {types} must be one for all axes, or one for each of {axes}.")
    for kind in (types,) if isinstance(types, str) else types:
        if kind not in get_args(AxisTypeName):
            raise ConfigError(unknown_name("type", kind, get_args(AxisTypeName), at="sharding.mesh.axis_types"))
