"""Command-line flags of every setting, made from the settings tree itself."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orchestrator.settings import flag_of, leaves

Command = TypeVar("Command", bound=Callable[..., Any])

_SEPARATOR = "__"
_PLAIN = (bool, int, float, Path)


def with_settings_flags(command: Command) -> Command:
    """Replace the command's ``**flags`` by one option per setting, all of them optional.

    Flags arrive by the setting's path, joined by two underscores; see ``settings_of``.
    """
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    made = [_parameter(path, info) for path, info in leaves()]
    command.__signature__ = signature.replace(parameters=[*own, *made])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in (*own, *made)}
    return command


def settings_of(flags: Mapping[str, Any]) -> dict[str, Any]:
    """The nested values of the flags that were given."""
    nested: dict[str, Any] = {}
    for name, value in flags.items():
        # A flag that is not given is None, or an empty list for one that can be repeated.
        if value is None or value == []:
            continue
        *groups, leaf = name.split(_SEPARATOR)
        table = nested
        for group in groups:
            table = table.setdefault(group, {})
        table[leaf] = value
    return nested


def _parameter(path: tuple[str, ...], info: FieldInfo) -> inspect.Parameter:
    kind = _kind(info.annotation)
    flag = flag_of(path)
    names = f"{flag}/--no-{flag[2:]}" if kind is bool else flag
    option = typer.Option(names, help=_help(info, kind), rich_help_panel=_panel(path), show_default=False)
    annotation: Any = Annotated[kind | None, option]
    return inspect.Parameter(
        _SEPARATOR.join(path), inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _kind(annotation: Any) -> Any:
    """The option's type; lists and tables are repeated, and what pydantic checks anyway is text."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        annotation = next(a for a in typing.get_args(annotation) if a is not type(None))
    if typing.get_origin(annotation) in (tuple, list, dict):
        return list[str]
    return annotation if annotation in _PLAIN else str


def _help(info: FieldInfo, kind: Any) -> str:
    text = info.description or ""
    default = info.default
    if default is PydanticUndefined or default in (None, ()) or isinstance(default, SecretStr):
        return f"{text}. Repeatable" if kind == list[str] else text
    return f"{text} (default: {str(default).lower() if isinstance(default, bool) else default})"


def _panel(path: tuple[str, ...]) -> str:
    return "Settings" if len(path) == 1 else f"Settings: {path[0]}"
