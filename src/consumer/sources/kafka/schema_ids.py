"""The ids that a schema registry has assigned to a stream's contracts; the stream's ledger keeps them.

So an unavailable registry does not affect a contract that was registered before. A new contract has no id until the
registry is available again: a wrong id would be worse than none.
"""

import json
from time import monotonic

import structlog

from lakeproof.catalog import catalog_errors, open_catalog
from lakeproof.contracts import Contract
from lakeproof.errors import LakeproofError
from lakeproof.kafka.registry import IncompatibleError, Registry
from lakeproof.settings import Settings
from lakeproof.tables.names import SCHEMA_IDS, stream_tables

log = structlog.get_logger()

_PAUSE_SECONDS = 30.0


class SchemaIds:
    """Ids of the contracts of a stream. Without the address of a registry, no contract has an id."""

    def __init__(self, settings: Settings, stream: str) -> None:
        self._settings = settings
        self._stream = stream
        self._registry = Registry(settings.registry, settings.topic_of(stream)) if settings.registry.url else None
        self._ids: dict[str, int] = {}
        self._refused: set[str] = set()
        self._next_try = 0.0

    def check(self, contract: Contract) -> None:
        """Check that the registry accepts a contract, before the contract is used."""
        if self._registry:
            try:
                self._registry.check(contract)
            except IncompatibleError:
                raise
            except LakeproofError as error:
                self._warn(error)

    def prepare(self, contract: Contract) -> None:
        """Read the ids in the ledger, and register a contract."""
        if self._registry:
            ledger = open_catalog(self._settings).load_table(stream_tables(self._stream).ledger)
            self._ids = json.loads(ledger.properties.get(SCHEMA_IDS, "{}"))
            self._register(self._registry, contract)

    def of(self, contract: Contract) -> int | None:
        """Return the id of a contract; register it if necessary, such as one that was applied to a running stream."""
        if self._registry is None:
            return None
        wanted = contract.digest not in self._ids and contract.digest not in self._refused
        if wanted and monotonic() >= self._next_try:
            try:
                self._register(self._registry, contract)
            except IncompatibleError as error:
                self._refused.add(contract.digest)
                log.warning("schema not registered", stream=self._stream, message=error.message, hint=error.hint)
        return self._ids.get(contract.digest)

    def _register(self, registry: Registry, contract: Contract) -> None:
        try:
            found = registry.register(contract)
        except IncompatibleError:
            raise
        except LakeproofError as error:
            self._next_try = monotonic() + _PAUSE_SECONDS
            self._warn(error)
            return
        if self._ids.get(contract.digest) != found:
            ids = self._ids | {contract.digest: found}
            with catalog_errors():
                ledger = open_catalog(self._settings).load_table(stream_tables(self._stream).ledger)
                with ledger.transaction() as transaction:
                    transaction.set_properties({SCHEMA_IDS: json.dumps(ids, sort_keys=True)})
            self._ids = ids
            log.info("schema registered", stream=self._stream, subject=registry.subject, id=found)

    def _warn(self, error: LakeproofError) -> None:
        log.warning("no schema registry", stream=self._stream, message=error.message, hint=error.hint)
