#!/usr/bin/env bash
# Start the demo: in containers if a Docker engine responds, else as local processes. LAKE_DEMO=local or docker chooses.
# STREAM chooses what is made: events, sensors, or clickstream, which goes through the collector. SOURCE=kafka sends records
# through a Kafka topic, instead of files. Without containers, `lakeproof demo` does all of it.
source "$(dirname "$0")/../common.sh"

start_containers() {
  local profiles=() services=()
  [[ $SOURCE != kafka ]] || { profiles+=(kafka) && export DEMO_SOURCE=kafka DEMO_STREAM=$STREAM; }
  [[ $STREAM == events ]] || { profiles+=("$STREAM") && services+=("producer-$STREAM" "consumer-$STREAM"); }
  [[ $SOURCE != kafka || -z ${services[*]} ]] || services+=(kafka-ui)
  COMPOSE_PROFILES=$(IFS=,; echo "${profiles[*]}")
  export COMPOSE_PROFILES
  docker compose up --detach --build --wait "${services[@]}"
  docker compose run --rm duckdb reader summary "$STREAM" --wait --timeout 180
  say "" "MinIO's console: make minio · Containers: docker compose ps"
  [[ $SOURCE != kafka ]] || say "Kafka's topics: http://127.0.0.1:8081"
}

STREAM=${STREAM:-events} SOURCE=${SOURCE:-}
case $STREAM in
events | sensors) ;;
clickstream)
  [[ -z $SOURCE || $SOURCE == kafka ]] || fail "SOURCE=$SOURCE cannot be used with STREAM=clickstream." \
    "Unset SOURCE: the collector sends events to a Kafka topic. To land them as files: producer clickstream"
  SOURCE=kafka
  ;;
*) fail "STREAM: expected events, sensors or clickstream, got '$STREAM'." "If you unset it, the demo makes events." ;;
esac
[[ -z $SOURCE || $SOURCE == kafka ]] || fail "SOURCE: expected kafka, got '$SOURCE'." "If you unset it, records go through files."
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
  deploy/setup.sh demo
  exec "$BIN/lakeproof" demo --stream "$STREAM" ${SOURCE:+--source "$SOURCE"}
fi
