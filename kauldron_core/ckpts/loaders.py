"""Starts a run from another run's checkpoint, or from parts of it: config entries for `Trainer.init_transform`.

`transform(state)` is called once, on a fresh state, and gives the state back with the saved values in it. Structure,
shapes, types and shardings stay as they are in the fresh state; what does not fit is refused. An optimizer that
starts from the parameters (an average of them, say) should be initialised in between: with `opt_state=None` in the
state, `transform` leaves its entries to `transform_after_optimizer`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import jax
from etils import epath

from kauldron_core import paths, rundir
from kauldron_core.ckpts import globs, layout, mismatch, reader
from kauldron_core.errors import ConfigError, listing, unknown_name

_T = TypeVar("_T")
_OPTIMIZER = "opt_state"
_MODEL = ("params", "collections")


class InitTransform(Protocol):
    """What may change the state before the first step."""

    def transform(self, state: _T) -> _T:
        """Returns the state to start from; `state` is a fresh one."""
        ...

    def transform_after_optimizer(self, state: _T) -> _T:
        """Returns the state with the optimizer's part changed, as it is by default; called once there is one."""
        return state


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimpleCheckpointLoader:
    """Starts from the parameters and collections of a checkpoint, which must be exactly those of the model.

    Attributes:
      workdir: The folder of the other run or trial, of its checkpoints, or of one checkpoint. It is only read.
      step: Which checkpoint; -1 is the newest.
      load_opt_state: Take the optimizer's state too.
    """

    workdir: str | os.PathLike[str]
    step: int = -1
    load_opt_state: bool = False

    def transform(self, state: _T) -> _T:
        """Returns `state` with the saved values."""
        return self._partial.transform(state)

    def transform_after_optimizer(self, state: _T) -> _T:
        """Returns `state` with the saved state of the optimizer."""
        return self._partial.transform_after_optimizer(state)

    @property
    def _partial(self) -> PartialKauldronLoader:
        parts = (*_MODEL, _OPTIMIZER) if self.load_opt_state else _MODEL
        return PartialKauldronLoader(
            workdir=self.workdir, step=self.step, new_to_old=dict(zip(parts, parts, strict=True))
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartialKauldronLoader:
    """Starts from parts of a checkpoint, which may have other names in this model.

        PartialKauldronLoader(workdir="runs/pretrain", new_to_old={"params.encoder": "params.enc"}, ignore=["**.bias"])

    Every array below the new path must be in the checkpoint below the old one, and the other way round, with the same
    shape and type: nothing is cast.

    Attributes:
      workdir: The folder of the other run or trial, of its checkpoints, or of one checkpoint. It is only read.
      new_to_old: Paths in this state to paths in the checkpoint.
      ignore: Globs of arrays that are left out on both sides, by their whole path or the path below an entry of
        `new_to_old`: the model keeps its own. `*` is one part, `**` any number.
      ignore_model_keys: Such globs for arrays of the model that the checkpoint may lack.
      ignore_restored_keys: Such globs for arrays of the checkpoint that the model may lack.
      step: Which checkpoint; -1 is the newest.
    """

    workdir: str | os.PathLike[str]
    new_to_old: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(zip(_MODEL, _MODEL, strict=True)))
    ignore: tuple[str, ...] = ()
    ignore_model_keys: tuple[str, ...] = ()
    ignore_restored_keys: tuple[str, ...] = ()
    step: int = -1

    def __post_init__(self):
        if not self.new_to_old:
            raise ConfigError("new_to_old: empty, there is nothing to load.")
        for name in ("ignore", "ignore_model_keys", "ignore_restored_keys"):
            patterns = getattr(self, name)
            object.__setattr__(self, name, (patterns,) if isinstance(patterns, str) else tuple(patterns))

    def transform(self, state: _T) -> _T:
        """Returns `state` with the saved values."""
        if _part(state, _OPTIMIZER) is not None:
            return self._load(state, dict(self.new_to_old))
        return self._load(state, {new: old for new, old in self.new_to_old.items() if not _is_optimizer(new)})

    def transform_after_optimizer(self, state: _T) -> _T:
        """Returns `state` with the saved values of the optimizer's state."""
        return self._load(state, {new: old for new, old in self.new_to_old.items() if _is_optimizer(new)})

    def _load(self, state: _T, new_to_old: Mapping[str, str]) -> _T:
        if not new_to_old:
            return state
        path = find_checkpoint(self.workdir, step=self.step)
        saved: dict[str, str] = reader.read_metadata(path)["state"]
        leaves, structure = jax.tree_util.tree_flatten_with_path(state)
        fresh = {mismatch.path_text(place): leaf for place, leaf in leaves}
        sources = self._match(path, saved, fresh, new_to_old)
        found = reader.read_arrays(path, {old: fresh[new] for new, old in sources.items()})
        values = [found[sources[place]] if place in sources else leaf for place, leaf in fresh.items()]
        return jax.tree.unflatten(structure, values)

    def _match(
        self, path: epath.Path, saved: Mapping[str, str], fresh: Mapping[str, Any], new_to_old: Mapping[str, str]
    ) -> dict[str, str]:
        """Returns the saved path of each array to load, by its path in the state."""
        sources: dict[str, str] = {}
        extra: dict[str, str] = {}
        missing: dict[str, str] = {}
        for new, old in new_to_old.items():
            inside_new, inside_old = _below(fresh, new), _below(saved, old)
            _check_entry(new, inside_new, fresh, at=f"new_to_old[{new!r}]", what="path in the state")
            _check_entry(old, inside_old, saved, at=f"new_to_old[{new!r}]", what="path in the checkpoint")
            for rest in inside_new:
                place = _join(new, rest)
                if globs.matches_any(self.ignore, place, rest):
                    continue
                if rest in inside_old:
                    sources[place] = _join(old, rest)
                elif not globs.matches_any(self.ignore_model_keys, place, rest):
                    missing[place] = mismatch.spec_text(fresh[place])
            for rest in inside_old:
                place = _join(old, rest)
                is_left_out = globs.matches_any((*self.ignore, *self.ignore_restored_keys), place, rest)
                if rest not in inside_new and not is_left_out:
                    extra[place] = saved[place]
        # Under the names of the new state, so that both sides of a difference stand in one line.
        offered = {place: saved[old] for place, old in sources.items()} | extra
        wanted = {place: mismatch.spec_text(fresh[place]) for place in sources} | missing
        mismatch.compare(offered, wanted, place=str(path))
        return sources


