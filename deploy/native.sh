# shellcheck shell=bash
# Sourced by setup.sh. The native judge is built if cargo is installed; otherwise, or if that fails, the Python
# judge is used, so nothing here may end the setup.
CRATE=src/native-judge
NATIVE=target/native
NATIVE_LOG=$NATIVE/build.log
NATIVE_STAMP=.venv/native.stamp
NATIVE_JOB=''

# start_native: begin to build the wheel, unless .venv has it. What was tried before is tried again if a source or the compiler has
# changed, or with NATIVE_AGAIN=true. Without cargo, what is installed stays while the sources are the same. With
# NATIVE_KEPT=true, only a wheel that was built before is installed: the first start of the demo need not wait for a compiler.
start_native() {
  local file
  native_inputs=()
  while IFS= read -r file; do native_inputs+=("$file"); done < <(
    find "$CRATE/crates.lock" "$CRATE/Cargo.toml" "$CRATE/pyproject.toml" "$CRATE/src" -type f | LC_ALL=C sort
  )
  if ! command -v cargo >/dev/null; then
    [[ ! -f $NATIVE_STAMP || $(<"$NATIVE_STAMP") != "$(sha256 "${native_inputs[@]}")"* ]] || return 0
    say "cargo is missing, so the Python judge will be used, which is slower. For the native one: install Rust, then run make setup."
    keep_no_native
    return 0
  fi
  mkdir -p "$NATIVE"
  rustc -vV >"$NATIVE/rustc-version" 2>&1 || true
  native_inputs+=("$NATIVE/rustc-version")
  [[ ${NATIVE_AGAIN:-} == true ]] || ! fresh "$NATIVE_STAMP" "${native_inputs[@]}" || return 0
  if [[ ${NATIVE_KEPT:-} == true && ! -d $(kept_native) ]]; then
    say "The native judge is not built, so the Python judge will be used, which is slower. To build it: make setup"
    remove_native
    return 0
  fi
  set -m # a group of its own, which stop_native can end
  make_native </dev/null >"$NATIVE_LOG" 2>&1 &
  NATIVE_JOB=$!
  set +m
}

# kept_native: the folder of the user's cache for what is built from the same sources by the same compiler.
kept_native() {
  say "${XDG_CACHE_HOME:-$HOME/.cache}/lakeproof/native-judge-$(sha256 "${native_inputs[@]}" | sha256 | cut -c 1-16)"
}

# make_native: put the wheel into target/native/wheel, from the user's cache if another clone has built the same.
make_native() {
  local kept
  kept=$(kept_native)
  rm -rf "$NATIVE/wheel"
  if [[ ${NATIVE_AGAIN:-} != true ]] && cp -R "$kept" "$NATIVE/wheel" 2>/dev/null; then return; fi
  install_maturin || return
  "$CRATE/lock.sh" || return
  # With a target folder of its own: a CARGO_TARGET_DIR of the user's is for other projects.
  "$NATIVE/maturin/bin/maturin" build --release --locked --manifest-path "$CRATE/Cargo.toml" \
    --interpreter "$BIN/python" --target-dir "$NATIVE" --out "$NATIVE/wheel" || return
  # If the cache cannot be written, the next clone builds again.
  { mkdir -p "${kept%/*}" && rm -rf "$kept" && cp -R "$NATIVE/wheel" "$kept.$$" && mv "$kept.$$" "$kept"; } 2>/dev/null || true
}

# install_maturin: beside .venv, which other installations hold locked meanwhile.
install_maturin() {
  local requirements=deploy/requirements/native.txt folder=$NATIVE/maturin
  ! fresh "$folder/stamp" "$requirements" || return 0
  rm -rf "$folder"
  "$BIN/uv" pip install --quiet --python "$BIN/python" --target "$folder" --require-hashes --requirements "$requirements" ||
    "$BIN/python" -m pip install --quiet --disable-pip-version-check --target "$folder" --require-hashes \
      --requirement "$requirements" || return
  sha256 "$requirements" >"$folder/stamp"
}

# finish_native: wait for the wheel, and install it.
finish_native() {
  [[ -n $NATIVE_JOB ]] || return 0
  if kill -0 "$NATIVE_JOB" 2>/dev/null; then say "Building the native judge …"; fi
  if wait "$NATIVE_JOB" && install_native >>"$NATIVE_LOG" 2>&1; then
    sha256 "${native_inputs[@]}" >"$NATIVE_STAMP"
  else
    say "Cannot build the native judge, so the Python judge will be used. Log: $NATIVE_LOG. To try again: make setup-native"
    keep_no_native
  fi
  NATIVE_JOB=''
}

install_native() {
  "$BIN/uv" pip install --quiet --python "$BIN/python" --no-deps --no-index --reinstall "$NATIVE"/wheel/*.whl &&
    "$BIN/python" -c 'from native_judge import __version__; print("Installed", __version__)'
}

# remove_native: one of other sources could judge differently.
remove_native() { "$BIN/uv" pip uninstall --quiet --python "$BIN/python" lakeproof-native-judge 2>/dev/null || true; }

# keep_no_native: remove one of other sources, and remember that.
keep_no_native() {
  remove_native
  sha256 "${native_inputs[@]}" >"$NATIVE_STAMP"
}

# stop_native: end the build, if the setup ends before it.
stop_native() { [[ -z $NATIVE_JOB ]] || kill -- "-$NATIVE_JOB" 2>/dev/null || true; }
