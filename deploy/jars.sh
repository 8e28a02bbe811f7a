#!/usr/bin/env bash
# Retrieve the jars of the tests' servers, and check their hashes. Spark's own jars are retrieved by `lakeproof setup`.
#   deploy/jars.sh rest      the tests' REST catalog: target/jars/rest (tests/jars/rest.sha256)
#   deploy/jars.sh kafka     the Kafka broker of tests and demo: target/jars/kafka (src/lakeproof/install/kafka.sha256)
#   deploy/jars.sh registry  the archive of the tests' schema registry: target/jars/registry (tests/jars/registry.sha256)
#   deploy/jars.sh --lock    retrieve all jars, and write all lists of hashes, after a change of ivy.xml
# IVY_SETTINGS names other settings of Ivy, for a mirror of Maven Central.
source "$(dirname "$0")/common.sh"

# retrieve NAME LIST [--lock]
retrieve() { "$BIN/lakeproof" jars "${@:3}" ${IVY_SETTINGS:+--ivy-settings "$IVY_SETTINGS"} "$1" "target/jars/$1" "$2"; }

case ${1:-} in
  kafka) retrieve kafka src/lakeproof/install/kafka.sha256 ;;
  rest | registry) retrieve "$1" "tests/jars/$1.sha256" ;;
  --lock)
    retrieve spark "$JARS_LIST" --lock
    retrieve rest tests/jars/rest.sha256 --lock
    retrieve kafka src/lakeproof/install/kafka.sha256 --lock
    retrieve registry tests/jars/registry.sha256 --lock
    ;;
  *) fail "Expected rest, kafka, registry or --lock, got '${1:-}'." "Configurations are defined in src/lakeproof/install/ivy.xml." ;;
esac
