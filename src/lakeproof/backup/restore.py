"""Restore a backup: everything is checked first, and each step can be repeated."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Engine, select

from lakeproof.addresses import as_uri
from lakeproof.backup.catalogs import Replacement, Tables
from lakeproof.backup.checks import Files, lost_files, lost_offsets, past_ranges, replayed_since
from lakeproof.backup.manifest import STATE, Folder, Manifest, SavedTable
from lakeproof.backup.metadata import is_restored, is_same_table, read_metadata, restored
from lakeproof.backup.take import back_up, local_state, metadata_file
from lakeproof.catalog import catalog_errors
from lakeproof.checkpoint import bronze_query, remove_checkpoint
from lakeproof.errors import LakeproofError, UnavailableError, UsageError
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.move.outside import check_tables
from lakeproof.references import GoneError, Metadata, parsed
from lakeproof.settings import Settings
from lakeproof.state.database import open_database, transaction
from lakeproof.state.lease import QueryState, gold_lease, lease, silver_lease, state_in
from lakeproof.state.rows import put_back_rows, put_back_sinks
from lakeproof.state.schema import LEASES
from lakeproof.storage import open_storage
from lakeproof.tables.names import MARKER, stream_tables
from lakeproof.wording import count_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_KEEP = timedelta(days=7)
_SHOWN = 3
_SAME, _BACK, _AGAIN, _OTHER, _DROPPED, _KEPT = (
    "unchanged",
    "put back",
    "registered again",
    "replaced by the one of the backup",
    "dropped, since it came later",
    "kept, since the backup does not know its stream",
)


@dataclass(frozen=True)
class TableChange:
    """What a restore does to a table."""

    name: str
    action: str
    rows: int | None = None  # after the restore; None if the table is not in the backup


@dataclass
class RestorePlan:
    """The actions of a restore, and the obstacles to it."""

    backup: str
    taken_at: str
    tables: list[TableChange] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    """Files of tables that are gone."""
    lost: dict[str, list[str]] = field(default_factory=dict)
    """By stream, sources that landed after the backup and can no longer be read: names of files, or offsets."""
    unknown: list[str] = field(default_factory=list)
    """Streams whose tables are gone, so that it is unknown what landed after the backup."""
    past: list[str] = field(default_factory=list)
    """Streams that have read messages from before their beginning after the backup."""
    running: list[str] = field(default_factory=list)
    """Leases that are held."""
    differing: list[str] = field(default_factory=list)
    """Contracts and products that differ from those of the backup, and are not changed."""
    added: list[str] = field(default_factory=list)
    """Contracts and products that are missing, and are restored."""
    published: bool = False
    """Whether files were published after the backup."""
    way_back: str | None = None
    """Backup of the lake as it was before the restore."""
    is_done: bool = False

    def refusal(self, *, accept_loss: bool) -> LakeproofError | None:
        """Return the error that prevents the restore; None if it can be carried out."""
        if self.running:
            return UnavailableError(
                f"Consumers are running: {', '.join(self.running)}.", "Stop them. Nothing was changed."
            )
        if self.missing:
            count = sum(map(len, self.missing.values()))
            return LakeproofError(
                f"{count_of(count, 'file')} of {', '.join(self.missing)} {'is' if count == 1 else 'are'} gone: "
                f"{_some([each for found in self.missing.values() for each in found])}.",
                "Bring them back from a copy of the warehouse, or use a newer backup. Nothing was changed.",
            )
        if self.lost and not accept_loss:
            stream, found = next(iter(self.lost.items()))
            return LakeproofError(
                f"Records of {', '.join(self.lost)} would be lost: what landed after the backup can no longer be read "
                f"again, for {stream}: {_some(found)}.",
                "Bring the files back from the archive of `consumer retain`, or use a newer backup, or --accept-loss. "
                "Nothing was changed.",
            )
        return None


@dataclass
class _Work:
    plan: RestorePlan
    changes: list[Replacement] = field(default_factory=list)
    before: dict[str, str] = field(default_factory=dict)
    kept_streams: set[str] = field(default_factory=set)
    kept_tables: set[str] = field(default_factory=set)
    definitions: dict[Path, bytes] = field(default_factory=dict)


def plan_restore(settings: Settings, folder: Folder, *, accept_loss: bool = False) -> RestorePlan:
    """Find out what a restore would do, without changing anything."""
    with catalog_errors():
        return _work(settings, folder, folder.manifest(), accept_loss=accept_loss).plan


def restore(settings: Settings, folder: Folder, *, accept_loss: bool = False, way_back: bool = True) -> RestorePlan:
    """Restore a backup, unless the plan has an obstacle. An interrupted restore can be repeated."""
    manifest = folder.manifest()
    _check_place(settings, folder, manifest)  # before anything is created
    with ExitStack() as held, catalog_errors():
        state = open_database(settings.state.database)
        names = _leases(state, manifest)
        leases = [held.enter_context(lease(settings.state.database, name)) for name in names]
        content = folder.read(STATE, manifest)
        work = _work(settings, folder, manifest, accept_loss=accept_loss, are_held=True)
        if refused := work.plan.refusal(accept_loss=accept_loss):
            raise refused
        if way_back and any(each.action in (_BACK, _OTHER, _DROPPED) for each in work.plan.tables):
            work.plan.way_back = _way_back(settings, folder)
            # The tables now have the tags of this backup.
            way = work.plan.way_back
            work = _work(settings, folder, manifest, accept_loss=True, are_held=True)
            work.plan.way_back = way
        for path, text in work.definitions.items():  # first: if this fails, no table has changed
            open_storage(as_uri(str(path.parent)), settings.s3).replace(as_uri(str(path)), text)
        with local_state(content) as (_, saved):
            for each in leases:
                each.check()  # a machine that was suspended may have lost the leases
            put_back_sinks(saved, state, work.kept_tables)
            Tables(settings).replace(work.changes, work.before)
            for each in leases:
                each.check()
            put_back_rows(saved, state, work.kept_streams)
        for stream in _streams(manifest.tables):
            remove_checkpoint(settings, bronze_query(stream))
    work.plan.is_done = True
    return work.plan


def as_json(plan: RestorePlan) -> str:
    """Format the plan for programs."""
    return json.dumps(asdict(plan), indent=2)


def lines(plan: RestorePlan) -> Iterator[str]:
    """Format the plan for people, in lines."""
    yield f"Backup {plan.backup}, taken at {plan.taken_at}:"
    for each in plan.tables:
        rows = "" if each.rows is None else f", {count_of(each.rows, 'row')}"
        yield f"  {each.name}: {each.action}{rows}."
    for stream, found in plan.lost.items():
        yield f"  {stream}: {count_of(len(found), 'source')} that landed later cannot be read again: {_some(found)}."
    if plan.unknown:
        yield f"  {', '.join(plan.unknown)}: without their tables, landed files that were removed later are not known."
    if plan.past:
        streams = ", ".join(plan.past)
        yield f"  {streams}: messages of the past, read later, are undone: run `consumer run --from … --to …` again."
    if plan.differing:
        yield f"  These files differ from those of the backup, and stay: {', '.join(plan.differing)}."
    if plan.added:
        yield f"  These files are put back: {', '.join(plan.added)}."
    if plan.published:
        yield "  Files were published after the backup. If a sink says so, move them away: they are written again."
    if plan.is_done:
        yield "Restored. The next run reads what landed later. Then check it with `reader verify`."
        if plan.way_back:
            yield f"To undo it: lakeproof restore {plan.way_back}"


def _work(
    settings: Settings, folder: Folder, manifest: Manifest, *, accept_loss: bool, are_held: bool = False
) -> _Work:
    _check_place(settings, folder, manifest)
    tables, work = Tables(settings), _Work(RestorePlan(manifest.id, f"{manifest.taken_at:%Y-%m-%d %H:%M:%S} UTC"))
    pointers = tables.pointers()
    live = {name: found for name, at in pointers.items() if (found := _live(tables, at))}
    files = Files(settings, tables.io)
    if not are_held:
        work.plan.running = _running(settings, manifest)
    until = int(manifest.kept_until.timestamp() * 1000)
    for each in manifest.tables:
        saved = parsed(folder.read(metadata_file(each.name), manifest))
        now = live.get(each.name)
        same = now if now and is_same_table(saved, now) else None
        metadata = read_metadata(saved)
        if each.snapshot_id is not None and (gone := files.missing(metadata, each.snapshot_id)):
            work.plan.missing[each.name] = gone
            continue
        has_files = partial(_has_files, files, metadata)
        found = restored(saved, (pointers[each.name], same) if same else None, manifest.tag, until, has_files)
        work.before[each.name] = each.metadata_location
        if same and is_restored(found, same):
            work.plan.tables.append(TableChange(each.name, _SAME, each.rows))
            continue
        known = same is not None and each.snapshot_id in (None, *(one["snapshot-id"] for one in same["snapshots"]))
        work.changes.append(Replacement(each.name, pointers.get(each.name), found, keeps_table=known))
        if now and past_ranges(stream := each.name.partition(".")[2], metadata, read_metadata(now)):
            work.plan.past.append(stream)
        action = _BACK if same else _OTHER if now else _AGAIN
        work.plan.tables.append(TableChange(each.name, action, each.rows))
    _later(manifest, pointers, live, work)
    if not accept_loss:
        _find_lost(settings, folder, manifest, tables, live, work.plan)
    _compare_definitions(settings, folder, manifest, work)
    published = open_storage(settings.sinks.files, settings.s3).list()
    work.plan.published = any(file.modified_at > manifest.taken_at for file in published)
    return work


def _check_place(settings: Settings, folder: Folder, manifest: Manifest) -> None:
    check_tables(settings)
    here = settings.catalog.warehouse_uri
    if settings.catalog.kind != manifest.catalog:
        raise UsageError(
            f"{folder} is of a catalog of the kind {manifest.catalog}, but LAKE_CATALOG is {settings.catalog.kind}.",
            "Set LAKE_CATALOG to the kind of the backup.",
        )
    if manifest.catalog == "sql" and manifest.warehouse != here:
        raise UsageError(
            f"{folder} is of the lake whose warehouse is {manifest.warehouse}, but LAKE_WAREHOUSE is {here}.",
            "Use the settings of that lake. To have it in another place, restore it first, then use `lakeproof move`.",
        )


def _live(tables: Tables, at: str) -> Metadata | None:
    try:
        return parsed(tables.read(at))
    except GoneError:
        return None


def _has_files(files: Files, metadata: object, snapshot_id: int) -> bool:
    return not files.missing(metadata, snapshot_id)  # type: ignore[arg-type]


def _later(manifest: Manifest, pointers: dict[str, str], live: dict[str, Metadata], work: _Work) -> None:
    """Decide whether to drop tables that were created after the backup.

    A table that follows a table of the backup is dropped, since it would be ahead. Tables of streams that are not in
    the backup stay.
    """
    known = {query for each in manifest.tables for query in each.markers}
    names = {each.name for each in manifest.tables}
    later = {name: _markers(live[name]) for name in pointers if name not in names and name in live}
    streams = {name: {_stream(query) for query in markers} for name, markers in later.items()}
    fresh = {name for name, found in streams.items() if all(each and bronze_query(each) not in known for each in found)}
    ids = {live[name]["table-uuid"] for name in fresh}
    fresh |= {name for name, markers in later.items() if markers and set(markers.values()) <= ids}
    for name in later:
        keep = name in fresh
        work.plan.tables.append(TableChange(name, _KEPT if keep else _DROPPED))
        if keep:
            work.kept_tables.add(name)
            work.kept_streams |= {each for each in streams[name] if each}
        else:
            work.changes.append(Replacement(name, pointers[name], None))


def _markers(metadata: Metadata) -> dict[str, str]:
    """Return checkpoint ids of a table's markers by query; for gold, the id of the silver table that it follows."""
    found = metadata.get("properties", {}).items()
    return {
        key.removeprefix(MARKER): json.loads(text)["marker"]["checkpoint_id"] for key, text in found if MARKER in key
    }


