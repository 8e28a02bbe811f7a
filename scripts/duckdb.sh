#!/usr/bin/env bash
# Open DuckDB's shell on the tables, where the demo runs.
source "$(dirname "$0")/common.sh"

if docker_answers && [[ -n $(docker compose ps --all --quiet minio) ]]; then exec docker compose run --rm duckdb; fi
scripts/setup.sh
exec "$BIN/reader" shell
