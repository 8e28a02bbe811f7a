#!/usr/bin/env bash
# Start the demo: containers where a Docker engine answers, else local processes. LAKE_DEMO=local or docker chooses.
source "$(dirname "$0")/common.sh"

start_containers() {
  docker compose up --detach --build --wait
  docker compose run --rm duckdb reader summary events --wait --timeout 180
  say "" "MinIO's console: make minio · all of it: docker compose ps"
}

start_processes() {
  demo_settings
  if [[ -n $RUN ]]; then
    say "The demo runs already, on $HOME_DIR:"
    supervisor status || true
  else
    "$BIN/lakeproof" doctor --for producer >/dev/null || { "$BIN/lakeproof" doctor --for producer; exit 1; }
    mkdir -p "$HOME_DIR" "$LOGS"
    RUN=$(mktemp -d "${TMPDIR:-/tmp}/lakeproof.XXXXXX")
    ln -sfn "$RUN" "$HOME_DIR/.demo"
    DEMO_RUN=$RUN DEMO_LOGS=$LOGS DEMO_STORAGE=$(storage) "$BIN/supervisord" -c demo/supervisord.conf
    say "Started producer and consumer under supervisord; logs in $LOGS."
  fi
  "$BIN/reader" summary events --wait --timeout 120
}

# storage: the kind of landing zone, as the programs' options name it.
storage() { if [[ $(setting landing) == s3://* ]]; then echo s3; else echo local; fi; }

case ${LAKE_DEMO:-} in
local) say "LAKE_DEMO is local: local processes." ;;
docker) say "LAKE_DEMO is docker: containers of docker-compose.yml." ;;
'')
  if docker_answers; then
    LAKE_DEMO=docker
    say "A Docker engine answers: containers of docker-compose.yml (LAKE_DEMO=local for local processes)."
  else
    LAKE_DEMO=local
    say "No Docker engine with compose answers: local processes on the embedded default."
  fi
  ;;
*) fail "LAKE_DEMO is '$LAKE_DEMO'." "It can be local or docker; without it, a Docker engine is used where one answers." ;;
esac

if [[ $LAKE_DEMO == docker ]]; then
  start_containers
else
  scripts/setup.sh
  start_processes
fi