def _stream(query: str) -> str | None:
    layer, _, name = query.partition("-")
    return name if layer in ("bronze", "silver", "removals") else None


def _streams(tables: Sequence[SavedTable]) -> list[str]:
    """Return the streams of a backup."""
    return sorted(each.name.partition(".")[2] for each in tables if each.name.startswith("bronze."))


def _leases(state: Engine, manifest: Manifest) -> list[str]:
    """Return the leases of all queries that may write to the tables: all except modes and alerts."""
    streams = _streams(manifest.tables)
    products = [each.name.partition(".")[2] for each in manifest.tables if each.name.startswith("gold.")]
    with transaction(state) as connection:
        held = list(connection.scalars(select(LEASES.c.stream)))
    others = {name for name in held if " " not in name and not name.startswith("alerts.")}
    return sorted({*streams, *map(silver_lease, streams), *map(gold_lease, products), *others})


def _running(settings: Settings, manifest: Manifest) -> list[str]:
    state = open_database(settings.state.database)
    names = _leases(state, manifest)
    with transaction(state) as connection:
        return [name for name in names if state_in(connection, name) is QueryState.RUNNING]


def _way_back(settings: Settings, folder: Folder) -> str:
    try:
        return str(back_up(settings, folder.parent, _KEEP)[1])
    except LakeproofError as error:
        raise LakeproofError(
            f"The lake as it is now cannot be backed up first: {error.message}",
            "Use --no-backup, to restore without a way back. Nothing was changed.",
        ) from error


