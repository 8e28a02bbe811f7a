#!/usr/bin/env bash
# Start the demo: in containers if a Docker engine responds, else as local processes. LAKE_DEMO=local or docker chooses.
# scripts/start.sh [events|sensors]
source "$(dirname "$0")/common.sh"

STREAM=${1:-events}
case $STREAM in
events)
  SERVICES=()
  PRODUCER="events --batch-size 100 --corruption-chance .05 --invalid-schema-chance .05 --extra-field-chance .05 --duplicate-chance .05"
  ;;
sensors)
  SERVICES=(producer-sensors consumer-sensors)
  PRODUCER="sensors --batch-size 100 --devices 20 --anomaly-chance .02 --duplicate-chance .02"
  ;;
*) fail "STREAM: expected events or sensors, got '$STREAM'." "Use make start, or make start STREAM=sensors." ;;
esac

start_containers() {
  docker compose --profile "$STREAM" up --detach --build --wait "${SERVICES[@]}"
  docker compose run --rm duckdb reader summary "$STREAM" --wait --timeout 180
  say "" "MinIO's console: make minio · Containers: docker compose ps"
}

start_processes() {
  demo_settings
  if [[ -n $RUN ]]; then
    say "The demo is already running on $HOME_DIR:"
    supervisor status || true
  else
    "$BIN/lakeproof" doctor --for producer >/dev/null || { "$BIN/lakeproof" doctor --for producer; exit 1; }
    mkdir -p "$HOME_DIR" "$LOGS"
    RUN=$(mktemp -d "${TMPDIR:-/tmp}/lakeproof.XXXXXX")
    ln -sfn "$RUN" "$HOME_DIR/.demo"
    DEMO_RUN=$RUN DEMO_LOGS=$LOGS DEMO_STORAGE=$(storage) DEMO_STREAM=$STREAM DEMO_PRODUCER=$PRODUCER \
      "$BIN/supervisord" -c demo/supervisord.conf
    say "Started producer and consumer under supervisord. Logs: $LOGS"
  fi
  "$BIN/reader" summary "$STREAM" --wait --timeout 120
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
