"""Say where the tables of a stream were filled from: files, Kafka, or nothing without tables: ``origin.py STREAM``."""

import sys

from lakeproof.catalog import open_catalog
from lakeproof.errors import LakeproofError
from lakeproof.kafka.recorded import recorded_topic
from lakeproof.settings import load_settings
from lakeproof.tables.names import LANDING_ROOT, stream_tables

try:
    catalog = open_catalog(load_settings())
    ledger = stream_tables(sys.argv[1]).ledger
    properties = catalog.load_table(ledger).properties if catalog.table_exists(ledger) else {}
except LakeproofError as error:
    sys.exit(f"Error: {error.message}\n  {error.hint}")
if recorded_topic(properties):
    sys.stdout.write("Kafka\n")
elif LANDING_ROOT in properties:
    sys.stdout.write("files\n")
