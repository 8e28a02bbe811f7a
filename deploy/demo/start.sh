#!/usr/bin/env bash
# Start the demo: in containers if a Docker engine responds, else as local processes. LAKE_DEMO=local or docker chooses.
# STREAM chooses what is made: events, sensors, or clickstream, which goes through the collector. SOURCE=kafka sends records
# through a Kafka topic, instead of files. Without containers, a broker is started where LAKE_KAFKA_BOOTSTRAP_SERVERS
# points, if that is on this machine and nothing listens there.
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

start_processes() {
  demo_settings
  local which=--wait
  # Rows of an earlier start are not what this one landed.
  [[ ! -d $HOME_DIR/checkpoints ]] || which=--new
  if [[ -n $RUN ]]; then
    which=--wait
    say "The demo is already running on $HOME_DIR:"
    supervisor status | grep --invert-match "Not started" || true
  else
    "$BIN/lakeproof" doctor --for producer >/dev/null || { "$BIN/lakeproof" doctor --for producer; exit 1; }
    [[ ! -d $HOME_DIR/checkpoints ]] || same_origin
    own_broker
    mkdir -p "$HOME_DIR" "$LOGS"
    RUN=$(mktemp -d "${TMPDIR:-/tmp}/lakeproof.XXXXXX")
    ln -sfn "$RUN" "$HOME_DIR/.demo"
    # shellcheck disable=SC2034 # used by deploy/demo/streams.sh
    FROM=${SOURCE:-$(storage)}
    source deploy/demo/streams.sh
    DEMO_RUN=$RUN DEMO_LOGS=$LOGS DEMO_HOME=$HOME_DIR DEMO_PRODUCER=$PRODUCER DEMO_CONSUMER=$CONSUMER DEMO_KAFKA=$KAFKA \
      DEMO_BROKER=$BROKER LAKE_METRICS=${METRICS:-127.0.0.1:0} "$BIN/supervisord" -c deploy/demo/supervisord.conf
    [[ $SOURCE != kafka ]] || prepare_topic
    supervisor start producer >/dev/null &
    supervisor start consumer >/dev/null || not_started "$LOGS/consumer.log"
    wait $! || not_started "$LOGS/producer.log"
    say "Started ${WITH}producer and consumer under supervisord. Logs: $LOGS"
  fi
  "$BIN/reader" summary "$STREAM" "$which" --timeout 120
}

# same_origin: a stream has one source. The consumer refuses another one, too, but only in its log.
same_origin() {
  local before now=files
  [[ $SOURCE != kafka ]] || now=Kafka
  before=$("$BIN/python" deploy/demo/origin.py "$STREAM") || exit 1
  [[ -z $before || $before == "$now" ]] ||
    fail "The tables of $STREAM in $HOME_DIR were filled from $before, not from $now." \
      "Remove them with make clean, or set LAKE_HOME to another folder, for make stop as well: export LAKE_HOME=target/other"
}

# own_broker: set KAFKA, whether the demo starts a broker, and BROKER, its address.
own_broker() {
  KAFKA=false BROKER=''
  [[ $SOURCE == kafka ]] || return 0
  BROKER=$(setting LAKE_KAFKA_BOOTSTRAP_SERVERS)
  if [[ $BROKER == *,* ]] || listens "$BROKER"; then
    say "Using the Kafka brokers at $BROKER."
  elif [[ $BROKER == localhost:* || $BROKER == 127.0.0.1:* ]]; then
    KAFKA=true
    deploy/jars.sh kafka
    say "Starting a Kafka broker at $BROKER."
  else
    fail "No Kafka broker listens at $BROKER." "Start it, or unset LAKE_KAFKA_BOOTSTRAP_SERVERS to use one of the demo."
  fi
}

# prepare_topic: wait for the demo's broker, and create the topic, which the consumer needs: with a first record, or by the
# collector.
prepare_topic() {
  local waited=0
  while [[ $KAFKA == true ]] && ! listens "$BROKER"; do
    ((waited++ < 300)) || not_started "$LOGS/kafka.log"
    sleep 0.2
  done
  if [[ $STREAM == clickstream ]]; then
    supervisor start collector >/dev/null || not_started "$LOGS/collector.log"
    "$BIN/python" deploy/demo/ready.py "http://$(setting LAKE_COLLECTOR_HOST):$(setting LAKE_COLLECTOR_PORT)/readyz" ||
      not_started "$LOGS/collector.log"
    return
  fi
  "$BIN/producer" "$STREAM" --data-sink kafka --batches 1 --batch-size 1 >/dev/null 2>"$LOGS/producer.log" ||
    not_started "$LOGS/producer.log"
}

# not_started LOG...: stop what was started, and show why.
not_started() {
  supervisor status || true
  tail -n 4 "$@" >&2
  deploy/demo/stop.sh >/dev/null
  fail "The demo did not start." "See the last lines of the logs above."
}

# storage: the kind of landing zone, as a value of the programs' options.
storage() { if [[ $(setting landing) == s3://* ]]; then echo s3; else echo local; fi; }

STREAM=${STREAM:-events} SOURCE=${SOURCE:-} WITH=''
case $STREAM in
events | sensors) ;;
clickstream)
  [[ -z $SOURCE || $SOURCE == kafka ]] || fail "SOURCE=$SOURCE cannot be used with STREAM=clickstream." \
    "Unset SOURCE: the collector sends events to a Kafka topic. To land them as files: producer clickstream"
  SOURCE=kafka WITH='collector, '
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
  start_processes
fi
