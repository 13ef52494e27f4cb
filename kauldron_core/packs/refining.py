"""A plan that was tried out: what tracing alone can't tell."""

from __future__ import annotations

import dataclasses
import time as clock
from collections.abc import Sequence
from typing import Any

from kauldron_core.packs.confirm import Confirmation
from kauldron_core.packs.differences import DATA_SEED, Differences, data_seed_of, is_number
from kauldron_core.packs.planner import Leaf, Pack, Plan, first_line, ranges, shared_out
from kauldron_core.packs.rehearsal import Member
from kauldron_core.packs.timing import timed

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
    leaves = {leaf.path: leaf for leaf in plan.leaves}
    bad_of: dict[Any, dict[str, str]] = {}
    packs: list[Pack] = []
    for like in _alike(plan, differences):
        kind = _kind(like[0], leaves, differences)
        if kind not in bad_of:
            bad_of[kind] = _differing(configs, like, leaves, differences)
        bad = bad_of[kind]
        for path, reason in bad.items():
            leaves[path] = dataclasses.replace(leaves[path], is_packed=False, reason=reason)
        packs += _split(like, bad, leaves, differences)
    packs.sort(key=lambda pack: pack.members[0])
    return dataclasses.replace(plan, packs=tuple(packs), leaves=tuple(leaves.values()))


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
        return False, f"trials {ranges(pack.members)}: alone, since packed steps fail: {first_line(error)}"
    return found.is_faster, str(found)


def _alike(plan: Plan, differences: Differences) -> list[list[Pack]]:
    """Returns the packs that were one but for their size, together."""
    fixed = [leaf.path for leaf in plan.leaves if not leaf.is_packed]
    found: dict[Any, list[Pack]] = {}
    for pack in plan.packs:
        key = pack.arguments, tuple(differences.value(path, pack.members[0]) for path in fixed)
        found.setdefault(key, []).append(pack)
    return list(found.values())


def _kind(pack: Pack, leaves: dict[str, Leaf], differences: Differences) -> Any:
    """Returns what is equal for packs of the same structure: numbers such as a size do not count."""
    own = differences.flat[pack.members[0]]
    fixed = [path for path, leaf in leaves.items() if not leaf.is_packed and not is_number(path, own.get(path))]
    return pack.arguments, tuple(differences.value(path, pack.members[0]) for path in fixed)


def _differing(
    configs: Sequence[Any], packs: Sequence[Pack], leaves: dict[str, Leaf], differences: Differences
) -> dict[str, str]:
    members = [index for pack in packs for index in pack.members]
    if all(len(pack.members) == 1 for pack in packs):
        return {}
    asked = [path for path in differences.numbers_in(members) if leaves[path].is_packed]
    if not asked:
        return {}
    arguments = packs[0].arguments

    def arguments_of(paths: Sequence[str]) -> tuple[str, ...]:
        wanted = {leaves[path].table or path for path in paths}
        return tuple(path for path in arguments if path in wanted) or arguments[:1]

    bases = dict.fromkeys((members[len(members) // 2], members[0], members[-1]))
    return Confirmation(
        [Member(configs[index].copy_and_resolve_references()) for index in bases],
        {path: [differences.flat[index][path] for index in members] for path in asked},
        arguments_of=arguments_of,
        data_seed=data_seed_of(differences.flat[members[0]]),
    ).differing()


def _split(packs: Sequence[Pack], bad: dict[str, str], leaves: dict[str, Leaf], differences: Differences) -> list[Pack]:
    """Returns packs of which none holds trials that differ in a bad leaf."""
    if not bad:
        return list(packs)
    members = sorted(index for pack in packs for index in pack.members)
    most = max(len(pack.members) for pack in packs)
    good = {leaf.table or path for path, leaf in leaves.items() if leaf.is_packed and path != DATA_SEED}
    arguments = tuple(path for path in packs[0].arguments if path in good)
    if not arguments:
        return [Pack((index,), packs[0].arguments) for index in members]
    parts = (part for group in differences.parted(members, list(bad)) for part in shared_out(group, most))
    return [Pack(part, arguments) for part in parts]
