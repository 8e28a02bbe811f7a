#!/usr/bin/env bash
# Prepare what is missing: .venv, dependencies pinned by hash, Spark's jars. Fast if nothing is missing.
#   scripts/setup.sh        what the programs need
#   scripts/setup.sh dev    also what the checks need
#   scripts/setup.sh bench  also what the benchmarks need
#   scripts/setup.sh lock   also record the hashes of the jars
# PYTHON is the interpreter for .venv. Default: the first one below that is new enough and has venv.
source "$(dirname "$0")/common.sh"
wanted=${1:-run}

usable() { "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3}; do
    if usable "$candidate"; then
      say "$candidate"
      return
    fi
  done
  fail "No Python 3.11 or newer with venv found${PYTHON:+: PYTHON is $PYTHON}." \
    "Install it (Debian, Ubuntu: apt-get install python3.11 python3.11-venv), or set its path: make setup PYTHON=/path/to/python3"
}

check_java() {
  local version major
  version=$("$JAVA" -version 2>&1) || fail "Java is missing: cannot run '$JAVA -version'." \
    "Install a JDK 17 (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME."
  major=$(sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' <<<"$version" | head -n 1)
  ((${major:-0} >= 17)) || fail "Java is too old: expected 17 or newer, got $(head -n 1 <<<"$version")." \
    "Install a JDK 17, or set JAVA_HOME to one."
}

# The scripts of a .venv that was moved or copied run the Python of another folder, so .venv is created again.
make_venv() {
  if usable "$BIN/python" && grep -qF "$BIN/" "$BIN/pip" 2>/dev/null; then return; fi
  local python
  python=$(find_python)
  say "Creating .venv with $("$python" --version) …"
  "$python" -m venv --clear .venv
}

# install NAME: requirements/NAME.txt. uv is fast. pip has its own settings for mirrors, so it is tried if uv fails.
install() {
  local requirements=requirements/$1.txt stamp=.venv/$1.stamp
  ! fresh "$stamp" "$requirements" || return 0
  say "Installing $requirements …"
  if [[ $1 == bootstrap ]] || ! "$BIN/uv" pip install --quiet --compile-bytecode --python "$BIN/python" --require-hashes \
    --build-constraints requirements/bootstrap.txt --requirements "$requirements"; then
    "$BIN/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$requirements" ||
      fail "Cannot install the dependencies." "Check the network and the settings of pip, then try again."
  fi
  sha256 "$requirements" >"$stamp"
}

install_project() {
  ! fresh .venv/project.stamp pyproject.toml || return 0
  "$BIN/uv" pip install --quiet --python "$BIN/python" --no-deps --no-build-isolation --editable .
  "$BIN/python" -m compileall -q src
  sha256 pyproject.toml >.venv/project.stamp
}

# With an archive of its classes, the consumer's JVM starts in half the time. It is made in an empty folder and with only
# these settings, so that no lake is changed. Without it, runs only start more slowly.
archive_classes() {
  local stamp=target/jars/spark.jsa.stamp folder
  "$JAVA" -version >target/jars/java-version 2>&1
  ! fresh "$stamp" jars.sha256 requirements/run.txt target/jars/java-version || return 0
  say "Archiving the JVM's classes (once, for faster starts) …"
  folder=$(mktemp -d)
  (cd "$folder" && env -i HOME="$HOME" PATH="$PATH" ${JAVA_HOME:+JAVA_HOME="$JAVA_HOME"} \
    LAKE_CONTRACTS="$ROOT/contracts" LAKE_GOLD="$ROOT/gold" LAKE_JARS="$ROOT/target/jars/spark" "$BIN/consumer" archive) \
    >target/jars/archive.log 2>&1 ||
    say "  Failed, so starts are slower. Log: target/jars/archive.log. To try again: .venv/bin/consumer archive"
  sha256 jars.sha256 requirements/run.txt target/jars/java-version >"$stamp"
  rm -rf "$folder"
}

check_java
make_venv
install bootstrap
[[ $wanted == dev ]] || install run
[[ $wanted != dev ]] || install dev
[[ $wanted != bench ]] || install bench
install_project
if [[ $wanted == lock ]]; then scripts/jars.sh --lock; else scripts/jars.sh; fi
archive_classes
