#!/usr/bin/env bash
# Photos in folders (one folder per class) as the first task, then a server that answers for new photos.
# usage: photos_server.sh MODEL PHOTOS [PORT]      open http://127.0.0.1:PORT/ and drop a photo there
set -euo pipefail
model=$1 photos=$2 port=${3:-8000}
command=${METAREPLAY:-metareplay}

if [ ! -d "$model" ]; then
  $command new "$model" --seed 0 --network "${NETWORK:-lenet}"
  $command add-task "$model" "$photos" --name first --set data.image_size="${SIZE:-[28,28]}" --quiet
fi
exec $command serve "$model" --port "$port"