@dataclasses.dataclass(frozen=True)
class MultiTransform:
    """Several transforms, one after the other.

    Attributes:
      transforms: The transforms by name; names are for messages.
    """

    transforms: Mapping[str, InitTransform]

    def __init__(self, **transforms: InitTransform):
        object.__setattr__(self, "transforms", transforms)

    def transform(self, state: _T) -> _T:
        """Returns `state` after all of them."""
        for name, part in self.transforms.items():
            state = self._naming(name, part.transform, state)
        return state

    def transform_after_optimizer(self, state: _T) -> _T:
        """Returns `state` after all of them; those that do nothing to the optimizer are passed over."""
        for name, part in self.transforms.items():
            if hasattr(part, "transform_after_optimizer"):
                state = self._naming(name, part.transform_after_optimizer, state)
        return state

    def _naming(self, name: str, change: Any, state: _T) -> _T:
        try:
            return change(state)
        except Exception as error:
            error.add_note(f"while applying init_transform.{name}")
            raise


def find_checkpoint(workdir: str | os.PathLike[str], *, step: int = -1) -> epath.Path:
    """Returns the checkpoint at `step` (-1: the newest) of a trial, of a folder of checkpoints, or the one named.

    Raises:
      MissingCheckpoint: If there is none.
    """
    rundir.check_path(workdir, at="workdir")
    folder = epath.Path(workdir).absolute()
    if layout.is_committed(folder):
        if step not in (-1, layout.step_of(folder)):
            raise ConfigError(f"step: {step} is asked for, and {folder} is one checkpoint. Leave one of them out.")
        return folder
    candidates = [place for place in (folder / "checkpoints", folder) if place.exists()]
    steps = {place: layout.all_steps(place) for place in candidates}
    for place, found in steps.items():
        if found and step in (-1, *found):
            return layout.step_path(place, found[-1] if step == -1 else step)
    if not candidates:
        raise reader.MissingCheckpoint(f"{folder}: there is no such folder.")
    available = sorted({str(number) for found in steps.values() for number in found}, key=int)
    wanted = "there is no checkpoint" if step == -1 or not available else f"no checkpoint at step {step}"
    raise reader.MissingCheckpoint(f"{folder}: {wanted}. Available: {listing(available)}.")


def _part(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def _is_optimizer(path: str) -> bool:
    return _dotted(path).partition(".")[0] == _OPTIMIZER


def _dotted(path: str) -> str:
    """Returns `opt_state[0].mu` as `opt_state.0.mu`, the form in which checkpoints name their arrays."""
    return ".".join(str(part) for part in paths.parse(path))


def _below(leaves: Mapping[str, Any], path: str) -> set[str]:
    """Paths below `path`, relative to it; the empty text is `path` itself."""
    dotted = _dotted(path)
    if not dotted:
        return set(leaves)
    inside = {place.removeprefix(f"{dotted}.") for place in leaves if place.startswith(f"{dotted}.")}
    return inside | ({""} if dotted in leaves else set())


def _join(path: str, rest: str) -> str:
    return ".".join(part for part in (_dotted(path), rest) if part)


def _check_entry(path: str, inside: set[str], leaves: Mapping[str, Any], *, at: str, what: str) -> None:
    if inside or path in _MODEL:  # A model may have no collections.
        return
    parents = {".".join(place.split(".")[:depth]) for place in leaves for depth in range(1, place.count(".") + 2)}
    raise ConfigError(unknown_name(what, path, sorted(parents), at=at))
