"""The ``vigil`` command."""

from __future__ import annotations

from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from orchestrator.exits import Exit, SetupError
from orchestrator.flags import settings_of, with_settings_flags
from orchestrator.keys import checked_option
from orchestrator.offline.flags import AskAtEnd, ReferenceVoice, Tail, VoiceName
from orchestrator.settings import SettingsError, load_settings
from orchestrator.version import vigil_version


class Commands(TyperGroup):
    """Commands of other rooms are imported when they are named, so that the service never imports them."""

    def list_commands(self, ctx: Any) -> list[str]:
        shown = ["serve", "talk", "attach", "detach", "key", "engine", "replay", "session", "voice", "doctor"]
        return [*shown, "eval", "load", "top", "version"]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        lazy = {
            "attach": _attach,
            "detach": _detach,
            "engine": _engine,
            "replay": _replay,
            "session": _session,
            "voice": _voice,
            "doctor": _doctor,
            "eval": _eval,
            "load": _load,
            "top": _top,
        }.get(cmd_name)
        return _in_paragraphs(lazy() if lazy is not None else super().get_command(ctx, cmd_name))


def _in_paragraphs(command: Any) -> Any:
    """The lines of a docstring are not those of a terminal."""
    if command is not None and command.help:
        paragraphs = cleandoc(command.help).split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for each in getattr(command, "commands", {}).values():
        _in_paragraphs(each)
    return command


