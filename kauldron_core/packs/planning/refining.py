"""A plan that was tried out: what tracing alone can't tell."""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Sequence
from typing import Any

from kauldron_core import paths
from kauldron_core.packs.planning.confirm import Confirmation
from kauldron_core.packs.planning.differences import DATA_SEED, Differences, data_seed_of, is_number
from kauldron_core.packs.planning.first_steps import Member
from kauldron_core.packs.planning.planner import Leaf, Pack, Plan, ranges, shared_out, shortly
from kauldron_core.packs.planning.timing import timed

TIMING_LIMIT_S = 60.0
"""No further packs are timed after so many seconds."""


def refine(
    configs: Sequence[Any], plan: Plan, *, confirm: bool = True, time: bool = True, concurrency: int = 1
) -> Plan:
    """Returns the plan after it was tried out.

    Args:
      configs: The configs that were planned.
      plan: What `plan` made of them.
      confirm: Whether to train two members for three steps, alone and packed. A number that does not give the same
        both ways splits packs, and the leaf says so.
      time: Whether to time packs against their trials alone. One that is not faster is split into single trials, and
        a note says so.
      concurrency: How many trials would train side by side if they were not packed.
    """
    differences = Differences(configs)
    if confirm:
        plan = _confirmed(configs, plan, differences)
    if time:
        plan = _timed(configs, plan, differences, concurrency)
    return plan


def _confirmed(configs: Sequence[Any], plan: Plan, differences: Differences) -> Plan:
    """Returns the plan without the leaves that do not give packed what they give alone."""
    bad_of: dict[Any, dict[str, str]] = {}
    asked_of: dict[str, set[Any]] = {}
    packs: list[Pack] = []
    for like in _alike(plan, differences):
        kind, asked = _kind(like[0], plan, differences), _asked(like, differences)
        for path in asked:
            asked_of.setdefault(path, set()).add(kind)
        if kind not in bad_of:
            bad_of[kind] = _differing(configs, like, asked, differences)
        packs += _split(like, asked, bad_of[kind], differences)
    packs.sort(key=lambda pack: pack.members[0])
    leaves = tuple(_judged(leaf, [bad_of[kind] for kind in asked_of.get(leaf.path, ())]) for leaf in plan.leaves)
    return dataclasses.replace(plan, packs=tuple(packs), leaves=leaves)


def _judged(leaf: Leaf, found: Sequence[dict[str, str]]) -> Leaf:
    """Returns what is to be said of a leaf after it was asked about in some structures."""
    reasons = [bad[leaf.path] for bad in found if leaf.path in bad]
    if not reasons or not leaf.is_packed:
        return leaf
    where = "" if len(reasons) == len(found) else "in some trials "
    return dataclasses.replace(leaf, is_packed=False, reason=f"{where}{reasons[0]}")


def _timed(configs: Sequence[Any], plan: Plan, differences: Differences, concurrency: int) -> Plan:
    """Returns the plan with packs only where they are faster."""
    packs: list[Pack] = []
    notes = list(plan.notes)
    until = clock.monotonic() + TIMING_LIMIT_S
    for like in _alike(plan, differences):
        largest = max(like, key=lambda pack: len(pack.members))
        if len(largest.members) == 1:
            packs += like
            continue
        if clock.monotonic() > until:
            notes.append(f"trials {ranges(largest.members)}: not timed, since others took {TIMING_LIMIT_S:g} s")
            packs += like
            continue
        is_faster, note = _verdict(configs, largest, concurrency)
        notes.append(note)
        packs += like if is_faster else [Pack((index,), pack.arguments) for pack in like for index in pack.members]
    packs.sort(key=lambda pack: pack.members[0])
    return dataclasses.replace(plan, packs=tuple(packs), notes=tuple(notes))


