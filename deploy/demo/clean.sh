#!/usr/bin/env bash
# Stop everything and remove the data. Downloads are kept.
source "$(dirname "$0")/../common.sh"

deploy/demo/stop.sh --all
if docker_responds; then COMPOSE_PROFILES=kafka,sensors,clickstream,monitoring docker compose down --volumes --remove-orphans; fi

demo_settings
if [[ ! -e $HOME_DIR ]]; then
  say "No data found in $HOME_DIR."
  exit
fi
# LAKE_HOME may contain more than a lake.
for entry in "$HOME_DIR"/* "$HOME_DIR"/.[!.]*; do
  case ${entry##*/} in
  landing | warehouse | checkpoints | silver-index | published | aside | dedupe | windows | modes | kafka | logs | catalog.db* | landing-log.db* | .demo | .duckdb* | '*' | '.[!.]*') ;;
  *) fail "Nothing was removed: $HOME_DIR contains ${entry##*/}, which is not part of a lake." "Remove by hand what you do not need." ;;
  esac
done
rm -rf "$HOME_DIR"
say "Removed $HOME_DIR."