def _version(asked: bool) -> None:
    if asked:
        print_version()
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="vigil",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def vigil(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Out-of-process orchestrator for real-time interaction models."""


@app.command()
@with_settings_flags
def serve(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file of settings; default: $VIGIL_CONFIG.")
    ] = None,
    **flags: Any,
) -> None:
    """Serve sessions over HTTP in front of an engine.

    Every setting is a flag, an environment variable (VIGIL_LIMITS__SESSIONS) or a line of the configuration
    file, looked for in that order. Exit codes: 2 wrong settings, 5 engine unreachable, 6 model not served.
    """
    try:
        settings = load_settings(settings_of(flags), config)
    except SettingsError as error:
        _fail(str(error), Exit.USAGE)
    from orchestrator.serve import serve as run

    try:
        code = run(settings)
    except SetupError as error:
        _fail(error.message, error.exit_code)
    raise typer.Exit(code)


@app.command()
def talk(
    server: Annotated[str, typer.Option(metavar="URL", help="A running service.")] = "http://127.0.0.1:8070",
    api_key: Annotated[
        str | None, typer.Option(envvar="VIGIL_SERVER_KEY", callback=checked_option, help="Key for it.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Served model; default: the one there is.")] = None,
    instructions: Annotated[str | None, typer.Option(metavar="TEXT", help="How to behave.")] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Join this session instead of opening one.")
    ] = None,
    image: Annotated[list[str] | None, typer.Option(metavar="FILE", help="Show a picture.")] = None,
    video: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="Show a file or a stream as it plays.")
    ] = None,
    audio: Annotated[
        list[Path] | None,
        typer.Option(metavar="IN.wav", help="Play a recording instead of typing; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="OUT.wav", help="With --audio: where what is said goes.")
    ] = None,
    commit: AskAtEnd = False,
    voice: VoiceName = None,
    ref_audio: ReferenceVoice = None,
    tail: Tail = None,
) -> None:
    """Talk to a running service: type lines, read answers as they are said. Ctrl-C ends the session, or
    leaves one that was joined.

    What you type interrupts an answer. Without a terminal, lines come one by one from the standard input; the
    command ends when all of them were answered and everything shown was looked at.

    With --audio a recording is played as a microphone would bring it; --video gives it pictures. OUT.wav
    holds what was said, on the clock of what was played; beside it decisions.jsonl tells unit by unit what
    the model did, and input_timeline.json what was sent when. The exit code speaks of transport alone.
    """
    if audio:
        if out is None:
            _fail("--audio needs --out OUT.wav", Exit.USAGE)
        if session is not None or image:
            _fail("--audio opens a session of its own and takes --video, not --image", Exit.USAGE)
        from orchestrator.offline.command import Offline, tail_ms
        from orchestrator.offline.command import run as play
        from orchestrator.offline.drive import PlayOptions

        options = {"instructions": instructions, "voice": voice}
        raise typer.Exit(
            play(
                Offline(
                    tuple(audio),
                    out,
                    PlayOptions(
                        server,
                        api_key,
                        model,
                        {name: value for name, value in options.items() if value is not None},
                        asks=commit,
                        tail_ms=tail_ms(tail, commit),
                    ),
                    tuple(video or ()),
                    ref_audio,
                )
            )
        )
    from orchestrator.talk import TalkOptions
    from orchestrator.talk import talk as run

    raise typer.Exit(
        run(
            TalkOptions(server, api_key, model, instructions, session, tuple(image or ()), tuple(video or ()))
        )
    )


@app.command("key")
def make_key(name: Annotated[str, typer.Argument(help="Whose key it is: the name of a tenant.")]) -> None:
    """Make an API key. It is shown this once; the service is given its hash.

    The first line of the output is the key, the second the value for --auth-api-keys.
    """
    from pydantic import ValidationError

    from orchestrator.api.credentials import key_hash, new_key
    from orchestrator.auth_settings import TENANT_NAME

    try:
        TENANT_NAME.validate_python(name)
    except ValidationError:
        _fail("a name has at most 64 letters, digits, dots, underscores and dashes", Exit.USAGE)
    key = new_key()
    typer.echo(f"{key}\n{name}={key_hash(key)}")
    typer.echo("vigil: keep the first line, it is not shown again; the second is for the service", err=True)


@app.command("version")
def print_version() -> None:
    """Print the version."""
    typer.echo(vigil_version())


def _engine() -> Any:
    from engine_launch.cli import make_app
    from orchestrator import engines_cli
    from orchestrator.duplex_spec import duplex_for_family
    from orchestrator.engine_setup import tags_of
    from prompts.loader import PackError, load_pack

    def tags_for_family(family: str) -> Any:
        try:
            return tags_of(load_pack(family))
        except PackError as error:
            raise KeyError(family) from error

    engine_app = make_app(tags_for_family, duplex_for_family=duplex_for_family)
    for command in (
        engines_cli.served,
        engines_cli.drain,
        engines_cli.admit,
        engines_cli.add,
        engines_cli.remove,
    ):
        engine_app.command()(command)
    return typer.main.get_group(engine_app)


def _replay() -> Any:
    from evals.replay.command import mount

    # Two commands make a group, out of which the one we want is taken.
    group = typer.Typer()
    mount(group)
    group.command("unused")(print_version)
    return typer.main.get_group(group).commands["replay"]


def _session() -> Any:
    from orchestrator.session_cli import app as sessions

    return typer.main.get_group(sessions)


def _voice() -> Any:
    from orchestrator.voice_cli import app as voice

    return typer.main.get_group(voice)


def _attach() -> Any:
    from orchestrator.attach_cli import attach

    return _single(attach)


def _detach() -> Any:
    from orchestrator.attach_cli import detach

    return _single(detach)


def _single(function: Any) -> Any:
    group = typer.Typer(add_completion=False)
    group.command()(function)
    return typer.main.get_command(group)


def _doctor() -> Any:
    from evals.doctor import app as doctor

    return typer.main.get_group(doctor)


def _eval() -> Any:
    from evals.command import app as evaluation

    return typer.main.get_group(evaluation)


def _top() -> Any:
    from orchestrator.top_cli import top

    return _single(top)


def _load() -> Any:
    from evals.load.command import load

    return _single(load)


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"vigil: {line}", err=True)
    raise typer.Exit(code)


def main() -> None:
    app(prog_name="vigil")


if __name__ == "__main__":
    main()
