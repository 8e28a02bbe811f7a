#!/usr/bin/env bash
# Compile deploy/requirements/*.txt from pyproject.toml: pinned, with hashes, without an index. Options are passed to uv: --upgrade
source "$(dirname "$0")/common.sh"

compile() {
  local output=deploy/requirements/$1.txt
  shift
  say "$output"
  UV_CUSTOM_COMPILE_COMMAND="make requirements" "$BIN/uv" pip compile --quiet --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --output-file "$output" "$@"
}

# The widest first: the others use its versions, so that a package has one version everywhere.
compile dev --extra dev --extra producer --extra collector --extra consumer --extra reader --extra plot --extra page \
  --extra lineage --extra demo --extra docs "$@" pyproject.toml deploy/requirements/bootstrap.in
same=(--constraints deploy/requirements/dev.txt)
compile bootstrap "${same[@]}" deploy/requirements/bootstrap.in
compile native "${same[@]}" deploy/requirements/native.in
compile release "${same[@]}" deploy/requirements/release.in
for program in producer collector consumer reader; do
  compile "$program" "${same[@]}" --extra "$program" pyproject.toml
done
compile run "${same[@]}" --extra producer --extra collector --extra consumer --extra reader --extra page --extra demo \
  pyproject.toml
compile all "${same[@]}" --extra all pyproject.toml
compile docs "${same[@]}" --extra docs pyproject.toml
compile bench "${same[@]}" --extra producer --extra collector --extra consumer --extra reader --extra bench \
  pyproject.toml
