"""Commands for contracts: init, check, diff, try, apply, json-schema."""

import json
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from lakeproof.cli.try_contract import show_forecast, try_contract
from lakeproof.command import check_each, wide_console
from lakeproof.contracts.contract import Contract
from lakeproof.contracts.diff import Change, Compatibility, changes, compatibility
from lakeproof.contracts.duration import horizon_text
from lakeproof.contracts.infer.contract import infer
from lakeproof.contracts.json_schema import json_schema
from lakeproof.contracts.read.odcs import contract_text, parse_contract, unjudged
from lakeproof.contracts.rules.expression import fields_in
from lakeproof.documents.names import is_identifier
from lakeproof.errors import LakeproofError, UsageError
from lakeproof.settings import Settings, load_settings
from lakeproof.storage.local import local_path
from lakeproof.wording import count_of

contract_commands = typer.Typer(help="Infer, check, compare, apply and export contracts.", no_args_is_help=True)

_MAX_LEFT_OUT = 10
_EXIT_CODES = {
    Compatibility.FULL: 0,
    Compatibility.BACKWARD: 10,
    Compatibility.FORWARD: 11,
    Compatibility.BREAKING: 12,
}
_MEANINGS = {
    Compatibility.FULL: "full: old and new readers accept old and new data.",
    Compatibility.BACKWARD: "backward: the new contract accepts all old data, but the old one not all new data. "
    "Change the consumer first, then the producers.",
    Compatibility.FORWARD: "forward: the old contract accepts all new data, but the new one not all old data. "
    "Change the producers first, then the consumer.",
    Compatibility.BREAKING: "breaking: each contract rejects some of the other's data. Make the change in steps.",
}
_NAME = "NAME (contracts/NAME.yaml) or a file"


@contract_commands.command()
def init(
    stream: Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream. Writes contracts/NAME.yaml.")],
    samples: Annotated[
        Path, typer.Option("--from", metavar="FILE|FOLDER", help="Records to infer from.", show_default=False)
    ],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Field of the primary key. Repeat it for a key of several fields."),
    ] = None,
    event_time: Annotated[str | None, typer.Option(metavar="FIELD", help="Timestamp field of the event time.")] = None,
    max_records: Annotated[int, typer.Option(min=1, help="Maximum number of records to read.")] = 100_000,
    tolerate: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of a field's values that may have another type.")
    ] = "5%",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the contract without writing it.")] = False,
) -> None:
    """Infer a contract from samples: types, formats, required fields, allowed values, nested objects.

    A field gets the type of at least 95 % of its values (see --tolerate). The command prints which values do not fit,
    and what is uncertain. With `--tolerate 0%`, no record of the samples becomes a dead letter. An existing contract is
    not overwritten.
    """
    settings = load_settings()
    path = settings.contracts / f"{stream}.yaml"
    if not is_identifier(stream):
        raise UsageError(f"{stream!r} is not a valid name for a stream.", "Use letters, digits and _.")
    if path.exists() and not dry_run:
        raise UsageError(f"{path} exists.", "Use another name, or delete the file. --dry-run prints the contract.")
    found = infer(stream, samples, key or (), event_time, max_records, _share(tolerate))
    parse_contract(found.text.encode(), str(path), stream)
    if dry_run:
        sys.stdout.write(found.text)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(found.text)
        sys.stdout.write(
            f"{stream}: wrote {path}: {count_of(found.fields, 'field')} from {count_of(found.records, 'record')} of "
            f"{count_of(found.files, 'file')}, event time {found.event_time}, "
            f"key {', '.join(found.primary_key) or 'none'}\n"
        )
    for line in found.left_out[:_MAX_LEFT_OUT]:
        sys.stderr.write(f"Warning: no contract can accept {line}.\n")
    if more := found.left_out[_MAX_LEFT_OUT:]:
        sys.stderr.write(f"Warning: no contract can accept {count_of(len(more), 'more unit')}.\n")
    if found.notes:
        sys.stderr.write("Not certain:\n")
        sys.stderr.writelines(f"  {f'{name}: ' if name else ''}{text}\n" for name, text in found.notes)
    if not dry_run:
        where = _shown(f"{settings.landing.uri}/{stream}")
        sys.stderr.write(f"Next: land files in {where}, then run: consumer run {stream} --available-now\n")


