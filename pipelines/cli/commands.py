"""Click commands whose overrides are sorted out before Click reads them, and groups that import on use."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kauldron_core import masking
from kauldron_core.errors import ConfigError, unknown_name
from pipelines.cli.debugging import FLAG, add_debug_option
from pipelines.terminal import echo

if TYPE_CHECKING:
    from pipelines.cli.words.command import Command

_COMMAND = "kdr.command"
_TYPED = "kdr.typed"


class OverrideCommand(click.Command):
    """A command that takes `CONFIG --cfg.PATH=VALUE ...` beside its own options; see `sorted_words`.

    Attributes:
      word: What its one word without dashes is called in the help.
      max_words: How many words without dashes it takes.
      roots: What its overrides start with.
    """

    word = "CONFIG"
    max_words = 1
    roots = ("cfg", "sweep", "run", "args")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Sorts the words; Click gets what is its own."""
        if ctx.resilient_parsing:
            # The shell asks for candidates while the line is being typed: nothing on it is an error yet.
            return super().parse_args(ctx, [])
        flags, options = self._names()
        if ctx.resilient_parsing:  # a shell asks for completions; half a command is no mistake then
            return super().parse_args(ctx, [word for word in args if word.partition("=")[0] in {*flags, *options}])
        from pipelines.cli.words.command import read_command  # `kdr --help` does without them
        from ray_cluster.spec import Sweep

        command = read_command(
            args,
            program=ctx.command_path,
            flags=flags,
            options=options,
            roots=self.roots,
            run_names=Sweep.__dataclass_fields__ if "run" in self.roots else (),
            max_words=self.max_words,
        )
        ctx.meta[_COMMAND] = command
        ctx.meta[_TYPED] = shlex.join(
            [*ctx.command_path.split(), *masking.mask_words([word for word in args if word != FLAG])]
        )
        self.check_roots(ctx, command)
        for note in command.notes:
            echo(f"note: {note}", err=True)
        return super().parse_args(ctx, list(command.rest))

    def check_roots(self, ctx: click.Context, command: Command) -> None:
        """Refuses overrides that this command does not take.

        Raises:
          ConfigError: For the first root with some.
        """
        given: dict[str, object] = {
            "sweep": command.sweep or command.sweeps or command.trials,
            "run": command.run,
            "args": command.args,
        }
        for root in given:
            if given[root] and root not in self.roots:
                available = ", ".join(f"--{one}.PATH" for one in self.roots)
                raise ConfigError(f"--{root}: {ctx.command_path} takes no such overrides. Available: {available}.")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Returns the usage line's parts, the words that Click doesn't see included."""
        return [self.word, "[--cfg.PATH=VALUE]...", *super().collect_usage_pieces(ctx)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the options that begin so; anything else is a file."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(incomplete, type="file")]

    def _names(self) -> tuple[list[str], list[str]]:
        options = [parameter for parameter in self.params if isinstance(parameter, click.Option)]
        flags = [name for option in options if option.is_flag for name in option.opts]
        return [*flags, "--help"], [name for option in options if not option.is_flag for name in option.opts]


def sorted_words(ctx: click.Context) -> Command:
    """Returns the sorted words of the running `OverrideCommand`."""
    return ctx.meta[_COMMAND]


def typed_command(ctx: click.Context) -> str:
    """Returns the command of the running `OverrideCommand` as it was typed, quoted for the shell.

    The values of `--run.env` are masked: it is printed and recorded.
    """
    return ctx.meta[_TYPED]


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used.

    Args:
      table: For each command where it is (`module:attribute`) and what it does, in a few words.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.table = dict(table)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command."""
        if cmd_name not in self.table:
            return None
        module, _, attribute = self.table[cmd_name][0].partition(":")
        return add_debug_option(getattr(importlib.import_module(module), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; an unknown one is refused with the closest."""
        if args and args[0] not in self.table and not ctx.resilient_parsing:
            raise click.UsageError(unknown_name("command", args[0], self.table, at=ctx.command_path))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.table.items()])
