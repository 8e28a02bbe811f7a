#!/usr/bin/env bash
# Open DuckDB's shell on the tables: in a container if the demo runs in Docker.
source "$(dirname "$0")/../common.sh"

if docker_responds && [[ -n $(docker compose ps --all --quiet minio) ]]; then exec docker compose run --rm duckdb; fi
deploy/setup.sh demo
exec "$BIN/reader" shell