@contract_commands.command()
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|FILE]...", help="Contracts to check. Default: all in LAKE_CONTRACTS.", show_default=False
        ),
    ] = None,
) -> None:
    """Check contracts as the consumer does at its start. Exits with 2 if one is rejected, and prints line and hint."""
    folder = load_settings().contracts
    chosen = names or sorted(path.stem for path in folder.glob("*.yaml"))
    if not chosen:
        raise UsageError(f"No contracts found in {folder}.", "Run in the project's folder, or set LAKE_CONTRACTS.")

    def check_one(name: str) -> None:
        contract = _load(folder, name)
        sys.stdout.write(
            f"{name}: ok: stream {contract.stream}, version {contract.version}, {len(contract.live)} fields, "
            f"key {', '.join(contract.primary_key) or 'none'}, event time {contract.event_time}, {_silver(contract)}"
            f"{_anomalies(contract)}{_deprecated(contract)}\n"
        )
        for warning in unjudged(*_text(folder, name)):
            sys.stderr.write(f"Warning: {warning}\n")
        for rule in contract.rules:
            for field in contract.deprecated_in(fields_in(rule.condition)):
                sys.stderr.write(f"Warning: {name}: the rule {rule.name} uses {field}, which is deprecated.\n")

    check_each(chosen, check_one)


@contract_commands.command()
def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help=f"{_NAME}.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help=f"{_NAME}.")],
) -> None:
    """Show the changes from OLD to NEW, and whether each can read the other's data, in terms of schema registries.

    Backward: a reader with NEW accepts data of OLD. Forward: a reader with OLD accepts data of NEW.

    Exit codes: 0 full (both, or no change), 10 backward only, 11 forward only, 12 breaking (neither), 2 a contract is
    rejected.
    """
    folder = load_settings().contracts
    before, after = _load(folder, old), _load(folder, new)
    found = changes(before, after)
    verdict = compatibility(found)
    console = wide_console()
    if not found:
        console.print("No changes that affect readers.", highlight=False)
    else:
        console.print(_table(found))
        console.print(_MEANINGS[verdict], highlight=False)
    if any(not (change.backward and change.forward) for change in found) and before.version == after.version:
        console.print(
            f"Both have version {after.version}. Increase it: each row records the version that judged it.",
            highlight=False,
        )
    raise typer.Exit(_EXIT_CODES[verdict])


contract_commands.command("try")(try_contract)


@contract_commands.command()
def apply(
    stream: Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream (contracts/NAME.yaml).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done. Nothing is changed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask on a terminal.")] = False,
) -> None:
    """Change the tables of a stream to match its contract. A running consumer uses it from the next micro-batch on.

    New optional fields become columns, and types are widened. Field ids and rows are kept. A change that would drop or
    narrow a column, or require a field, is rejected (exit code 2). ops.schema_changes records each change. If a schema
    registry is configured, it must accept the contract; if it does not respond, nothing is changed (exit code 3).

    On a terminal, the command shows for a sample which units would change between bronze and dead letters, as
    `lakeproof contract try` does, and asks (exit code 1 after a no). --yes skips the question. If input or output is
    not a terminal, the command applies the contract without a forecast or a question.
    """
    settings = load_settings()
    contract_text(settings.contracts, stream)  # an unknown name is reported before anything is opened
    from lakeproof.catalog import catalog_errors, open_catalog, table_or_none
    from lakeproof.history.apply import carry_out, lines, plan
    from lakeproof.move.outside import check_tables
    from lakeproof.state.contract_log import ContractLog

    check_tables(settings)
    catalog = open_catalog(settings)
    with catalog_errors():
        planned = plan(catalog, settings, stream)
    if settings.registry.url and not planned.is_applied:
        from lakeproof.kafka.recorded import with_recorded_topic
        from lakeproof.kafka.registry import Registry
        from lakeproof.tables.names import stream_tables

        with catalog_errors():
            ledger = table_or_none(catalog, stream_tables(stream).ledger)
        topic = with_recorded_topic(settings, ledger.properties if ledger else {}).topic_of(stream)
        Registry(settings.registry, topic).check(planned.contract)
    if not planned.is_applied and not planned.creates and sys.stdin.isatty() and sys.stdout.isatty():
        show_forecast(catalog, settings, planned.contract)
        if not dry_run and not yes:
            if not typer.confirm(f"Apply contract {planned.contract.version} to {stream}?"):
                sys.stdout.write("Not applied.\n")
                raise typer.Exit(1)
            with catalog_errors():
                is_same = plan(catalog, settings, stream) == planned
            if not is_same:
                raise UsageError("The contract or the tables have changed meanwhile.", "Run it again.")
    if not dry_run:
        with catalog_errors():
            carry_out(catalog, planned, ContractLog(settings.state.database))
    version, applied = planned.contract.version, planned.applied
    if planned.is_applied:
        sys.stdout.write(f"{stream}: {version} is already applied.\n")
        return
    would = "would be " if dry_run else ""
    if planned.creates:
        sys.stdout.write(f"{stream}: tables {would}created by {version}.\n")
    else:
        sys.stdout.write(f"{stream}: {f'{applied.version} → ' if applied else ''}{version} {would}applied.\n")
    sys.stdout.writelines(f"  {line}\n" for line in lines(planned.changes))
    sys.stdout.writelines(f"  {line}\n" for line in _products_that_do_not_fit(settings, planned.contract))


