#!/usr/bin/env bash
# Run the property tests on new random examples: more of them, and a new seed in each round.
#   tests/fuzz.sh [ROUNDS] [PYTEST OPTIONS]    e.g. tests/fuzz.sh 5 tests/reader; ROUNDS is 20 by default
#   tests/fuzz.sh layers [PYTEST OPTIONS]      200 random streams from landed files to gold, with each strategy of silver
# Tests that need Spark run only in every fifth round. A round that fails prints its seed and the examples, and ends the run.
source "$(dirname "$0")/../deploy/common.sh"
export ALL=1

if [[ ${1:-} == layers ]]; then
  shift
  "$BIN/pytest" -m "spark" --numprocesses logical --dist worksteal tests/consumer/test_layers.py "$@" ||
    fail "A random stream failed." "Repeat it: .venv/bin/pytest -m spark 'tests/consumer/test_layers.py::…[SEED-STRATEGY]'"
  exit
fi
rounds=20
if [[ ${1:-} =~ ^[0-9]+$ ]]; then
  rounds=$1
  shift
fi
for ((round = 1; round <= rounds; round++)); do
  seed=$((RANDOM * 32768 + RANDOM))
  which="hypothesis and not spark"
  ((round % 5)) || which=hypothesis
  say "Round $round of $rounds, --hypothesis-seed=$seed"
  "$BIN/pytest" -m "$which" --hypothesis-profile=fuzz --hypothesis-seed="$seed" "$@" ||
    fail "Round $round failed." "Repeat it: .venv/bin/pytest -m '$which' --hypothesis-profile=fuzz --hypothesis-seed=$seed"
done
