"""The shares of data that the hosts of a job have, compared before the first batch.

Each host reads its own. One that has another seed, the share of another host or fewer examples would train with the
others in silence, on doubled or missing data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax

from kauldron_core.errors import ConfigError, first_line
from kauldron_core.sharding.hosts import gathered


def check_shares(ds: Any, *, at: str, others: Mapping[str, Any] | None = None) -> None:
    """Compares this host's share of `ds` with those of all; every host of the job must call it.

    Args:
      ds: A pipeline. Of data that can't describe its share only `others` are compared.
      at: Config path of `ds`.
      others: What else must be the same on all hosts, by config path; data for JSON.

    Raises:
      ConfigError: On every host, with both sides, if they do not go together, or one can't open its data.
    """
    if jax.process_count() == 1:
        return
    own, failure = {}, None
    try:
        own = ds.describe_share() if hasattr(ds, "describe_share") else {}
    except Exception as error:  # The others would wait for this host for ever.
        failure = error
    share = {f"{at}.{name}": value for name, value in own.items()} | dict(others or {})
    everyone = gathered({"share": share, "failure": failure and first_line(failure)})
    if failure is not None:
        raise failure
    failures = [host["failure"] for host in everyone]
    if any(failures):
        raise ConfigError(f"{at}: not every host can open its data: {_sides(failures)}.")
    _compare([host["share"] for host in everyone], at)


def _compare(hosts: Sequence[Mapping[str, Any]], at: str) -> None:
    places = [(host.get(f"{at}.shard_index"), host.get(f"{at}.shard_count")) for host in hosts]
    for name in dict.fromkeys(name for host in hosts for name in host):
        values = [host.get(name) for host in hosts]
        if name != f"{at}.shard_index" and any(value != values[0] for value in values):
            raise ConfigError(f"{name}: hosts differ: {_sides(values)}. It has to be the same on all of them.")
    if places[0][0] is not None and sorted(places) != [(index, len(hosts)) for index in range(len(hosts))]:
        sides = _sides([f"{index} of {count}" for index, count in places])
        raise ConfigError(
            f"{at}.shard_index: the shares of {len(hosts)} hosts are {sides}; each needs one of its own. Leave "
            "shard_index and shard_count unset."
        )


def _sides(values: Sequence[Any]) -> str:
    """Returns each value with the hosts that have it."""
    hosts: dict[str, list[str]] = {}
    for host, value in enumerate(values):
        hosts.setdefault("fine" if value is None else str(value), []).append(str(host))
    return ", ".join(f"{value} on host{'s' * (len(on) > 1)} {', '.join(on)}" for value, on in hosts.items())
