"""Whether numbers that can be traced give packed what they give alone: tried out, once for each kind of leaf.

A number may be traced and yet be used in another way than a number of Python would be: where a program branches on
`isinstance(x, float)`, or catches the error that `float(x)` raises and goes on with something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kauldron_core.packs.planning.first_steps import Alone, Member, Outcome, Packed, is_float
from kauldron_core.packs.planning.planner import shortly
from kauldron_core.packs.planning.tracing import schedule_above, table_of, traced_table_of

# By what a number is multiplied until one sees what it does: a weight decay of 1e-6 does nothing in three steps.
_FACTORS = (10.0, 0.1, 100.0, 0.01, 1e3, 1e-3, 1e4)
_VISIBLE = 100.0  # In units of what is tolerated,
_LARGE = 0.1  # or in units of what three steps change: enough, however much is tolerated.
_NOISE = 10.0


class Confirmation:
    """Compares the first steps of two trials alone and packed.

    Args:
      members: Some of the trials that are to be packed; the first whose steps are finite is one of the two. The other
        is the same with values of others, the nearest that one sees, or of none of them if one would not see those.
      leaves: The leaves in question, by path, each with its values in all trials.
      arguments_of: Returns the arguments of a pack whose trials differ in some leaves.
      data_seed: Path of the leaf that decides in which order data is read.
    """

    def __init__(
        self,
        members: Sequence[Member],
        leaves: Mapping[str, Sequence[Any]],
        *,
        arguments_of: Callable[[Sequence[str]], Sequence[str]],
        data_seed: str,
    ):
        self._members = members
        self._leaves = leaves
        self._arguments_of = arguments_of
        self._data_seed = data_seed

    def differing(self) -> dict[str, str]:
        """Returns the leaves that do not give the same, and why."""
        bad = {path: reason for path in self._leaves if (reason := self._difference_of_schedule(path)) is not None}
        return bad | self._differing([path for path in self._leaves if path not in bad])

    def _differing(self, names: list[str]) -> dict[str, str]:
        if not names:
            return {}
        try:
            self._choose_base()
        except Exception as error:  # A mistake of the user's: it shows when the trial trains.
            return dict.fromkeys(names, f"three steps alone fail: {shortly(error)}")
        if not self._alone.is_finite:
            return dict.fromkeys(names, "three steps are not finite, so that nothing can be compared")
        together = self._difference(names)
        if together is None:
            return {}
        # Which of them it is: each on its own, then those that are left.
        found = {path: self._difference([path]) for path in names} if len(names) > 1 else {names[0]: together}
        bad = {path: reason for path, reason in found.items() if reason is not None}
        rest = [path for path in names if path not in bad]
        if rest:
            together = self._difference(rest) if bad else together
            bad |= dict.fromkeys(rest, together) if together is not None else {}
        return bad

    def _difference_of_schedule(self, path: str) -> str | None:
        """Returns how a schedule differs, at any step, if this number of it is traced; most change late."""
        for member in self._members[:2]:
            schedule = schedule_above(member.cfg, path)
            if schedule is None or schedule in self._arguments_of([path]):
                return None
            num_steps = member.trainer.last_step
            want = table_of(member.cfg, schedule, num_steps=num_steps)
            try:
                got = traced_table_of(member.cfg, schedule, path, num_steps=num_steps)
            except Exception as error:  # Whatever the user's schedule raises with a tracer in it.
                return f"the schedule {schedule} can't be tabulated with it: {shortly(error)}"
            step = int(np.argmax(np.abs(want - got)))
            if not np.allclose(want, got, rtol=1e-4, atol=1e-5 * float(np.max(np.abs(want))), equal_nan=True):
                values = f"{_shown(want[step])} against {_shown(got[step])}"
                return f"the schedule {schedule} differs at step {step}: {values}"
        return None

    def _choose_base(self) -> None:
        for member in self._members:
            self._base, (self._alone, self._noisy) = member, _ran(member)
            if self._alone.is_finite:
                return

    def _difference(self, leaves: Sequence[str]) -> str | None:
        """Returns how two trials that differ in these leaves differ alone and packed, None if they do not."""
        try:
            packed = Packed(self._base, self._arguments_of(leaves), has_own_batches=self._data_seed in leaves)
            own = packed.run([self._base, self._base])[0]
            found = self._tried({path: self._visible(path, packed, own) for path in leaves}, packed)
            # Values that are too far away, or not to be had together; those of the nearest trial are.
            if found is None:
                found = self._tried({path: self._others(path)[0] for path in leaves}, packed)
        except Exception as error:  # Whatever the compiler can't do for many trials it may do for one.
            return f"packed steps fail: {shortly(error)}"
        if found is None:
            return "three steps alone fail with another of its values"
        return f"three steps alone and packed differ ({found})" if found else None

    def _tried(self, values: Mapping[str, Any], packed: Packed) -> str | None:
        """Returns how the base and a trial with these values differ alone and packed, nothing if they agree.

        None: there is no such trial, or it has diverged.
        """
        try:
            other = self._base.replaced(values)
            theirs = _ran(other)
        except Exception:  # Whatever a value is refused with.
            return None
        if not theirs[0].is_finite:
            return None
        pairs = zip(((self._alone, self._noisy), theirs), packed.run([self._base, other]), strict=True)
        for (alone, noisy), ours in pairs:
            found = difference(alone, noisy, ours)
            if found is not None:
                return found
        return ""

    def _visible(self, path: str, packed: Packed, own: Outcome) -> Any:
        """Returns the value nearest to that of the base which makes a difference in the first steps."""
        others = self._others(path)
        for value in _further(others):
            try:
                outcome = packed.run([self._base, self._base.replaced({path: value})])[1]
            except Exception:  # A value that is refused.
                continue
            if outcome.is_finite and self._is_seen(own, outcome):
                return value
        # It does nothing packed. If it does something alone, that shows best far away.
        return _far(others[-1])

    def _is_seen(self, own: Outcome, outcome: Outcome) -> bool:
        changes = [np.abs(_change(own, name)).sum() for name in own.start]
        effects = [np.abs(_change(outcome, name) - _change(own, name)).sum() for name in own.start]
        is_large = sum(effects) > _LARGE * sum(changes)
        return is_large or difference(own, self._noise_of(own), outcome, factor=_VISIBLE) is not None

    def _noise_of(self, own: Outcome) -> Outcome:
        """Returns `own` with the noise that the trial alone has."""
        return Outcome(*map(_shifted, own, self._alone, self._noisy))

    def _others(self, path: str) -> list[Any]:
        """Returns values that other trials have, the nearest to that of the base first."""
        own = self._base.value(path)
        values = [value for value in dict.fromkeys(self._leaves[path]) if value != own]
        values.sort(key=lambda value: _distance(own, value))
        return [values[0], values[len(values) // 2], values[-1]]


def difference(alone: Outcome, noisy: Outcome, packed: Outcome, *, factor: float = 1.0) -> str | None:
    """Returns where two outcomes differ, and by what; None if they agree.

    What is tolerated follows from what rounding does: `noisy` is `alone` from parameters with small errors. Arrays are
    compared by their mean, since single numbers may flip (an optimizer that divides by the gradient's size does not
    care how small it is).

    Args:
      alone: What is right.
      noisy: The same with noise.
      packed: What is asked about.
      factor: By what the tolerated difference is multiplied.
    """
    for part, other in zip(alone, packed, strict=True):
        if part.keys() != other.keys():
            return f"there is only one {min(part.keys() ^ other.keys())}"
    for name, want, near, got, rounding in _compared(alone, noisy, packed):
        if want.shape != got.shape or want.dtype != got.dtype:
            return f"{name}: {want.dtype}{list(want.shape)} against {got.dtype}{list(got.shape)}"
        eps = float(jax.numpy.finfo(want.dtype).eps) if is_float(want) else 0.0
        tolerance = min(max(1e3 * eps, 2e-12), 0.05)
        exact, error = want.astype(np.float64), np.abs(got.astype(np.float64) - want.astype(np.float64))
        noise = np.abs(near.astype(np.float64) - exact)
        allowed = tolerance * _mean(np.abs(exact)) + _NOISE * _mean(noise) + 8 * eps * _mean(np.abs(rounding))
        if not _mean(error) <= factor * allowed:
            at = np.unravel_index(np.nanargmax(error), error.shape) if np.isfinite(error).any() else ...
            return f"{name}: {_shown(want[at])} against {_shown(got[at])}"
    return None


def _compared(alone: Outcome, noisy: Outcome, packed: Outcome) -> Iterator[tuple[str, Any, Any, Any, Any]]:
    """Yields names and arrays of the three, and what was subtracted: of what is learned the change is compared."""
    for name, want in alone.start.items():
        # Not that of `noisy`, which differs by the noise that was put in.
        yield name, want, want, packed.start[name], np.zeros_like(want)
    for name, start in alone.start.items():
        yield name, _change(alone, name), _change(noisy, name), _change(packed, name), start
    for name, want in alone.told.items():
        yield name, want, noisy.told[name], packed.told[name], np.zeros_like(want)


def _change(outcome: Outcome, name: str) -> np.ndarray:
    end, start = outcome.end[name], outcome.start[name]
    return end - start if is_float(end) and end.shape == start.shape else end


def _shifted(own: Mapping[str, Any], alone: Mapping[str, Any], noisy: Mapping[str, Any]) -> dict[str, Any]:
    return {name: leaf + (noisy[name] - alone[name]) if is_float(leaf) else leaf for name, leaf in own.items()}


def _mean(values: Any) -> float:
    return float(np.mean(values)) if np.size(values) else 0.0


def _further(values: Sequence[Any]) -> Iterator[Any]:
    """Yields values, and then multiples of the last."""
    yield from values
    for factor in _FACTORS if type(values[-1]) is float else ():
        yield values[-1] * factor


def _far(value: Any) -> Any:
    return 1e3 * value if type(value) is float else value


def _distance(own: Any, value: Any) -> float:
    if own > 0 and value > 0:
        return abs(math.log(value / own))
    return abs(value - own) + 1e3  # On different sides of zero: further than any ratio.


def _ran(member: Member) -> tuple[Outcome, Outcome]:
    """Returns what a trial comes to alone, and the same with noise."""
    alone = Alone(member)
    return alone.run(), alone.run_with_noise()


def _shown(value: Any) -> str:
    return f"{float(np.ravel(value)[0]):.4g}"
