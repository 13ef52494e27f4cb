"""The experiment as plain data: written like the calls it describes, saved, compared, overridden, then resolved."""

from kauldron_core.konfig.axes import Axis, Points, RandomAxis, axis, chain, listed, num_points, product, zip_axes
from kauldron_core.konfig.axis_text import from_strings, parse_axes, parse_axis
from kauldron_core.konfig.casting import ConfigTypeError
from kauldron_core.konfig.code_copies import trust_run
from kauldron_core.konfig.command import Command, read_command
from kauldron_core.konfig.comparing import MISSING, Change, diff, fingerprint, flatten
from kauldron_core.konfig.config_dict import ConfigDict
from kauldron_core.konfig.config_file import ConfigFile, load_config_file, read_trials
from kauldron_core.konfig.defaults import register_default_values
from kauldron_core.konfig.evaluator_nodes import (
    INHERITED,
    evaluator_fingerprint,
    evaluator_nodes,
    read_by_evaluator,
)
from kauldron_core.konfig.exporting import export, export_qualname
from kauldron_core.konfig.files import from_data, from_json, load, save, to_json
from kauldron_core.konfig.frozen import FrozenConfigDict, freeze
from kauldron_core.konfig.immutable import ImmutableDict
from kauldron_core.konfig.importing import imports, set_lazy_imported_modules
from kauldron_core.konfig.leaves import Leaf, schema
from kauldron_core.konfig.loadable import check_loadable
from kauldron_core.konfig.marking import changes, marked, shown_change
from kauldron_core.konfig.mocking import mock_modules
from kauldron_core.konfig.modules import get_config_from_module
from kauldron_core.konfig.normalize import ResolvedObjectError
from kauldron_core.konfig.origins import Origin
from kauldron_core.konfig.overrides import apply_overrides
from kauldron_core.konfig.printing import pretty
from kauldron_core.konfig.ref_functions import ref_copy, ref_fn
from kauldron_core.konfig.references import ReferenceFailed, RequiredValueMissing, is_reference, placeholder, required
from kauldron_core.konfig.resolving import named_objects, resolve
from kauldron_core.konfig.signatures import ArgumentError
from kauldron_core.konfig.targets import register_aliases
from kauldron_core.konfig.trials import Trial, configs, expand
from kauldron_core.konfig.trusting import UntrustedError, trust, trusted_packages
from kauldron_core.konfig.typing import ConfigDictLike, WithRef
from kauldron_core.konfig.uncalled import refuse_uncalled

__all__ = [
    "INHERITED",
    "named_objects",
    "check_loadable",
    "pretty",
    "Origin",
    "ReferenceFailed",
    "RequiredValueMissing",
    "ConfigTypeError",
    "ArgumentError",
    "ResolvedObjectError",
    "ConfigDictLike",
    "WithRef",
    "get_config_from_module",
    "FrozenConfigDict",
    "freeze",
    "export",
    "export_qualname",
    "MISSING",
    "Axis",
    "Change",
    "Command",
    "ConfigDict",
    "ConfigFile",
    "ImmutableDict",
    "Points",
    "RandomAxis",
    "Trial",
    "UntrustedError",
    "apply_overrides",
    "axis",
    "chain",
    "configs",
    "diff",
    "expand",
    "evaluator_fingerprint",
    "evaluator_nodes",
    "fingerprint",
    "flatten",
    "from_data",
    "from_json",
    "from_strings",
    "imports",
    "is_reference",
    "listed",
    "changes",
    "marked",
    "shown_change",
    "Leaf",
    "schema",
    "load",
    "load_config_file",
    "mock_modules",
    "num_points",
    "parse_axes",
    "parse_axis",
    "placeholder",
    "product",
    "read_by_evaluator",
    "read_command",
    "read_trials",
    "ref_copy",
    "ref_fn",
    "register_aliases",
    "register_default_values",
    "required",
    "refuse_uncalled",
    "resolve",
    "save",
    "set_lazy_imported_modules",
    "to_json",
    "trust",
    "trust_run",
    "trusted_packages",
    "zip_axes",
]
