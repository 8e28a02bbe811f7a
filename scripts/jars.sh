#!/usr/bin/env bash
# Retrieve the jars of a configuration of ivy.xml into target/jars/CONFIGURATION, and check their hashes.
#   scripts/jars.sh [spark]   Spark's jars (jars.sha256). Does nothing if they are up to date
#   scripts/jars.sh rest      the jars of the tests' REST catalog (jars-rest.sha256)
#   scripts/jars.sh kafka     the jars of the tests' Kafka broker (jars-kafka.sha256)
#   scripts/jars.sh registry  the archive of the tests' schema registry (jars-registry.sha256)
#   scripts/jars.sh --lock    retrieve all of them, and write their lists of hashes, after a change of ivy.xml
# Ivy comes with the PySpark of .venv. IVY_SETTINGS names other settings, for a mirror.
source "$(dirname "$0")/common.sh"

# retrieve NAME LIST [--lock]
retrieve() {
  local name=$1 list=$2 lock=${3:-} jars=target/jars/$1 new=target/jars/new-$1.$$ wanted found pyspark
  [[ $lock == --lock ]] || ! fresh "$jars.stamp" ivy.xml "$list" || [[ ! -d $jars ]] || return 0

  pyspark=$("$BIN/python" -c 'import importlib.util as u; print(u.find_spec("pyspark").submodule_search_locations[0])')
  mkdir -p target/jars
  # shellcheck disable=SC2064 # expanded now, on purpose
  trap "rm -rf '$new'" EXIT
  say "Retrieving the jars of $name (once) …"
  if ! "$JAVA" -cp "$pyspark/jars/*" org.apache.ivy.Main -warn -settings "${IVY_SETTINGS:-ivysettings.xml}" -ivy ivy.xml \
    -confs "$name" -retrieve "$new/[artifact]-[revision](-[classifier]).[ext]" >target/jars/ivy.log 2>&1; then
    tail -n 20 target/jars/ivy.log >&2
    fail "Cannot retrieve the jars. Log: target/jars/ivy.log" \
      "Check the network, then try again. To use a mirror of Maven Central: make setup IVY_SETTINGS=<your ivysettings.xml>"
  fi
  if [[ $lock == --lock ]]; then
    (cd "$new" && sha256 ./*) >"$list"
  fi
  wanted=$(sed 's/^[0-9a-f]* [ *]//' "$list" | sort)
  found=$(cd "$new" && find . -type f | sort)
  [[ $wanted == "$found" ]] || fail "The retrieved jars differ from $list." "If you changed ivy.xml, run make jars-lock."
  (cd "$new" && sha256 --check --quiet "$ROOT/$list") ||
    fail "The hash of a jar differs from $list. Nothing was installed." \
      "Remove the jar from ~/.ivy2/cache and try again. If it still differs, do not trust its source."
  rm -rf "$jars"
  mv "$new" "$jars"
  sha256 ivy.xml "$list" >"$jars.stamp"
}

case ${1:-spark} in
  spark) retrieve spark jars.sha256 ;;
  rest | kafka | registry) retrieve "$1" "jars-$1.sha256" ;;
  --lock)
    retrieve spark jars.sha256 --lock
    retrieve rest jars-rest.sha256 --lock
    retrieve kafka jars-kafka.sha256 --lock
    retrieve registry jars-registry.sha256 --lock
    ;;
  *) fail "Expected spark, rest, kafka, registry or --lock, got $1." "Configurations are defined in ivy.xml." ;;
esac
