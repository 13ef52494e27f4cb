"""Sweeps from Python: `pipelines.Sweep(...).run(config, axes)`, without a command line and without printing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray_cluster
from kauldron_core import konfig, sweeps
from kauldron_core.errors import ConfigError
from pipelines import planning, run_folder
from pipelines.experiment import Experiment
from pipelines.packing import with_packs
from pipelines.tracking import RecorderProcess
from ray_cluster import spec
from ray_cluster.results import Results
from ray_cluster.spec import Sidecar

Axes = Mapping[str, Iterable[Any]] | Sequence[str | sweeps.Points]
"""Values by path, or texts of the override grammar (`model.hidden=[32, 128]`), or axes made with `konfig`."""


@dataclass(frozen=True, kw_only=True)
class Sweep(spec.Sweep):
    """The run spec, with what runs it.

    Example::

        sweep = pipelines.Sweep(name="demo", metric="test/metrics/accuracy", seeds=3)
        results = sweep.run(digits.get_config(), {"optimizer.learning_rate": [1e-3, 1e-2]})
        print(results.best("test/metrics/accuracy").name, results.to_pandas())
    """

    def run(
        self,
        config: Any,
        axes: Axes = (),
        *,
        address: str | None = None,
        tracking: bool = True,
        trust: Iterable[str] = (),
        retry_failed: bool = False,
        extend: bool = False,
        sidecars: Sequence[Sidecar] = (),
    ) -> Results:
        """Trains and evaluates every trial and returns what came out; a run of this name goes on.

        Args:
          config: The experiment.
          axes: What is swept.
          address: Ray to join; see `ray_cluster.run`.
          tracking: Whether to record in MLflow.
          trust: Packages whose names the config may call.
          retry_failed: Run trials again that failed or were stopped.
          extend: Add points to a run that exists.
          sidecars: What watches the run, such as `pipelines.report.LiveReport`.

        Raises:
          ConfigError: If anything does not fit; before anything has started.
        """
        konfig.trust(*trust)
        name = self.name or "sweep"
        experiment = Experiment(sweeps.ConfigFile(config, Path(name), name), config)
        prepared = planning.prepare_experiment(
            experiment,
            read_axes(config, axes),
            self,
            command=f"{type(self).__name__}(name={self.name!r}).run(...)",
            retry_failed=retry_failed,
            extend=extend,
        )
        ray_cluster.check(prepared.plan, address=address)
        prepared = with_packs(prepared, address=address)
        run_folder.make_root(self)
        prepared.write_sources()
        watching = [*sidecars, *([RecorderProcess(run_folder.place_store(self))] if tracking else [])]
        return ray_cluster.run(prepared.plan, address=address, sidecars=watching)


def read_axes(config: Any, axes: Axes) -> list[sweeps.Points]:
    """Returns axes in whatever form they were given.

    Raises:
      ConfigError: If they are none.
    """
    if isinstance(axes, str):
        raise ConfigError(f"axes: {axes!r} is one text; give a list of them, [{axes!r}], or values by path.")
    if isinstance(axes, Mapping):
        return [sweeps.axis(path, values) for path, values in axes.items()]
    return [sweeps.from_strings(config, [one])[0] if isinstance(one, str) else one for one in axes]