def _find_lost(
    settings: Settings, folder: Folder, manifest: Manifest, tables: Tables, live: dict[str, Metadata], plan: RestorePlan
) -> None:
    saved = {each.name for each in manifest.tables}

    def then(name: str) -> "TableMetadata | None":
        return read_metadata(parsed(folder.read(metadata_file(name), manifest))) if name in saved else None

    def now(name: str) -> "TableMetadata | None":
        return read_metadata(live[name]) if name in live else None

    for stream in _streams(manifest.tables):
        names = stream_tables(stream)
        ledger, letters = then(names.ledger), then(names.dead_letters)
        if ledger is None or names.ledger in plan.missing:
            continue
        if recorded_topic(ledger.properties):
            again = replayed_since(tables.io, letters, then(names.attempts), now(names.attempts))
            with local_state(folder.read(STATE, manifest)) as (_, state):
                found = lost_offsets(settings, stream, ledger, now(names.ledger), state, again)
        else:
            if names.ledger not in live:
                plan.unknown.append(stream)
            found = lost_files(settings, tables.io, stream, ledger, now(names.ledger), letters)
        if found:
            plan.lost[stream] = found


def _compare_definitions(settings: Settings, folder: Folder, manifest: Manifest, work: _Work) -> None:
    for kind, own in (("contracts", settings.contracts), ("gold", settings.gold)):
        for name in sorted(each for each in manifest.files if each.startswith(f"{kind}/")):
            file = name.partition("/")[2]
            if "/" in file or not file.endswith(".yaml"):  # a backup writes no such names: they may lead anywhere
                raise LakeproofError(
                    f"The backup {folder} is damaged: {name} is not a contract or a data product.",
                    "Use another backup. Nothing was changed.",
                )
            path, text = own / file, folder.read(name, manifest)
            if not path.exists():
                work.definitions[path] = text
                work.plan.added.append(str(path))
            elif path.read_bytes() != text:
                work.plan.differing.append(str(path))


def _some(found: Sequence[str]) -> str:
    rest = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {rest:,} more" if rest > 0 else "")
