#!/bin/sh
# Starts a model, Tollgate and a gateway, then asks for two answers of 60 tokens and a third one: two pass, the third is refused.
# Needs `tollgate`, `python3`, `curl` and the gateway on the path: `run.sh envoy` or `run.sh nginx`.
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
python3 model.py 2> "$work/model" & one=$!
tollgate serve --rules rules.yaml --http 127.0.0.1:8080 --grpc 127.0.0.1:9090 --resp off 2> "$work/tollgate" & two=$!
case ${1:-envoy} in
  envoy) envoy --config-path envoy.yaml --disable-hot-restart --log-level off & three=$! ;;
  nginx) nginx -p "$work" -e stderr -c "$PWD/nginx.conf" 2> "$work/nginx" & three=$! ;;
esac
trap 'kill $one $two $three || true; wait; rm -r "$work"' EXIT
trap 'exit 1' INT TERM
for place in 127.0.0.1:8080/healthz 127.0.0.1:8081/ready 127.0.0.1:10000/ready; do
  curl --silent --output "$work/ready" --retry 20 --retry-delay 1 --retry-all-errors --fail-with-body "http://$place"
done
for number in 1 2 3; do
  curl --silent --output "$work/response" --write-out '%{http_code} %header{retry-after}\n' \
    --header 'x-api-key: k-1' --data '{"max_tokens":60}' http://127.0.0.1:10000/v1/chat/completions
  # The tokens are recorded after the answer.
  sleep 1
done
