"""The command line: `python -m client embed|generate|models|health|load`.

Exit codes: 0, 1 for a call that failed, 2 for a mistake in the command, 130 when interrupted.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from client import terminal
from client.connection import DEFAULT_TARGET, Connection, Tls
from client.errors import CallFailed
from client.load.profile import PROFILES, LoadError, Plan
from client.options import EmbedOptions, GenerateOptions, Message
from client.sync import Client
from client.wire import Prompt

_UINT32 = click.IntRange(0, 2**32 - 1)
_INT32 = click.IntRange(-(2**31), 2**31 - 1)
_UINT64 = click.IntRange(0, 2**64 - 1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@dataclass(frozen=True)
class Session:
    """What every command needs: where to call, for how long, and how to print."""

    connection: Connection
    timeout: float | None
    json: bool

    def open(self) -> Client:
        return Client(self.connection, timeout=self.timeout)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--target", default=DEFAULT_TARGET, envvar="FORMERD_TARGET", show_default=True, show_envvar=True
)
@click.option("--tls-ca", type=_FILE, help="Certificates (PEM) to trust; switches TLS on.")
@click.option("--tls-cert", type=_FILE, help="This client's certificate (PEM); with --tls-key.")
@click.option("--tls-key", type=_FILE, help="The private key (PEM) of --tls-cert.")
@click.option("--token-file", type=_FILE, help="File with the token to send as bearer.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Seconds for each call.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of text.")
@click.pass_context
def cli(
    context: click.Context,
    target: str,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    token_file: Path | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Calls a formerd server."""
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key belong together")
    tls = Tls(_read(tls_ca), _read(tls_cert), _read(tls_key)) if tls_ca or tls_cert else None
    token = token_file.read_text().strip() if token_file else None
    context.obj = Session(Connection(target, tls, token), timeout, as_json)


@cli.command()
@click.argument("texts", metavar="TEXT...", nargs=-1, required=True)
@click.option("--model", help="Which model; needed where several embed.")
@click.option("--truncate/--no-truncate", default=None, help="Cut texts that are too long.")
@click.option("--normalize/--no-normalize", default=None, help="Scale vectors to unit length.")
@click.option("--dimensions", type=_UINT32, help="Keep only the first dimensions.")
@click.option("--prompt-name", help="One of the model's prompts, put before every text.")
@click.pass_obj
def embed(session: Session, /, texts: tuple[str, ...], **options: Any) -> None:
    """Embeds each TEXT; `-` stands for the lines of stdin."""
    lines = [line for text in texts for line in (_stdin_lines() if text == "-" else [text])]
    with session.open() as client:
        result = client.embed(*lines, **cast("EmbedOptions", _given(options)))
    if session.json:
        terminal.print_json(result)
    else:
        terminal.print_embeddings(lines, result)
    if any(item.error for item in result.items):
        raise click.exceptions.Exit(1)


@cli.command()
@click.argument("prompt")
@click.option("--chat", is_flag=True, help="PROMPT is what the user says, in the model's template.")
@click.option("--system", help="What the system says first; with --chat.")
@click.option("--stream", is_flag=True, help="Print the text as it is generated.")
@click.option("--model", help="Which model; needed where several generate.")
@click.option("--decoder-prompt", metavar="TEXT", help="How the target of PROMPT begins.")
@click.option("--max-new-tokens", type=_UINT32)
@click.option("--min-new-tokens", type=_UINT32)
@click.option("--temperature", type=float, help="0 is greedy.")
@click.option("--top-k", type=_INT32, help="0 is off.")
@click.option("--top-p", type=float)
@click.option("--min-p", type=float)
@click.option("--repetition-penalty", type=float, help="1 is off.")
@click.option("--presence-penalty", type=float)
@click.option("--frequency-penalty", type=float)
@click.option("--seed", type=_UINT64, help="Gives the same text again.")
@click.option("--stop", multiple=True, help="Text that ends the completion; may be repeated.")
@click.option("--stop-token-id", "stop_token_ids", type=_UINT32, multiple=True)
@click.option("--include-stop", is_flag=True, default=None, help="Keep the stop string.")
@click.option("--ignore-eos", is_flag=True, default=None, help="Go on past the model's own end.")
@click.option("--n", type=_UINT32, help="How many completions.")
@click.option("--beam-width", type=_UINT32)
@click.option("--length-penalty", type=float, help="With --beam-width.")
@click.option("--logprobs", is_flag=True, default=None, help="Report each token's log-probability.")
@click.option("--top-logprobs", type=_UINT32, help="And so many alternatives to each.")
@click.option("--prompt-logprobs", is_flag=True, default=None, help="The prompt's tokens too.")
@click.pass_obj
def generate(
    session: Session, /, prompt: str, chat: bool, system: str | None, stream: bool, **options: Any
) -> None:
    """Generates text after PROMPT, or from it where it is a source; `-` reads it from stdin."""
    if system is not None and not chat:
        raise click.UsageError("--system goes with --chat")
    if stream and not session.json and (options["n"] or 1) > 1:
        raise click.UsageError("--stream shows one completion; use --json with --n")
    if options["top_logprobs"] and not options["prompt_logprobs"]:
        options["logprobs"] = True
    given = cast("GenerateOptions", _given(options))
    text = sys.stdin.read() if prompt == "-" else prompt
    asked: Prompt = _turns(system, text) if chat else text
    with session.open() as client:
        if stream:
            show = terminal.print_stream_json if session.json else terminal.print_stream
            show(client.stream(asked, **given))
        else:
            result = client.generate(asked, **given)
            (terminal.print_json if session.json else terminal.print_generation)(result)


