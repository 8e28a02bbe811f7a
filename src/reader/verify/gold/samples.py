"""Recompute the samples and anomalies of a product from silver, in DuckDB, and compare them with its tables.

A sample is found here by lists: the normal readings of a window are put into a list in their order, of which the first,
the one in the middle and the last are taken.
"""

from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_END, WINDOW_START
from lakeproof.gold.samples import (
    DETECTED_AT,
    DETECTOR,
    MAXIMUM,
    MINIMUM,
    ROLES,
    Detector,
    Grouping,
    Role,
    Samples,
)
from lakeproof.tables.names import MICRO_BATCH_ID, PRODUCT, silver_tables
from reader.connect import Session
from reader.verify.gold import findings
from reader.verify.gold.findings import ProductVerification
from reader.verify.gold.layers import Layer, horizons, rebuild_hint, time_text
from reader.verify.gold.windows import Span, micros, slices
from reader.verify.tables import SHOWN_EXAMPLES, Findings
from reader.views import MEMORY, identifier, quoted

_EXPECTED = f"{MEMORY}.main.verify_expected_samples"
_FOUND = f"{MEMORY}.main.verify_found_samples"
_SECOND = "1000000::DOUBLE"


def verify_samples(
    session: Session,
    samples: Samples,
    contract: Contract,
    kept: Layer,
    anomalies: Layer | None,
    silver: Layer | None,
) -> ProductVerification:
    """Recompute a product of samples from silver, up to the horizon of its newest micro-batch, and compare.

    Parameters
    ----------
    session
        The open session.
    samples, contract
        The product, and the contract of its stream.
    kept, anomalies, silver
        The tables: of samples, of anomalies, and of what silver has kept.
    """
    problem = _problem(session, samples, kept, anomalies, silver)
    if problem:
        return ProductVerification(samples.name, problems=(problem,))
    if not silver or not silver.rows or not anomalies:
        return ProductVerification(samples.name)
    then, now = horizons(session, contract, (kept.end, silver.end))
    said = int(kept.marker["contents"]) if kept.marker else None
    readings = _Readings(session, samples, silver.rows)
    behind = 0 if now is None else readings.count(said, now, silver.end)
    if said is None:
        return ProductVerification(samples.name, behind=behind)
    if said != then:
        message = (
            f"{kept.name} has what is before {time_text(session, said)}, according to its marker, but the horizon was "
            f"{time_text(session, then)}. {rebuild_hint(samples.name)}"
        )
        return ProductVerification(samples.name, behind=behind, problems=(message,))
    found, windows = Findings(), 0
    # The anomalies may be a micro-batch ahead: between the two commits, or after a crash.
    for part in readings.slices(kept.end):
        windows += _compare_samples(readings, part, kept, said, found)
        _compare_anomalies(readings, part, kept.end, anomalies, said, found)
    for table in (_EXPECTED, _FOUND):
        session.fetch(f"DROP TABLE IF EXISTS {table}")
    return ProductVerification(samples.name, windows, behind, found.whole())


def _problem(
    session: Session, samples: Samples, kept: Layer, anomalies: Layer | None, silver: Layer | None
) -> str | None:
    """Why the rows of the tables cannot be compared."""
    if not anomalies:
        return f"gold.{samples.anomalies} does not exist. {rebuild_hint(samples.name)}"
    reading = (samples.device.name, samples.event_time.name, samples.value.name)
    for table, columns in (
        (kept, (WINDOW_START, WINDOW_END, *reading, ROLES)),
        (anomalies, (*reading, DETECTOR, DETECTED_AT, MINIMUM, MAXIMUM)),
    ):
        if {table.properties.get(PRODUCT), table.marker.get("contract")} - {None, samples.digest}:
            return (
                f"{table.name} was filled for another product than {samples.name}.yaml and the contract of "
                f"{samples.stream} declare. Restore them. Or: {rebuild_hint(samples.name)}"
            )
        if lacking := [name for name in columns if name not in table.columns]:
            return f"{table.name} has no column {lacking[0]}. {rebuild_hint(samples.name)}"
        if table.rows and not table.marker and session.fetch(f"SELECT 1 FROM {table.rows} LIMIT 1"):  # noqa: S608
            return f"{table.name} has rows, but its marker was removed. {rebuild_hint(samples.name)}"
    if not kept.marker:
        return None
    name = silver_tables(samples.stream).kept
    if not silver:
        return f"{kept.name} was filled from {name}, which does not exist. Restore that, or rebuild it."
    if kept.marker["checkpoint_id"] != silver.id:
        return (
            f"{kept.name} was filled from another {name}, which was replaced since then. {rebuild_hint(samples.name)}"
        )
    if kept.end > silver.end or anomalies.end < kept.end:
        other = name if kept.end > silver.end else anomalies.name
        return (
            f"{kept.name} has the micro-batches before {kept.end}, but {other} does not: they are from different "
            f"points in time. {rebuild_hint(samples.name)}"
        )
    return None


