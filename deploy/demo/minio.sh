#!/usr/bin/env bash
# Print the address of MinIO's console, and open it.
source "$(dirname "$0")/../common.sh"

if docker_responds && address=$(docker compose port minio 9001 2>/dev/null) && [[ -n $address ]]; then
  say "MinIO's console: http://${address/0.0.0.0/127.0.0.1}" "User and password: MINIO_ROOT_USER and MINIO_ROOT_PASSWORD in .env"
  "$(command -v xdg-open || command -v open || echo true)" "http://$address" >/dev/null 2>&1 || true
  exit
fi
cat <<'END'
MinIO is not running in Docker. By default, the lake is in local folders and needs no server.
To start MinIO:
  with a Docker engine    make start    (MinIO with its console, buckets, producer, consumer)
  without Docker          make setup-test builds the server as target/bin/minio (needs Go), then
                          MINIO_ROOT_USER=minio MINIO_ROOT_PASSWORD=minio-secret target/bin/minio server --console-address :9001 target/minio
To use any S3 endpoint, set these variables, then use the same commands:
  AWS_ENDPOINT_URL=http://127.0.0.1:9000 AWS_ACCESS_KEY_ID=… AWS_SECRET_ACCESS_KEY=…
  LAKE_LANDING=s3://landing LAKE_WAREHOUSE=s3://warehouse LAKE_CHECKPOINTS=s3://checkpoints
END