def _verdict(configs: Sequence[Any], pack: Pack, concurrency: int) -> tuple[bool, str]:
    """Returns whether a pack is faster than its trials alone, and what is to be said about it."""
    try:
        found = timed([configs[index] for index in pack.members], pack.arguments, concurrency=concurrency)
    except Exception as error:  # Whatever the compiler can't do for many trials it may do for one.
        return False, f"trials {ranges(pack.members)}: alone, since packed steps fail: {shortly(error)}"
    return found.is_faster, str(found)


def _alike(plan: Plan, differences: Differences) -> list[list[Pack]]:
    """Returns the packs that were one but for their size, together."""
    found: dict[Any, list[Pack]] = {}
    for pack in plan.packs:
        own = pack.members[0]
        fixed = [path for path in differences.differing if not _is_packed(path, pack, plan)]
        key = pack.arguments, tuple((path, differences.value(path, own)) for path in fixed)
        found.setdefault(key, []).append(pack)
    return list(found.values())


def _kind(pack: Pack, plan: Plan, differences: Differences) -> Any:
    """Returns what is equal for packs of the same structure: numbers such as a size do not count."""
    own = differences.flat[pack.members[0]]
    fixed = [path for path in differences.differing if not _is_packed(path, pack, plan)]
    structural = [path for path in fixed if not is_number(path, own.get(path))]
    return pack.arguments, tuple((path, differences.value(path, pack.members[0])) for path in structural)


def _is_packed(path: str, pack: Pack, plan: Plan) -> bool:
    """Returns whether trials of this pack may differ in a leaf."""
    if path == DATA_SEED:
        return any(leaf.path == path and leaf.is_packed for leaf in plan.leaves)
    return _argument_for(path, pack.arguments) is not None


def _argument_for(path: str, arguments: Sequence[str]) -> str | None:
    """Returns the argument that carries a number: itself, or the table of the schedule that holds it."""
    parts = paths.parse(path)
    return next((name for name in arguments if parts[: len(paths.parse(name))] == paths.parse(name)), None)


def _asked(packs: Sequence[Pack], differences: Differences) -> list[str]:
    """Returns the numbers in which packs of the same structure differ inside."""
    if all(len(pack.members) == 1 for pack in packs):
        return []
    numbers = differences.numbers_in([index for pack in packs for index in pack.members])
    return [path for path in numbers if path == DATA_SEED or _argument_for(path, packs[0].arguments)]


def _differing(
    configs: Sequence[Any], packs: Sequence[Pack], asked: Sequence[str], differences: Differences
) -> dict[str, str]:
    """Returns which of the numbers do not give packed what they give alone, and why."""
    members = [index for pack in packs for index in pack.members]
    if not asked:
        return {}
    arguments = packs[0].arguments

    def arguments_of(asked: Sequence[str]) -> tuple[str, ...]:
        wanted = {_argument_for(path, arguments) for path in asked}
        return tuple(name for name in arguments if name in wanted) or arguments[:1]

    bases = dict.fromkeys((members[len(members) // 2], members[0], members[-1]))
    return Confirmation(
        [Member(configs[index].copy_and_resolve_references()) for index in bases],
        {path: [differences.flat[index][path] for index in members] for path in asked},
        arguments_of=arguments_of,
        data_seed=data_seed_of(differences.flat[members[0]]),
    ).differing()


def _split(packs: Sequence[Pack], asked: Sequence[str], bad: dict[str, str], differences: Differences) -> list[Pack]:
    """Returns packs of which none holds trials that differ in a bad leaf."""
    if not bad:
        return list(packs)
    members = sorted(index for pack in packs for index in pack.members)
    good = {_argument_for(path, packs[0].arguments) for path in asked if path not in bad}
    arguments = tuple(name for name in packs[0].arguments if name in good)
    if not arguments:
        return [Pack((index,), packs[0].arguments) for index in members]
    most = max(len(pack.members) for pack in packs)
    parts = (part for group in differences.parted(members, list(bad)) for part in shared_out(group, most))
    return [Pack(part, arguments) for part in parts]
