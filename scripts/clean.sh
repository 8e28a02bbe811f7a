#!/usr/bin/env bash
# Stop everything and remove the data; what was downloaded stays.
source "$(dirname "$0")/common.sh"

scripts/stop.sh --all
if docker_answers; then docker compose down --volumes --remove-orphans; fi

demo_settings
if [[ ! -e $HOME_DIR ]]; then
  say "There is no data in $HOME_DIR."
  exit
fi
# Somebody's LAKE_HOME may be a folder with more in it than a lake.
for entry in "$HOME_DIR"/* "$HOME_DIR"/.[!.]*; do
  case ${entry##*/} in
  landing | warehouse | checkpoints | logs | catalog.db* | landing-log.db* | .demo | .duckdb* | '*' | '.[!.]*') ;;
  *) fail "$HOME_DIR holds ${entry##*/}, which is no part of a lake; nothing was removed." "Remove by hand what you do not need." ;;
  esac
done
rm -rf "$HOME_DIR"
say "Removed $HOME_DIR."
