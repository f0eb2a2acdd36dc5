#!/bin/sh
# Starts a shop, Tollgate and Envoy, and asks six times: five searches pass, the sixth is refused.
# Needs `tollgate`, `envoy`, `python3` and `curl` on the path.
set -eu
cd "$(dirname "$0")"
shop=$(mktemp -d)
echo hello > "$shop/search"
python3 -m http.server 8081 --bind 127.0.0.1 --directory "$shop" 2> "$shop/log" & one=$!
tollgate serve --rules rules.yaml --grpc 127.0.0.1:9090 --http off --resp off 2> "$shop/tollgate" & two=$!
envoy --config-path envoy.yaml --log-level off & three=$!
trap 'kill $one $two $three; rm -r "$shop"' EXIT
curl --silent --output "$shop/ready" --retry 20 --retry-delay 1 --retry-connrefused http://127.0.0.1:10000/
for number in 1 2 3 4 5 6; do
  curl --silent --output "$shop/answer" --write-out '%{http_code} %header{ratelimit} %header{retry-after}\n' \
    --header 'x-api-key: k-1' http://127.0.0.1:10000/search
done
