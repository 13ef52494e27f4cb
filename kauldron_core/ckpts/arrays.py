"""Reads the arrays of a checkpoint from its files: all of them, or those at some paths and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import jax
from etils import epath

from kauldron_core.ckpts import layout, pointers
from kauldron_core.ckpts.mismatch import path_text

_T = TypeVar("_T")


def read_all(path: epath.Path, template: Any) -> Any:
    """Returns the arrays of the checkpoint `path` in the structure of `template`, which must be the saved one."""
    import orbax.checkpoint as ocp  # Takes seconds, and only who reads or writes a checkpoint needs it.

    if (row := pointers.find(path)) is not None:
        return row.taken(read_all(row.path, row.stacked(template)), template)
    item = jax.tree.map(_with_sharding, template)
    arguments = ocp.args.PyTreeRestore(item, restore_args=ocp.checkpoint_utils.construct_restore_args(item))
    return _restore(path, arguments)


def read_some(path: epath.Path, wanted: Mapping[str, Any]) -> dict[str, jax.Array]:
    """Returns the arrays at some paths of the checkpoint; the others are not read.

    Args:
      path: The checkpoint.
      wanted: Shapes, types and shardings by path, as `mismatch.describe` writes paths.
    """
    import orbax.checkpoint as ocp  # Takes seconds, and only who reads or writes a checkpoint needs it.

    if (row := pointers.find(path)) is not None:
        return row.taken(read_some(row.path, row.stacked(dict(wanted))), dict(wanted))
    specs = {place: _with_sharding(leaf) for place, leaf in wanted.items()}
    saved = _handler().metadata(path / layout.STATE).tree
    item = jax.tree_util.tree_map_with_path(lambda place, _: specs.get(path_text(place), ocp.PLACEHOLDER), saved)
    restore_args = jax.tree.map(
        lambda leaf: (
            ocp.RestoreArgs() if leaf is ocp.PLACEHOLDER else ocp.checkpoint_utils.construct_restore_args(leaf)
        ),
        item,
    )
    found = _restore(path, ocp.args.PyTreeRestore(item, restore_args=restore_args))
    leaves, _ = jax.tree_util.tree_flatten_with_path(found)
    return {path_text(place): leaf for place, leaf in leaves if path_text(place) in specs}


def _restore(path: epath.Path, arguments: Any) -> Any:
    import orbax.checkpoint as ocp  # Takes seconds, and only who reads or writes a checkpoint needs it.

    with ocp.Checkpointer(_handler()) as reader:
        # Orbax takes absolute paths only.
        return reader.restore(path.absolute() / layout.STATE, args=arguments)


def _with_sharding(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None) or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _handler() -> Any:
    """Returns the Orbax handler of array trees.

    Orbax reads all arrays at once in an event loop that it closes when the first one fails. The others then report to
    a loop that is gone, and each prints a traceback ("Event loop is closed"). So this one waits for them.
    """
    import orbax.checkpoint as ocp  # Takes seconds, and only who reads or writes a checkpoint needs it.

    handlers = ocp.type_handlers

    class PatientArrays(handlers.ArrayHandler):
        def __init__(self):
            # Set up as Orbax sets up its own.
            vars(self).update(vars(handlers.get_type_handler(jax.Array)))

        async def metadata(self, infos: Any) -> Any:
            return await _to_the_end(super().metadata(infos))

        async def deserialize(self, infos: Any, args: Any = None) -> Any:
            return await _to_the_end(super().deserialize(infos, args))

    registry = handlers.create_type_handler_registry((jax.Array, PatientArrays()))
    return ocp.PyTreeCheckpointHandler(type_handler_registry=registry)


async def _to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Result of `work`; if it fails, the error is raised once the tasks that it started have ended."""
    before = asyncio.all_tasks()
    try:
        return await work
    except Exception:
        if started := asyncio.all_tasks() - before:
            await asyncio.wait(started)
        raise
