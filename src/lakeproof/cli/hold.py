"""The command `lakeproof hold`: registered readers."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from lakeproof.contracts.duration import read_option
from lakeproof.errors import UsageError
from lakeproof.settings import Settings, load_settings
from lakeproof.topics import time_with_zone

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


def hold(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[STREAM|TABLE]", help="A stream (all its tables), or a table.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the reader.", show_default=False)
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="6h", help="Duration, like 6h, 30m or 2d.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Deadline, instead of --for.", show_default=False)
    ] = None,
    oldest: Annotated[
        bool,
        typer.Option(
            "--oldest", help="Hold the oldest snapshot instead of the newest: a new Spark stream begins there."
        ),
    ] = False,
    release: Annotated[bool, typer.Option("--release", help="End the hold.")] = False,
) -> None:
    """Keep the current snapshots of tables for a reader, until a deadline. Without options, list all holds.

    Each table gets a tag lakeproof-reader-NAME at its newest snapshot. All tools that expire snapshots keep this one;
    `consumer maintain` also keeps the later ones. Repeat the command to extend the deadline: the snapshot stays the
    same.
    """
    from lakeproof.catalog import catalog_errors, open_catalog
    from lakeproof.holds import check_name
    from lakeproof.holds import hold as hold_table
    from lakeproof.holds import release as release_table

    settings = load_settings()
    if name is None:
        if duration or until or release or oldest:
            raise UsageError("--as is missing.", "Add the name of the reader, like --as nightly-report.")
        _list(settings, target)
        return
    check_name(name)
    if release and (duration or until or oldest):
        raise UsageError("--release cannot be used with --for, --until or --oldest.", "Remove the one or the others.")
    deadline = None if release else _deadline(duration, until)
    with catalog_errors():
        catalog = open_catalog(settings)
        tables = _tables(settings, catalog, target)
        if deadline is None:
            released = [table for table in tables if release_table(catalog, table, name)]
            typer.echo("".join(f"{table}: released\n" for table in released), nl=False)
            if not released:
                raise UsageError(
                    f"{name} holds no snapshot{f' of {target}' if target else ''}.", "`lakeproof hold` lists all holds."
                )
            return
        for table in tables:
            held = hold_table(catalog, table, name, deadline, oldest=oldest)
            typer.echo(f"{table}: {f'snapshot {held.snapshot_id} held{held.lasts}' if held else 'has no snapshot yet'}")


def _list(settings: Settings, target: str | None) -> None:
    from lakeproof.catalog import catalog_errors, open_catalog
    from lakeproof.holds import holds_of
    from lakeproof.references import GoneError, newest_metadata

    found = 0
    with catalog_errors():
        catalog = open_catalog(settings)
        for table in _tables(settings, catalog, target):
            with suppress(GoneError):
                for each in holds_of(newest_metadata(catalog, table)[1]):
                    found += 1
                    typer.echo(f"{table}: {each.reader} holds snapshot {each.snapshot_id}{each.lasts}")
    if not found:
        typer.echo("No reader holds a snapshot.", err=True)


def _tables(settings: Settings, catalog: "Catalog", target: str | None) -> list[str]:
    """Tables that exist: one, those of a stream, or all."""
    from lakeproof.tables.names import NAMESPACES
    from lakeproof.tables.of_stream import tables_of_stream

    if target is None:
        existing = (namespace for namespace in NAMESPACES if catalog.namespace_exists(namespace))
        return [".".join(table) for namespace in existing for table in sorted(catalog.list_tables(namespace))]
    if "." not in target:
        found = [table for table in tables_of_stream(settings, target) if catalog.table_exists(table)]
        if not found:
            raise UsageError(f"{target} has no tables yet.", f"Run `consumer run {target}`.")
        return found
    if not catalog.table_exists(target):
        raise UsageError(f"There is no table {target}.", "`reader tables` lists all tables.")
    return [target]


def _deadline(duration: str | None, until: str | None) -> datetime:
    now = datetime.now(UTC)
    if (duration is None) == (until is None):
        raise UsageError("Expected either --for or --until.", "Add one, like --for 6h.")
    if duration is not None:
        return now + read_option(duration)
    time = time_with_zone(until or "")
    if time is None:
        hint = "Write it like 2026-11-22T06:00:00Z."
        raise UsageError(f"--until: expected a time with its zone, got {until!r}.", hint)
    if time <= now:
        raise UsageError(f"--until: {until} is in the past.", "Use a later time, or --release.")
    return time
