"""Samples: recompute the samples and anomalies of products from silver, and compare them with their tables.

Samples are computed with lists: the normal readings of a window are put into a list in order, and its first, middle and
last element are taken.
"""

from lakeproof.catalog import catalog_errors, quoted
from lakeproof.contracts import Contract
from lakeproof.gold.model import WINDOW_END, WINDOW_START
from lakeproof.gold.product_file import product_names
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
from lakeproof.gold.samples_file import load_all_samples
from lakeproof.tables.names import MICRO_BATCH_ID, gold_query, samples_tables
from reader.connect import Session
from reader.verify.check import Check, Result, Scope
from reader.verify.checks import products
from reader.verify.checks.products import rebuild_hint, result_of
from reader.verify.findings import Findings
from reader.verify.gold.compare import FOUND, Key, Value, compare_rows, drop_compared
from reader.verify.gold.windows import EXPECTED, slices
from reader.verify.silver.content import micros
from reader.verify.spans import Span, merged
from reader.verify.tables.layers import Layer, horizons, layer_of
from reader.views import identifier

_SECOND = "1000000::DOUBLE"


def check(scope: Scope) -> tuple[Result, ...]:
    """Compare both tables of each product of samples, up to the horizon of their newest micro-batch."""
    contract = products.contract_of(scope) if product_names(scope.settings.gold) else None
    if not contract:
        return ()
    found: list[Result] = []
    for samples in load_all_samples(scope.settings.gold, [scope.stream], lambda _: contract):
        names, query = samples_tables(samples.name, samples.anomalies), gold_query(samples.name)
        with catalog_errors():
            kept, anomalies = (layer_of(scope.catalog, each, query) for each in (names.samples, names.anomalies))
        silver = products.silver_now(scope)
        if kept:
            found.append(_verify(scope, samples, contract, kept, anomalies, silver))
        else:
            found += products.without_table(scope, samples.name, silver, has_part=anomalies is not None)
    return tuple(found)


def _verify(
    scope: Scope,
    samples: Samples,
    contract: Contract,
    kept: Layer,
    anomalies: Layer | None,
    silver: Layer | None,
) -> Result:
    session = scope.session
    if problem := _problem(session, samples, kept, anomalies, silver):
        return result_of(samples.name, problems=(problem,))
    if not silver or not silver.rows or not anomalies:
        return result_of(samples.name)
    then, now = horizons(session, contract, (kept.end, silver.end), products.proven_time(scope, contract))
    said = products.published(kept)
    readings = _Readings(session, samples, silver.rows)
    behind = 0 if now is None else readings.count(said, now, silver.end)
    problem = products.problem_of_horizon(session, samples.name, kept, "what is before", then)
    if problem or said is None:
        return result_of(samples.name, behind=behind, problems=(problem,) if problem else ())
    filled = {
        "name": samples.name,
        "digest": samples.digest,
        "contract": contract.digest,
        "silver": silver.id,
        "end": kept.end,
        "horizon": said,
    }
    size = micros(samples.window.size)
    spans, _ = products.unproven(scope, filled, [(kept, WINDOW_START), (anomalies, DETECTED_AT)], size)
    within = [Span()] if spans is None else merged(spans)
    found, windows = Findings(), 0
    try:
        # The anomalies may be a micro-batch ahead: between the two commits, or after a crash.
        for part in (each for span in within for each in readings.slices(kept.end, span)):
            windows += _compare_samples(readings, part, kept, said, found)
            _compare_anomalies(readings, part, kept.end, anomalies, said, found)
    finally:
        drop_compared(session)
    return result_of(samples.name, windows, behind, found.whole())


def _problem(
    session: Session, samples: Samples, kept: Layer, anomalies: Layer | None, silver: Layer | None
) -> str | None:
    """Return the reason why the rows of the tables cannot be compared; None if they can."""
    if not anomalies:
        return f"gold.{samples.anomalies} does not exist. {rebuild_hint(samples.name)}"
    reading = (samples.device.name, samples.event_time.name, samples.value.name)
    other = (
        f"was filled for another product than {samples.name}.yaml and the contract of {samples.stream} declare. "
        "Restore them."
    )
    for table, columns in (
        (kept, (WINDOW_START, WINDOW_END, *reading, ROLES)),
        (anomalies, (*reading, DETECTOR, DETECTED_AT, MINIMUM, MAXIMUM)),
    ):
        if problem := products.problem_of(session, samples.name, samples.digest, table, columns, other):
            return problem
    if not kept.marker:
        return None
    problem = products.problem_of_silver(samples.name, samples.stream, kept, silver)
    if not problem and silver and (kept.end > silver.end or anomalies.end < kept.end):
        ahead = silver.name if kept.end > silver.end else anomalies.name
        return (
            f"{kept.name} has the micro-batches before {kept.end}, but {ahead} does not: they are from different "
            f"points in time. {rebuild_hint(samples.name)}"
        )
    return problem