class _Readings:
    """SQL of what silver has kept: columns ``at`` in microseconds, ``device``, ``value`` and ``anomaly``."""

    def __init__(self, session: Session, samples: Samples, silver: str) -> None:
        self.session = session
        self.samples = samples
        self._silver = silver
        self._time = identifier(samples.event_time.name)
        limits = [f"value < {samples.minimum!r}::DOUBLE"] * (samples.minimum is not None)
        limits += [f"value > {samples.maximum!r}::DOUBLE"] * (samples.maximum is not None)
        self._anomaly = f"({' OR '.join(limits) or 'false'})"

    def between(self, since: int | None, until: int, end: int) -> str:
        """SQL of the readings of times, from the micro-batches of silver before a number."""
        limits = [f"{MICRO_BATCH_ID} < {end}", f"{self._time} < make_timestamptz({until})"]
        limits += [f"{self._time} >= make_timestamptz({since})"] * (since is not None)
        selected = f"epoch_us({self._time}) AS moment, {identifier(self.samples.device.name)} AS device"
        value = identifier(self.samples.value.name)
        rows = f"SELECT {selected}, {value} AS value FROM {self._silver} WHERE {' AND '.join(limits)}"  # noqa: S608
        return f"(SELECT *, {self._anomaly} AS anomaly FROM ({rows}))"  # noqa: S608

    def count(self, since: int | None, until: int, end: int) -> int:
        """How many readings that is."""
        ((count,),) = self.session.fetch(f"SELECT count(*) FROM {self.between(since, until, end)}")  # noqa: S608
        return int(count)

    def slices(self, end: int) -> list[Span]:
        """Spans of times that together are all times."""
        size, every = micros(self.samples.window.size), micros(self.samples.window.every)
        newest = f"(moment - ((moment % {every}) + {every}) % {every})"
        return slices(self.session, newest, self.between(None, 2**62, end), size // every)


def _compare_samples(readings: _Readings, part: Span, kept: Layer, until: int, found: Findings) -> int:
    """Compare the samples of windows that start within a span; return how many windows, or devices in windows."""
    session, samples = readings.session, readings.samples
    size, every = micros(samples.window.size), micros(samples.window.every)
    last = until if part.end is None else min(until, part.end + size)
    group = "start, device" if samples.by is Grouping.DEVICE else "start"
    newest = f"(moment - ((moment % {every}) + {every}) % {every})"
    picks = ", ".join(
        f"{{'role': {quoted(role)}, 'nth': {number}, 'reading': normal[{place}]}}"
        for number, (role, place) in enumerate(
            ((Role.FIRST, "1"), (Role.MIDDLE, "len(normal) // 2 + 1"), (Role.LAST, "len(normal)"))
        )
    )
    reading = "{'moment': moment, 'device': device, 'value': value}"
    session.fetch(
        f"CREATE OR REPLACE TABLE {_EXPECTED} AS WITH placed AS (SELECT "  # noqa: S608
        f"unnest(range({newest} - {size - every}, {newest} + 1, {every})) AS start, moment, device, value, anomaly "
        f"FROM {readings.between(part.start, last, kept.end)}), "
        f"closed AS (FROM placed WHERE {part.holds('start')} AND start + {size} <= {until}), "
        f"lists AS (SELECT {group}, list({reading} ORDER BY moment, device, value) AS normal FROM closed "
        f"WHERE NOT anomaly GROUP BY {group}), "
        f"picked AS (SELECT start, unnest([{picks}]) AS pick FROM lists) "
        "SELECT start, pick.reading.moment AS moment, pick.reading.device AS device, pick.reading.value AS value, "
        "list(pick.role ORDER BY pick.nth) AS roles FROM picked GROUP BY ALL "
        f"UNION ALL SELECT start, moment, device, value, [{quoted(Role.ANOMALY)}] FROM closed WHERE anomaly"
    )
    limits = [f"{WINDOW_START} >= make_timestamptz({part.start})"] * (part.start is not None)
    limits += [f"{WINDOW_START} < make_timestamptz({part.end})"] * (part.end is not None)
    within = " AND ".join(limits) or "true"
    within = within if part.start is not None else f"({WINDOW_START} IS NULL OR {within})"
    _read(
        readings,
        kept,
        f"epoch_us({WINDOW_START}) AS start, epoch_us({WINDOW_END}) AS finish, {identifier(ROLES)} AS roles",
        within,
    )
    wrong = {
        WINDOW_END: ("_f.finish", f"_e.start + {size}", "make_timestamptz({})::VARCHAR"),
        ROLES: ("_f.roles", "_e.roles", "{}::VARCHAR"),
    }
    _report(readings, kept.name, ("start", "device", "moment", "value"), wrong, found)
    ((windows,),) = session.fetch(f"SELECT count(*) FROM (SELECT DISTINCT {group} FROM {_EXPECTED})")  # noqa: S608
    return int(windows)


def _compare_anomalies(
    readings: _Readings, part: Span, end: int, anomalies: Layer, until: int, found: Findings
) -> None:
    """Compare the anomalies that are detected within a span."""
    samples = readings.samples
    before = until if part.end is None else min(until, part.end)
    since = None if part.start is None else part.start - micros(samples.detectors.look_back)
    parts = " UNION ALL ".join(f"SELECT * FROM ({sql})" for sql in _detected(samples, before))  # noqa: S608
    readings.session.fetch(
        f"CREATE OR REPLACE TABLE {_EXPECTED} AS WITH readings AS (FROM {readings.between(since, before, end)}) "  # noqa: S608
        f"SELECT * FROM ({parts}) WHERE detected < {before} AND {part.holds('detected')}"
    )
    limits = [f"{DETECTED_AT} < make_timestamptz({before})"]
    limits += [f"{DETECTED_AT} >= make_timestamptz({part.start})"] * (part.start is not None)
    within = " AND ".join(limits)
    within = within if part.start is not None else f"({DETECTED_AT} IS NULL OR {within})"
    selected = f"{DETECTOR} AS detector, epoch_us({DETECTED_AT}) AS detected, {MINIMUM} AS low, {MAXIMUM} AS high"
    _read(readings, anomalies, selected, within)
    wrong = {
        MINIMUM: ("_f.low", "_e.low", "{}::VARCHAR"),
        MAXIMUM: ("_f.high", "_e.high", "{}::VARCHAR"),
    }
    _report(readings, anomalies.name, ("detected", "detector", "device", "moment", "value"), wrong, found)


def _detected(samples: Samples, until: int) -> list[str]:
    """SQL of what each detector notices: its name, when, the reading, and the range that was expected."""
    rules = samples.detectors
    ordered = "WINDOW _w AS (PARTITION BY device ORDER BY moment, value)"

    def select(detector: Detector, detected: str, rows: str, low: str = "NULL", high: str = "NULL") -> str:
        return (
            f"SELECT {quoted(detector)} AS detector, {detected} AS detected, device, moment, value, "  # noqa: S608
            f"{low}::DOUBLE AS low, {high}::DOUBLE AS high FROM {rows}"
        )

    low, high = ("NULL" if end is None else repr(end) for end in (samples.minimum, samples.maximum))
    found = [select(Detector.OUT_OF_RANGE, "moment", "readings WHERE anomaly", low, high)]
    if rate := rules.rate_of_change:
        change = f"{rate.maximum!r}::DOUBLE * ((moment - moment_before)::DOUBLE / {_SECOND})"
        low, high = f"(value_before - {change})", f"(value_before + {change})"
        rows = (
            "(SELECT *, lag(moment) OVER _w AS moment_before, lag(value) OVER _w AS value_before FROM readings "  # noqa: S608
            f"WHERE NOT anomaly {ordered}) WHERE moment > moment_before "
            f"AND moment - moment_before <= {micros(rate.within)} AND NOT (value >= {low} AND value <= {high})"
        )
        found.append(select(Detector.RATE_OF_CHANGE, "moment", rows, low, high))
    if stuck := rules.stuck_value:
        # A reading of the same time that comes before has another value. Those that come behind do not count yet.
        frame = (
            f"(PARTITION BY device ORDER BY moment RANGE BETWEEN {micros(stuck.within)} PRECEDING AND CURRENT ROW "
            "EXCLUDE TIES)"
        )
        rows = (
            "(SELECT *, lag(stuck) OVER _w AS was FROM (SELECT *, "  # noqa: S608
            f"count(*) OVER {frame} >= {stuck.readings} AND min(value) OVER {frame} = max(value) OVER {frame} "
            f"AND lag(moment) OVER _w IS DISTINCT FROM moment AS stuck FROM readings {ordered}) {ordered}) "
            "WHERE stuck AND was IS DISTINCT FROM true"
        )
        found.append(select(Detector.STUCK_VALUE, "moment", rows))
    if silent := rules.silent_device:
        after = micros(silent.after)
        rows = (
            f"(SELECT *, lead(moment, 1, {until}) OVER _w AS following FROM readings {ordered}) "  # noqa: S608
            f"WHERE moment + {after} < following"
        )
        found.append(select(Detector.SILENT_DEVICE, f"moment + {after}", rows))
    return found


def _read(readings: _Readings, table: Layer, selected: str, within: str) -> None:
    """Put rows of a table into memory."""
    samples = readings.samples
    names = {"moment": f"epoch_us({identifier(samples.event_time.name)})", "device": identifier(samples.device.name)}
    names["value"] = identifier(samples.value.name)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in names.items())
    rows = f"FROM {table.rows} WHERE {within}" if table.rows else ""
    readings.session.fetch(f"CREATE OR REPLACE TABLE {_FOUND} AS SELECT {columns}, {selected} {rows}")


