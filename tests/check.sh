#!/usr/bin/env bash
# Every check: style, types, architecture, scripts, tests.
#   tests/check.sh lint    all but the tests
#   ALL=1 tests/check.sh   also the tests that are marked `all`, and more examples: see tests/selection.py
source "$(dirname "$0")/../deploy/common.sh"
# Images set it for programs that run once. Tests start hundreds, and each would compile all modules again.
unset PYTHONDONTWRITEBYTECODE

"$BIN/ruff" check .
"$BIN/ruff" format --check .
"$BIN/mypy"
"$BIN/lint-imports"
"$BIN/shellcheck" {benchmarks,deploy,deploy/{demo,kubernetes},docs,tests,tests/chaos}/*.sh src/native-judge/lock.sh .ci/run
# The target folder is that of setup.sh, and so is the profile: less is compiled.
native=(--manifest-path src/native-judge/Cargo.toml)
! command -v cargo >/dev/null || src/native-judge/lock.sh
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check "${native[@]}"; fi
if cargo clippy --version >/dev/null 2>&1; then
  cargo clippy --quiet --release --locked "${native[@]}" --target-dir target/native -- --deny warnings
fi
"$BIN/codespell" ./*.md contracts deploy docs gold src
# The word list of CONTRIBUTING.md.
[[ ${1:-} != lint ]] || "$BIN/pytest" -q tests/test_house.py -k "plain_english or phrases"
if [[ ${1:-} != lint ]] && command -v cargo >/dev/null; then
  cargo test --quiet --locked "${native[@]}" --target-dir target/native
fi
# A process for each core, up to the maximum in pyproject.toml: on two cores, three took as long as two. Each needs about
# a gigabyte. PYTEST_XDIST_AUTO_NUM_WORKERS sets another number.
# Failures are shown at once, since a run that is cut off prints no summary.
[[ ${1:-} == lint ]] || "$BIN/pytest" --numprocesses logical --dist worksteal --instafail
