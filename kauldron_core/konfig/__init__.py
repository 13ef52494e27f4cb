"""The experiment as plain data: written like the calls it describes, saved, compared, overridden, then resolved."""

from kauldron_core.konfig.calls.targets import register_aliases
from kauldron_core.konfig.json.exporting import export, export_qualname
from kauldron_core.konfig.json.loadable import check_loadable
from kauldron_core.konfig.overrides.overrides import apply_overrides
from kauldron_core.konfig.overrides.setting import fingerprint, with_values
from kauldron_core.konfig.resolving.build import named_objects, resolve
from kauldron_core.konfig.resolving.immutable import ImmutableDict
from kauldron_core.konfig.resolving.uncalled import refuse_uncalled
from kauldron_core.konfig.showing.leaves import Leaf, schema
from kauldron_core.konfig.showing.marking import changes, marked, shown_change
from kauldron_core.konfig.showing.printing import pretty
from kauldron_core.konfig.tree.arguments import ArgumentError
from kauldron_core.konfig.tree.building import ResolvedObjectError
from kauldron_core.konfig.tree.casting import ConfigTypeError
from kauldron_core.konfig.tree.comparing import MISSING, Change, diff, flatten
from kauldron_core.konfig.tree.origins import Origin
from kauldron_core.konfig.tree.ref_functions import ref_copy, ref_fn
from kauldron_core.konfig.tree.references import (
    ReferenceFailed,
    RequiredValueMissing,
    is_reference,
    placeholder,
    required,
)
from kauldron_core.konfig.trusting.code_copies import trust_run
from kauldron_core.konfig.trusting.rules import UntrustedError, trust, trusted_packages
from kauldron_core.konfig.writing.config_dict import ConfigDict
from kauldron_core.konfig.writing.defaults import register_default_values
from kauldron_core.konfig.writing.files import from_data, from_json, load, save, to_json
from kauldron_core.konfig.writing.frozen import FrozenConfigDict, freeze
from kauldron_core.konfig.writing.importing import imports, set_lazy_imported_modules
from kauldron_core.konfig.writing.mocking import mock_modules
from kauldron_core.konfig.writing.modules import get_config_from_module
from kauldron_core.konfig.writing.typing import ConfigDictLike, WithRef

__all__ = [
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
    "Change",
    "ConfigDict",
    "ImmutableDict",
    "UntrustedError",
    "apply_overrides",
    "diff",
    "fingerprint",
    "flatten",
    "from_data",
    "from_json",
    "imports",
    "is_reference",
    "changes",
    "marked",
    "shown_change",
    "Leaf",
    "schema",
    "load",
    "mock_modules",
    "placeholder",
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
    "with_values",
]
