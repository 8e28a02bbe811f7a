#!/usr/bin/env bash
# Start the demo: in containers if a Docker engine responds, else as local processes. LAKE_DEMO=local or docker chooses.
source "$(dirname "$0")/common.sh"

start_containers() {
  docker compose up --detach --build --wait
  docker compose run --rm duckdb reader summary events --new --timeout 180
  say "" "MinIO's console: make minio · Containers: docker compose ps"
}

start_processes() {
  demo_settings
  local which=--new # rows of an earlier start are not what this one landed
  if [[ -n $RUN ]]; then
    which=--wait
    say "The demo is already running on $HOME_DIR:"
    supervisor status || true
  else
    "$BIN/lakeproof" doctor --for producer >/dev/null || { "$BIN/lakeproof" doctor --for producer; exit 1; }
    mkdir -p "$HOME_DIR" "$LOGS"
    RUN=$(mktemp -d "${TMPDIR:-/tmp}/lakeproof.XXXXXX")
    ln -sfn "$RUN" "$HOME_DIR/.demo"
    DEMO_RUN=$RUN DEMO_LOGS=$LOGS DEMO_STORAGE=$(storage) "$BIN/supervisord" -c demo/supervisord.conf
    say "Started producer and consumer under supervisord. Logs: $LOGS"
  fi
  "$BIN/reader" summary events "$which" --timeout 120
}

# storage: the kind of landing zone, as a value of the programs' options.
storage() { if [[ $(setting landing) == s3://* ]]; then echo s3; else echo local; fi; }

case ${LAKE_DEMO:-} in
local) say "LAKE_DEMO is local: starting local processes." ;;
docker) say "LAKE_DEMO is docker: starting the containers of docker-compose.yml." ;;
'')
  if docker_responds; then
    LAKE_DEMO=docker
    say "Docker responds: starting the containers of docker-compose.yml. Set LAKE_DEMO=local for local processes."
  else
    LAKE_DEMO=local
    say "No Docker engine with compose found: starting local processes."
  fi
  ;;
*) fail "LAKE_DEMO: expected local or docker, got '$LAKE_DEMO'." "If you unset it, Docker is used if it responds." ;;
esac

if [[ $LAKE_DEMO == docker ]]; then
  start_containers
else
  scripts/setup.sh
  start_processes
fi