class _Readings:
    """SQL of the readings in silver: columns ``moment`` in microseconds, ``device``, ``value`` and ``anomaly``."""

    def __init__(self, session: Session, samples: Samples, silver: str) -> None:
        self.session = session
        self.samples = samples
        self._silver = silver
        self._time = identifier(samples.event_time.name)
        limits = [f"value < {_double(samples.minimum)}"] * (samples.minimum is not None)
        limits += [f"value > {_double(samples.maximum)}"] * (samples.maximum is not None)
        self._anomaly = f"({' OR '.join(limits) or 'false'})"

    def between(self, since: int | None, until: int, end: int) -> str:
        """Return SQL of the readings in a span of time, from the micro-batches of silver before `end`."""
        limits = [f"{MICRO_BATCH_ID} < {end}", f"{self._time} < make_timestamptz({until})"]
        limits += [f"{self._time} >= make_timestamptz({since})"] * (since is not None)
        selected = f"epoch_us({self._time}) AS moment, {identifier(self.samples.device.name)} AS device"
        value = identifier(self.samples.value.name)
        rows = f"SELECT {selected}, {value} AS value FROM {self._silver} WHERE {' AND '.join(limits)}"
        return f"(SELECT *, {self._anomaly} AS anomaly FROM ({rows}))"

    def count(self, since: int | None, until: int, end: int) -> int:
        """Return the number of readings of :meth:`between`."""
        return self.session.count(self.between(since, until, end))

    def slices(self, end: int, within: Span) -> list[Span]:
        """Return spans of time that together make up `within`."""
        size, every = micros(self.samples.window.size), micros(self.samples.window.every)
        newest = f"(moment - ((moment % {every}) + {every}) % {every})"
        until = 2**62 if within.end is None else within.end + size
        return slices(self.session, newest, self.between(within.start, until, end), size // every, within)


def _compare_samples(readings: _Readings, part: Span, kept: Layer, until: int, found: Findings) -> int:
    """Compare the samples of windows that start in a span; return the number of windows, or of devices in windows."""
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
        f"CREATE OR REPLACE TABLE {EXPECTED} AS WITH placed AS (SELECT "
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
    selected = f"epoch_us({WINDOW_START}) AS start, epoch_us({WINDOW_END}) AS finish, {identifier(ROLES)} AS roles"
    _read(readings, kept, selected, part.holds_time(WINDOW_START))
    values = [
        Value(WINDOW_END, "_f.finish", f"_e.start + {size}", "coalesce(make_timestamptz({})::VARCHAR, 'null')".format),
        Value(ROLES, "_f.roles", "_e.roles", _text),
    ]
    compare_rows(session, kept.name, _keys("start", "device", "moment", "value"), values, found)
    return session.count(f"(SELECT DISTINCT {group} FROM {EXPECTED})")


def _compare_anomalies(
    readings: _Readings, part: Span, end: int, anomalies: Layer, until: int, found: Findings
) -> None:
    """Compare the anomalies that were detected within a span."""
    samples = readings.samples
    before = until if part.end is None else min(until, part.end)
    since = None if part.start is None else part.start - micros(samples.detectors.look_back)
    parts = " UNION ALL ".join(f"SELECT * FROM ({sql})" for sql in _detected(samples, before))
    readings.session.fetch(
        f"CREATE OR REPLACE TABLE {EXPECTED} AS WITH readings AS (FROM {readings.between(since, before, end)}) "
        f"SELECT * FROM ({parts}) WHERE detected < {before} AND {part.holds('detected')}"
    )
    selected = f"{DETECTOR} AS detector, epoch_us({DETECTED_AT}) AS detected, {MINIMUM} AS low, {MAXIMUM} AS high"
    within = Span(part.start, before).holds_time(DETECTED_AT)
    if part.end is None and (reached := products.published(anomalies)) is not None:
        # The consumer has detected nothing beyond its own marker, so rows beyond it were written by another program.
        within = f"({within} OR {Span(reached).holds_time(DETECTED_AT)})"
    _read(readings, anomalies, selected, within)
    values = [Value(MINIMUM, "_f.low", "_e.low", _text), Value(MAXIMUM, "_f.high", "_e.high", _text)]
    keys = _keys("detected", "detector", "device", "moment", "value")
    compare_rows(readings.session, anomalies.name, keys, values, found)


def _double(value: float | None) -> str:
    """Return SQL of a double; from a text, since DuckDB reads a number with a point as a DECIMAL, and rounds it."""
    return "NULL" if value is None else f"CAST({quoted(repr(value))} AS DOUBLE)"


def _detected(samples: Samples, until: int) -> list[str]:
    """Return SQL of the anomalies of each detector: its name, the time, the reading, and the expected range."""
    rules = samples.detectors
    ordered = "WINDOW _w AS (PARTITION BY device ORDER BY moment, value)"

    def select(detector: Detector, detected: str, rows: str, low: str = "NULL", high: str = "NULL") -> str:
        return (
            f"SELECT {quoted(detector)} AS detector, {detected} AS detected, device, moment, value, "
            f"{low}::DOUBLE AS low, {high}::DOUBLE AS high FROM {rows}"
        )

    low, high = map(_double, (samples.minimum, samples.maximum))
    found = [select(Detector.OUT_OF_RANGE, "moment", "readings WHERE anomaly", low, high)]
    if rate := rules.rate_of_change:
        change = f"{_double(rate.maximum)} * ((moment - moment_before)::DOUBLE / {_SECOND})"
        low, high = f"(value_before - {change})", f"(value_before + {change})"
        rows = (
            "(SELECT *, lag(moment) OVER _w AS moment_before, lag(value) OVER _w AS value_before FROM readings "
            f"WHERE NOT anomaly {ordered}) WHERE moment > moment_before "
            f"AND moment - moment_before <= {micros(rate.within)} AND NOT (value >= {low} AND value <= {high})"
        )
        found.append(select(Detector.RATE_OF_CHANGE, "moment", rows, low, high))
    if stuck := rules.stuck_value:
        # An earlier reading with the same time has another value. Later ones with the same time do not count yet.
        frame = (
            f"(PARTITION BY device ORDER BY moment RANGE BETWEEN {micros(stuck.within)} PRECEDING AND CURRENT ROW "
            "EXCLUDE TIES)"
        )
        rows = (
            "(SELECT *, lag(stuck) OVER _w AS was FROM (SELECT *, "
            f"count(*) OVER {frame} >= {stuck.readings} AND min(value) OVER {frame} = max(value) OVER {frame} "
            f"AND lag(moment) OVER _w IS DISTINCT FROM moment AS stuck FROM readings {ordered}) {ordered}) "
            "WHERE stuck AND was IS DISTINCT FROM true"
        )
        found.append(select(Detector.STUCK_VALUE, "moment", rows))
    if silent := rules.silent_device:
        after = micros(silent.after)
        rows = (
            f"(SELECT *, lead(moment, 1, {until}) OVER _w AS following FROM readings {ordered}) "
            f"WHERE moment + {after} < following"
        )
        found.append(select(Detector.SILENT_DEVICE, f"moment + {after}", rows))
    return found


def _read(readings: _Readings, table: Layer, selected: str, within: str) -> None:
    """Load rows of a table into :data:`FOUND`."""
    samples = readings.samples
    names = {"moment": f"epoch_us({identifier(samples.event_time.name)})", "device": identifier(samples.device.name)}
    names["value"] = identifier(samples.value.name)
    columns = ", ".join(f"{sql} AS {name}" for name, sql in names.items())
    rows = f"FROM {table.rows} WHERE {within}" if table.rows else ""
    readings.session.fetch(f"CREATE OR REPLACE TABLE {FOUND} AS SELECT {columns}, {selected} {rows}")


def _keys(time: str, *others: str) -> list[Key]:
    moment = "coalesce(make_timestamptz(moment)::VARCHAR, 'null')"
    return [Key(time, "time", ""), *(Key(each, each, moment if each == "moment" else _text(each)) for each in others)]


def _text(value: str) -> str:
    """Return SQL of a value as text for display."""
    return f"coalesce({value}::VARCHAR, 'null')"


CHECK = Check("samples", products.SECTION, check)
