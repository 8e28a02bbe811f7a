#!/usr/bin/env bash
# Prepare what is missing: .venv, dependencies pinned by hash, Spark's jars. Fast if nothing is missing.
#   deploy/setup.sh        what the programs need
#   deploy/setup.sh demo   the same, without the native judge unless it was built before
#   deploy/setup.sh dev    also what the checks need
#   deploy/setup.sh bench  also what the benchmarks need
#   deploy/setup.sh lock   also record the hashes of the jars
#   deploy/setup.sh native also build the native judge again, after its build failed
# IVY_SETTINGS names other settings of Ivy, for a mirror of Maven Central.
# PYTHON is the interpreter for .venv. Default: the first one below that is new enough and has venv.
source "$(dirname "$0")/common.sh"
source deploy/native.sh
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
    "Install JDK 17 or 21 (Debian, Ubuntu: apt-get install openjdk-17-jdk-headless), or set JAVA_HOME to the folder of one."
  major=$(sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' <<<"$version" | head -n 1)
  ((${major:-0} >= 17 && major <= 22)) || fail "Spark runs on Java 17 to 22, got $(head -n 1 <<<"$version")." \
    "Install JDK 17 or 21, or set JAVA_HOME to the folder of one."
}

# The scripts of a .venv that was moved or copied run the Python of another folder, so .venv is created again.
make_venv() {
  if usable "$BIN/python" && grep -qF "$BIN/" "$BIN/pip" 2>/dev/null; then return; fi
  local python
  python=$(find_python)
  say "Creating .venv with $("$python" --version) …"
  [[ ! -L .venv ]] || rm .venv # a link: what it leads to is somebody else's
  "$python" -m venv --clear .venv
}

# install NAME: deploy/requirements/NAME.txt. uv is fast. pip has its own settings for mirrors, so it is tried if uv fails.
install() {
  local requirements=deploy/requirements/$1.txt stamp=.venv/$1.stamp
  ! fresh "$stamp" "$requirements" || return 0
  say "Installing $requirements …"
  if [[ $1 == bootstrap ]] || ! "$BIN/uv" pip install --quiet --compile-bytecode --python "$BIN/python" --require-hashes \
    --build-constraints deploy/requirements/bootstrap.txt --requirements "$requirements"; then
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

# Spark's jars, and an archive of its classes for faster starts. `lakeproof setup` checks each jar; this only looks at the stamp.
prepare_spark() {
  local stamp=target/jars/setup.stamp
  mkdir -p target/jars
  "$JAVA" -version >target/jars/java-version 2>&1
  ! fresh "$stamp" "$JARS_LIST" deploy/requirements/run.txt target/jars/java-version || [[ ! -d target/jars/spark ]] || return 0
  LAKE_JARS=target/jars/spark "$BIN/lakeproof" setup ${IVY_SETTINGS:+--ivy-settings "$IVY_SETTINGS"} || exit
  sha256 "$JARS_LIST" deploy/requirements/run.txt target/jars/java-version >"$stamp"
}

check_java
make_venv
install bootstrap
# Beside the downloads, which take longer.
trap stop_native EXIT
[[ $wanted != native ]] || NATIVE_AGAIN=true
[[ $wanted != demo ]] || NATIVE_KEPT=true
start_native
[[ $wanted == dev ]] || install run
[[ $wanted != dev ]] || install dev
[[ $wanted != bench ]] || install bench
install_project
[[ $wanted != lock ]] || deploy/jars.sh --lock
prepare_spark
finish_native
