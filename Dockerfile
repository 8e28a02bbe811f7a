# One stage per program: docker build --target producer|consumer|reader .
# Dependencies are those of requirements/, pinned by hash; the producer has no Java, the reader no JVM.

FROM eclipse-temurin:17.0.16_8-jdk-jammy AS jdk

FROM python:3.11.13-slim-bookworm AS base
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /app
RUN useradd --create-home --uid 10001 lake && mkdir /lake && chown lake:lake /lake

FROM base AS build
COPY requirements/bootstrap.txt requirements/
RUN pip install --no-cache-dir --require-hashes --requirement requirements/bootstrap.txt && python -m venv --without-pip .venv
COPY pyproject.toml README.md LICENSE ./
COPY src src
# Files of the package are links to these.
COPY contracts contracts
COPY gold gold
RUN hatchling build --target wheel --directory dist

FROM build AS producer-build
COPY requirements/producer.txt requirements/
RUN uv pip install --no-cache --python .venv --require-hashes --requirement requirements/producer.txt \
    && uv pip install --no-cache --python .venv --no-deps dist/*.whl

FROM build AS collector-build
COPY requirements/collector.txt requirements/
RUN uv pip install --no-cache --python .venv --require-hashes --requirement requirements/collector.txt \
    && uv pip install --no-cache --python .venv --no-deps dist/*.whl

FROM build AS consumer-build
COPY requirements/consumer.txt requirements/
# PySpark comes as source: what builds it is pinned, too.
RUN uv pip install --no-cache --python .venv --require-hashes --requirement requirements/consumer.txt \
      --build-constraints requirements/bootstrap.txt \
    && uv pip install --no-cache --python .venv --no-deps dist/*.whl

FROM consumer-build AS jars
COPY --from=jdk /opt/java/openjdk /opt/java/openjdk
RUN JAVA_HOME=/opt/java/openjdk LAKE_JARS=/app/spark/jars .venv/bin/lakeproof setup

FROM build AS reader-build
COPY requirements/reader.txt requirements/
RUN uv pip install --no-cache --python .venv --require-hashes --requirement requirements/reader.txt \
    && uv pip install --no-cache --python .venv --no-deps dist/*.whl

FROM base AS producer
COPY --from=producer-build /app/.venv .venv
COPY contracts contracts
USER 10001
CMD ["producer", "--help"]

FROM base AS collector
COPY --from=collector-build /app/.venv .venv
COPY contracts contracts
USER 10001
CMD ["collector", "run"]

FROM base AS consumer
ENV JAVA_HOME=/opt/java/openjdk LAKE_JARS=/app/spark/jars
COPY --from=jdk /opt/java/openjdk /opt/java/openjdk
COPY --from=consumer-build /app/.venv .venv
COPY --from=jars /app/spark spark
COPY contracts contracts
COPY gold gold
USER 10001
CMD ["consumer", "--help"]

FROM base AS reader
COPY --from=reader-build /app/.venv .venv
COPY contracts contracts
COPY gold gold
USER 10001
CMD ["reader", "shell"]