@cli.command()
@click.pass_obj
def models(session: Session) -> None:
    """Lists the models that are loaded."""
    with session.open() as client:
        loaded = client.models()
    (terminal.print_json if session.json else terminal.print_models)(loaded)


@cli.command()
@click.argument("service", default="")
@click.pass_obj
def health(session: Session, service: str) -> None:
    """Asks whether the server is ready; exits with 1 where it is not.

    SERVICE is one of its services, or a model as formerd.v1/NAME.
    """
    with session.open() as client:
        status = client.health(service)
    if session.json:
        terminal.print_json({"service": service, "status": status})
    else:
        click.echo(status)
    if status != "SERVING":
        raise click.exceptions.Exit(1)


@cli.command("load")
@click.option(
    "--profile",
    type=click.Choice([*PROFILES]),
    default="mixed",
    show_default=True,
    help="What is called; mixed has callers who go, and deadlines that pass.",
)
@click.option(
    "--clients",
    type=click.IntRange(1, 4096),
    default=8,
    show_default=True,
    help="Connections; without --rate each makes one call after the other.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    default=30.0,
    show_default=True,
    help="For how long calls begin.",
)
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    help="Calls a second, at random moments (Poisson), whether or not earlier ones have ended.",
)
@click.option("--ramp", is_flag=True, help="Begin with no calls and reach --rate at the end.")
@click.option("--seed", type=int, default=0, show_default=True, help="Draws the same calls again.")
@click.option("--embedder", metavar="MODEL", help="Which model embeds.  [default: the first]")
@click.option("--generator", metavar="MODEL", help="Which model generates.  [default: the first]")
@click.option(
    "--report",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for the report: JSON and a picture.",
)
@click.pass_obj
def load_server(
    session: Session,
    /,
    profile: str,
    embedder: str | None,
    generator: str | None,
    directory: Path | None,
    **options: Any,
) -> None:
    """Puts the server under load and checks every answer.

    Each answer has to be the one that the same server gives to the same question alone, before the
    load. Exits with 1 where one is lost, duplicated, swapped or wrong. --timeout is every call's
    deadline.
    """
    from client.load.command import LoadOptions, load  # slow to import, for this command alone
    from client.load.display import print_result

    wanted = LoadOptions(embedder, generator, directory)
    try:
        plan = Plan(PROFILES[profile], timeout=session.timeout, **options)
        tally, report = asyncio.run(load(plan, session.connection, wanted, terminal.notes()))
    except LoadError as error:
        raise click.UsageError(str(error)) from None
    if session.json:
        terminal.print_json(report)
    else:
        print_result(tally, terminal.results())
    if tally.faults:
        raise click.exceptions.Exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    try:
        # Exit codes that a command asks for come back as a value; its own result is None.
        return int(cli.main(arguments, prog_name="python -m client", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130
    except CallFailed as error:
        terminal.print_error(error)
        return 1
    except UnicodeEncodeError:
        click.echo("error: the text is not valid UTF-8", err=True)
        return 2


def _turns(system: str | None, text: str) -> list[Message]:
    first = [] if system is None else [Message("system", system)]
    return [*first, Message("user", text)]


def _stdin_lines() -> list[str]:
    return sys.stdin.read().splitlines()


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line names: the server decides about the rest."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
