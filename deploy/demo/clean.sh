#!/usr/bin/env bash
# Stop everything and remove the data. Downloads are kept.
source "$(dirname "$0")/../common.sh"

cleaned=
if docker_responds; then
  COMPOSE_PROFILES=$PROFILES docker compose down --volumes --remove-orphans
  cleaned=yes
fi
if [[ -x $BIN/lakeproof ]]; then exec "$BIN/lakeproof" demo clean; fi
[[ -n $cleaned ]] || fail "No .venv found." "Run make setup first, or remove target/lake by hand."
