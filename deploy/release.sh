#!/usr/bin/env bash
# Build a release in dist/, and test it: wheels, pins, a bill of materials (SBOM), licenses, an audit of the pins, hashes.
#   deploy/release.sh          all of it
#   deploy/release.sh build    the wheels alone
#   deploy/release.sh check    all but the wheels, for those that dist/ has
# PYTHONS are the interpreters whose empty environments get the wheels. Default: each of 3.11 to 3.14 that is found.
# Nothing is published or signed: .github/workflows/release.yml does that.
source "$(dirname "$0")/common.sh"
source deploy/native.sh
DIST=$ROOT/dist WORK=$ROOT/target/release

version() { "$BIN/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["project"]["version"])'; }

# build: both wheels, from the same commit the same bytes (of the native one: by the same compiler).
build() {
  deploy/setup.sh
  rm -rf "$DIST"
  mkdir -p "$DIST" "$WORK"
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  export SOURCE_DATE_EPOCH
  "$BIN/python" -m hatchling build --target wheel --directory "$DIST" >/dev/null
  cp deploy/requirements/{all,producer,collector,consumer,reader}.txt "$DIST"
  if command -v cargo >/dev/null; then
    install_maturin
    "$CRATE/lock.sh"
    # In a container of manylinux, the workflow builds one for older C libraries.
    "$NATIVE/maturin/bin/maturin" build --quiet --release --locked --manifest-path "$CRATE/Cargo.toml" \
      --interpreter "$BIN/python" --target-dir "$NATIVE" --out "$DIST"
  else
    say "cargo is missing, so dist/ has no native judge."
  fi
}

# pythons: one interpreter per version.
pythons() {
  local each found
  for each in 3.11 3.12 3.13 3.14; do
    for found in "python$each" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$each".*/bin/python; do
      if found=$("$found" -c 'import venv, sys; print(sys.executable)' 2>/dev/null); then
        say "$found"
        break
      fi
    done
  done
}

# consume: twice, if a busy machine is too slow for Spark's ten seconds.
consume() { consumer run events --available-now || consumer run events --available-now; }

# try_wheels PYTHON: from an empty environment and an empty folder to a verified lake, first without the native judge.
try_wheels() {
  local python=$1 name env folder each
  name=$("$python" -c 'import platform; print(platform.python_version())')
  env=$WORK/python-$name folder=$WORK/lake-$name
  rm -rf "$env" "$folder" "$WORK/wheel-$name"
  "$BIN/uv" venv --quiet --python "$python" "$env"
  # Bytecode, as pip makes it: Spark waits ten seconds for a Python worker, which then compiles what it imports.
  # Refreshed: uv's cache may have another wheel of this version, from a build before.
  "$BIN/uv" pip install --quiet --compile-bytecode --refresh-package lakeproof --python "$env" --find-links "$DIST" \
    --constraints deploy/requirements/all.txt --build-constraints deploy/requirements/bootstrap.txt "lakeproof[all]==$VERSION"
  "$BIN/python" -m zipfile -e "$DIST/lakeproof-$VERSION-py3-none-any.whl" "$WORK/wheel-$name"
  for each in lakeproof producer collector consumer reader; do
    diff --recursive --brief --exclude __pycache__ "$WORK/wheel-$name/$each" "$("$env/bin/python" -c "import $each; print(*$each.__path__)")" ||
      fail "The environment of Python $name has another wheel than dist/." "Clear uv's cache: uv cache clean lakeproof"
  done
  mkdir "$folder"
  # Not `( … ) || …`: then bash would ignore errors within.
  (
    cd "$folder"
    PATH=$env/bin:$PATH LAKE_SPARK_UI_PORT=0 LAKE_JARS=${LAKE_JARS:-$ROOT/target/jars/spark}
    export PATH LAKE_SPARK_UI_PORT LAKE_JARS
    lakeproof --version | grep -F "lakeproof $VERSION (judge: python)"
    for program in producer collector consumer reader; do "$program" --help >/dev/null; done
    lakeproof init >/dev/null
    producer events --batches 3 --invalid-schema-chance 0.3 --seed 1 >/dev/null
    consume
    reader page >/dev/null
    if compgen -G "$DIST/lakeproof_native_judge-*.whl" >/dev/null; then
      "$BIN/uv" pip install --quiet --refresh-package lakeproof-native-judge --python "$env" --no-index --no-deps --find-links "$DIST" "lakeproof-native-judge==$VERSION"
      lakeproof --version | grep -F "(judge: native $VERSION)"
      producer events --batches 3 --invalid-schema-chance 0.3 --seed 2 >/dev/null
      consume
    fi
    reader verify events | tee /dev/stderr | grep -F "Clean:" >/dev/null
  ) >"$WORK/python-$name.log" 2>&1 &
  wait $! || {
    tail -n 20 "$WORK/python-$name.log" >&2
    fail "The wheels do not work with Python $name." "Log: $WORK/python-$name.log"
  }
  ENV=$env
  say "Python $name: installed, judged by each judge that dist/ has, verified."
}

# inventory: SBOM and licenses of Python packages, crates and jars, from the last of the environments.
inventory() {
  local tools=$WORK/tools
  if ! fresh "$tools.stamp" deploy/requirements/release.txt; then
    "$BIN/uv" venv --quiet --clear --python "$BIN/python" "$tools"
    "$BIN/uv" pip install --quiet --python "$tools" --require-hashes --requirement deploy/requirements/release.txt
    sha256 deploy/requirements/release.txt >"$tools.stamp"
  fi
  "$tools/bin/cyclonedx-py" environment --pyproject pyproject.toml --output-reproducible --sv 1.6 \
    --output-file "$WORK/python.cdx.json" "$ENV/bin/python"
  cargo metadata --format-version 1 --locked --manifest-path "$CRATE/Cargo.toml" >"$WORK/crates.json"
  "$tools/bin/python" deploy/sbom.py "$WORK/python.cdx.json" "$WORK/crates.json" "$JARS_LIST" src/lakeproof/install/kafka.sha256 "$DIST"
}

# audit: known vulnerabilities of the pins. Strict: a package that the database does not know was not audited. If no database can be
# reached, the release says so.
audit() {
  if "$WORK/tools/bin/pip-audit" --strict --disable-pip --require-hashes --progress-spinner off --requirement deploy/requirements/all.txt \
    --format markdown --output "$DIST/AUDIT.md" 2>"$WORK/audit.log"; then
    say "No known vulnerability in the pins."
  elif grep -q "known vulnerabil" "$WORK/audit.log"; then
    cat "$DIST/AUDIT.md" >&2
    fail "The pins have known vulnerabilities." "Upgrade them: deploy/requirements.sh --upgrade-package NAME"
  else
    say "Not audited: no database of vulnerabilities can be reached. Log: $WORK/audit.log"
  fi
}

VERSION=$(version)
[[ ${1:-} == check ]] || build
[[ ${1:-} != build ]] || exit 0
while read -r python; do try_wheels "$python" </dev/null; done < <(if [[ -n ${PYTHONS:-} ]]; then tr ' ' '\n' <<<"$PYTHONS"; else pythons; fi)
inventory
audit
(cd "$DIST" && rm -f SHA256SUMS && sha256 ./* >"$WORK/SHA256SUMS" && mv "$WORK/SHA256SUMS" .)
say "dist/ has lakeproof $VERSION:" && ls "$DIST"