def _products_that_do_not_fit(settings: Settings, contract: Contract) -> Iterator[str]:
    """A line for each data product that uses a name that is no longer in its contract."""
    from lakeproof.gold.model import Kind
    from lakeproof.gold.product_file import names_of_kind
    from lakeproof.gold.samples_file import load_any

    for kind in Kind:
        for name in names_of_kind(settings.gold, [contract.stream], kind):
            try:
                load_any(settings.gold, name, lambda _: contract)
            except LakeproofError as error:
                yield f"{error.message}: change it before the consumer starts again; a running consumer continues"


@contract_commands.command("json-schema")
def print_json_schema(name: Annotated[str, typer.Argument(metavar="NAME|FILE", help=f"{_NAME}.")]) -> None:
    """Print a contract as JSON Schema (draft-07), for a schema registry. Records that meet the contract are valid."""
    contract = _load(load_settings().contracts, name)
    sys.stdout.write(json.dumps(json_schema(contract), indent=2, ensure_ascii=False) + "\n")


def _share(text: str) -> Fraction:
    number = re.fullmatch(r"\d{1,2}(\.\d+)?%", text, re.ASCII)
    if not number or (share := Fraction(text[:-1]) / 100) >= Fraction(1, 2):
        raise UsageError(f"--tolerate: expected a share below 50%, got {text!r}.", "Write it like 5% or 0.5%.")
    return share


def _shown(uri: str) -> str:
    """A folder as it would be typed here: without ``file://``, relative to the working directory."""
    if not uri.startswith("file://"):
        return uri
    path = local_path(uri)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _load(folder: Path, name: str) -> Contract:
    return parse_contract(*_text(folder, name), None if _is_file(name) else name)


def _silver(contract: Contract) -> str:
    silver = contract.silver
    if silver is None:
        return f"no silver: {contract.no_silver}"
    return f"silver horizon {horizon_text(silver.horizon)}, silver strategy {silver.strategy}"


def _anomalies(contract: Contract) -> str:
    found = [f"{field.name} {field.expected}" for field in contract.live if field.expected]
    return f", anomalies {', '.join(found)}" if found else ""


def _deprecated(contract: Contract) -> str:
    return f", deprecated {', '.join(contract.deprecated)}" if contract.deprecated else ""


def _text(folder: Path, name: str) -> tuple[bytes, str]:
    """The bytes and the path of a contract."""
    if not _is_file(name):
        return contract_text(folder, name), str(folder / f"{name}.yaml")
    try:
        return Path(name).read_bytes(), name
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}.", "Use the name of a stream, or the path of a contract.") from None


def _is_file(name: str) -> bool:
    path = Path(name)
    return path.suffix in (".yaml", ".yml") or path.name != name


def _table(found: tuple[Change, ...]) -> Table:
    table = Table("field", "change", "backward", "forward", box=None, pad_edge=False)
    for change in found:
        table.add_row(
            escape(change.field or "(contract)"),
            escape(change.what),
            "yes" if change.backward else "[red]no[/]",
            "yes" if change.forward else "[red]no[/]",
        )
    return table
