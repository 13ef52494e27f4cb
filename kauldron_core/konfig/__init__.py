"""The experiment as plain data: written like the calls it describes, saved, compared, overridden, then resolved."""

from kauldron_core.konfig.calls.targets import register_aliases
from kauldron_core.konfig.json.exporting import export, export_qualname
from kauldron_core.konfig.json.loadable import check_loadable
from kauldron_core.konfig.overrides.overrides import apply_overrides
from kauldron_core.konfig.overrides.setting import fingerprint, with_values
from kauldron_core.konfig.resolving.build import resolve
from kauldron_core.konfig.tree.arguments import ArgumentError
from kauldron_core.konfig.tree.comparing import diff, flatten
from kauldron_core.konfig.tree.ref_functions import ref_copy, ref_fn
from kauldron_core.konfig.tree.references import placeholder, required
from kauldron_core.konfig.trusting.code_copies import trust_run
from kauldron_core.konfig.trusting.rules import UntrustedError, trust, trusted_packages
from kauldron_core.konfig.writing.config_dict import ConfigDict
from kauldron_core.konfig.writing.defaults import register_default_values
from kauldron_core.konfig.writing.files import from_json, load, save, to_json
from kauldron_core.konfig.writing.frozen import freeze
from kauldron_core.konfig.writing.importing import imports, set_lazy_imported_modules
from kauldron_core.konfig.writing.mocking import mock_modules
from kauldron_core.konfig.writing.modules import get_config_from_module
from kauldron_core.konfig.writing.typing import ConfigDictLike, WithRef

__all__ = [
    "ArgumentError",
    "ConfigDict",
    "ConfigDictLike",
    "UntrustedError",
    "WithRef",
    "apply_overrides",
    "check_loadable",
    "diff",
    "export",
    "export_qualname",
    "fingerprint",
    "flatten",
    "freeze",
    "from_json",
    "get_config_from_module",
    "imports",
    "load",
    "mock_modules",
    "placeholder",
    "ref_copy",
    "ref_fn",
    "register_aliases",
    "register_default_values",
    "required",
    "resolve",
    "save",
    "set_lazy_imported_modules",
    "to_json",
    "trust",
    "trust_run",
    "trusted_packages",
    "with_values",
]
