"""A checkpoint of one trial of a pack: a pointer to its row in a checkpoint of all trials together.

It lies where a checkpoint of a trial alone would lie, and says of itself what that one would say; only its arrays are
elsewhere, stacked with those of the other trials along a new first dimension.
"""

from __future__ import annotations

import dataclasses
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any

import jax
from etils import epath
from jax.sharding import SingleDeviceSharding

from kauldron_core import rundir
from kauldron_core.ckpts import layout
from kauldron_core.rundir import committed


@dataclasses.dataclass(frozen=True)
class Row:
    """A place in stacked arrays.

    Attributes:
      path: The checkpoint of the pack.
      row: Which trial.
      size: How many trials it holds.
    """

    path: epath.Path
    row: int
    size: int

    def stacked(self, template: Any) -> Any:
        """Returns the shapes of the stacked arrays."""
        device = SingleDeviceSharding(jax.local_devices()[0])

        def stack(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((self.size, *leaf.shape), leaf.dtype, sharding=device)

        return jax.tree.map(stack, template)

    def taken(self, arrays: Any, template: Any) -> Any:
        """Returns the row of stacked arrays, placed as in the template."""

        def take(array: Any, leaf: Any) -> Any:
            sharding = getattr(leaf, "sharding", None)
            return array[self.row] if sharding is None else jax.device_put(array[self.row], sharding)

        return jax.tree.map(take, arrays, template)


def find(path: epath.Path) -> Row | None:
    """Returns where the arrays of a checkpoint are, None if it has its own."""
    try:
        found = layout.read_json(path / layout.POINTER, rundir.formats.POINTER)
    except (FileNotFoundError, NotADirectoryError):
        return None
    place = os.path.normpath(path / found["pack"])
    is_checkpoint = committed.NAME.fullmatch(os.path.basename(place)) and not os.path.isabs(found["pack"])
    if not is_checkpoint or not 0 <= found["row"] < found["size"]:
        raise rundir.DamagedFile(f"{path / layout.POINTER}: damaged, it points to no row of a checkpoint.")
    return Row(epath.Path(place), found["row"], found["size"])


def write(path: epath.Path, target: Row, *, data_state: Any, metadata: Mapping[str, Any]) -> None:
    """Writes the pointer `path`; a kill leaves all of it or none.

    Args:
      path: Where the checkpoint of the trial belongs.
      target: Where its arrays are.
      data_state: State of the data iterator.
      metadata: What the checkpoint says of itself.
    """
    draft = path.with_name(f".{path.name}.draft-{uuid.uuid4().hex}")
    draft.mkdir()
    for part, content in ((layout.DATA, {"iterator": data_state}), (layout.METADATA, metadata)):
        (draft / part).mkdir()
        (draft / part / layout.METADATA).write_text(rundir.dumps(content))
    # Relative, so that the run directory can be moved.
    place = os.path.relpath(target.path, path)
    (draft / layout.POINTER).write_text(json.dumps({"pack": place, "row": target.row, "size": target.size}))
    draft.rename(path)
