#!/usr/bin/env bash
# Disturb a consumer in every way that we know, and check that nothing is lost or duplicated.
#   tests/chaos/run.sh [OPTIONS]    see --help
#   tests/chaos/run.sh --setup      only prepare the proxy, in its own environment: target/mitmproxy
#   tests/chaos/run.sh --lock       pin the proxy's dependencies in tests/chaos/proxy.txt
source "$(dirname "$0")/../../deploy/common.sh"

proxy=target/mitmproxy
pins=tests/chaos/proxy.txt

if [[ ${1:-} == --lock ]]; then
  UV_CUSTOM_COMPILE_COMMAND="tests/chaos/run.sh --lock" "$BIN/uv" pip compile --quiet --universal --python-version 3.11 \
    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --output-file "$pins" tests/chaos/proxy.in
  exit
fi

if [[ ! -x $proxy/bin/mitmdump ]] || ! fresh "$proxy.stamp" "$pins"; then
  say "Installing $pins …"
  "$BIN/uv" venv --quiet --clear --python "$BIN/python" "$proxy"
  "$BIN/uv" pip install --quiet --compile-bytecode --python "$proxy/bin/python" --require-hashes --requirements "$pins" ||
    "$BIN/python" -m pip --python "$proxy/bin/python" install --quiet --disable-pip-version-check --require-hashes \
      --requirement "$pins" ||
    fail "Cannot install the proxy." "Check the network, then try again."
  sha256 "$pins" >"$proxy.stamp"
fi
[[ ${1:-} != --setup ]] || exit 0
"$BIN/python" -u -m tests.chaos "$@"
# The whole grid ends with the proof that it can fail.
[[ $# -gt 0 ]] || "$BIN/pytest" -m "long" tests/chaos
