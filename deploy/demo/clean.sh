#!/usr/bin/env bash
# Stop everything and remove the data. Downloads are kept.
source "$(dirname "$0")/../common.sh"

if docker_responds; then COMPOSE_PROFILES=kafka,sensors,clickstream,monitoring docker compose down --volumes --remove-orphans; fi
[[ -x $BIN/lakeproof ]] || fail "No .venv found." "Run make setup first, or remove target/lake by hand."
exec "$BIN/lakeproof" demo clean