def _report(
    readings: _Readings, name: str, keys: tuple[str, ...], wrong: dict[str, tuple[str, str, str]], found: Findings
) -> None:
    """Add what differs between what was found and what is expected."""
    key, order = ", ".join(keys), ", ".join(f"{each} NULLS FIRST" for each in keys)
    time = keys[0]
    place = f"coalesce(make_timestamptz({time})::VARCHAR, 'no time')" + "".join(
        f" || ', {each} ' || coalesce({f'make_timestamptz({each})' if each == 'moment' else each}::VARCHAR, 'null')"
        for each in keys[1:]
    )

    def report(what: str, rows: str, text: str) -> None:
        fetched = readings.session.fetch(
            f"SELECT count(*) OVER (), {text} FROM ({rows}) ORDER BY {order} LIMIT {SHOWN_EXAMPLES}"  # noqa: S608
        )
        if fetched:
            found.add(name, what, fetched[0][0], [example for _, example in fetched])

    repeated = f"SELECT {key}, count(*) AS rows FROM {_FOUND} GROUP BY ALL HAVING count(*) > 1"  # noqa: S608
    report(findings.REPEATED, repeated, f"{place} || ': ' || rows || ' rows'")
    same = " AND ".join(f"_f.{each} IS NOT DISTINCT FROM _e.{each}" for each in keys)
    for what, side, other in ((findings.MISSING, "_e", "_f"), (findings.SURPLUS, "_f", "_e")):
        tables = {"_e": _EXPECTED, "_f": _FOUND}
        rows = (
            f"SELECT {', '.join(f'{side}.{each}' for each in keys)} FROM {tables[side]} AS {side} "  # noqa: S608
            f"ANTI JOIN {tables[other]} AS {other} ON {same}"
        )
        report(what, rows, place)
    for column, (has, expected, form) in wrong.items():
        rows = (
            f"SELECT {', '.join(f'_f.{each}' for each in keys)}, {has} AS _has, {expected} AS _expected "  # noqa: S608
            f"FROM {_FOUND} AS _f JOIN {_EXPECTED} AS _e ON {same} WHERE {has} IS DISTINCT FROM {expected}"
        )
        values = (
            f"coalesce({form.format('_has')}, 'null') || ', expected ' || coalesce({form.format('_expected')}, 'null')"
        )
        report(findings.wrong(column), rows, f"{place} || ': has ' || {values}")
