# Each target prepares what it needs. The logic is in deploy/ and tests/.
.DEFAULT_GOAL := help
.PHONY: help start stop clean duckdb page minio spark producer-logs consumer-logs setup setup-native setup-test test fuzz chaos lint bench model soak requirements jars-lock docs release

help: ## this text
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

start: ## start the demo (in containers if a Docker engine responds) and show what lands; SOURCE=kafka: over a topic; STREAM=sensors, clickstream
	@deploy/demo/start.sh

stop: ## stop producer and consumer; MinIO keeps running
	@deploy/demo/stop.sh

clean: ## stop everything and remove the data; downloads are kept
	@deploy/demo/clean.sh

duckdb: ## open DuckDB's shell on the tables
	@deploy/demo/duckdb.sh

page: ## serve the page of the lake, by default at 127.0.0.1:8282, which refreshes as commits arrive
	@deploy/demo/page.sh

minio: ## open MinIO's console, or print how to start MinIO
	@deploy/demo/minio.sh

spark: ## open the Spark UI of the running consumer
	@deploy/demo/spark.sh

producer-logs: ## follow the producer's log
	@deploy/demo/logs.sh producer

consumer-logs: ## follow the consumer's log
	@deploy/demo/logs.sh consumer

setup: ## prepare .venv, dependencies and jars
	@deploy/setup.sh

setup-native: ## also build the native judge, after its build failed
	@deploy/setup.sh native

setup-test: ## also prepare what the tests need
	@tests/setup.sh

test: setup-test ## run every check, and most tests; ALL=1: all that CI runs
	@tests/check.sh

fuzz: setup-test ## run the property tests on new random examples; ARGS="5 tests/reader" for 5 rounds of some, ARGS=layers: random streams to gold
	@tests/fuzz.sh $(ARGS)

chaos: setup-test ## disturb the consumer in every way that we know (two hours); ARGS="--part operations --storage local"
	@tests/chaos/run.sh $(ARGS)

lint: ## run the checks, not the tests
	@deploy/setup.sh dev
	@tests/check.sh lint

bench: ## run the benchmarks, or one: make bench NAME=backlog ARGS="--files 100 --repeat 1"
	@benchmarks/bench.sh $(NAME) $(ARGS)

model: ## measure each phase of the pipeline, and predict what more machines can take; ARGS=--predict: by the last measurements
	@benchmarks/bench.sh model $(ARGS)

soak: ## run a maintained stream for an hour, and plot what must not grow; ARGS="--seconds 600"
	@benchmarks/bench.sh soak $(or $(ARGS),--seconds 3600)

requirements: setup ## pin the dependencies of pyproject.toml, after a change of it
	@deploy/requirements.sh

jars-lock: ## record the hashes of the jars, after a change of ivy.xml
	@deploy/setup.sh lock

docs: ## build the docs site in target/site, without a network once its packages are installed
	@deploy/docs.sh

release: ## build wheels, SBOM and licenses in dist/, and test the wheels in empty environments
	@deploy/release.sh
