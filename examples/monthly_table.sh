#!/usr/bin/env bash
# A table every month, with a gate: a month that would change what was learned before is refused.
# usage: monthly_table.sh FOLDER MONTH.csv...      the column to predict is called label, or named by LABEL
set -euo pipefail
model=$1
shift
command=${METAREPLAY:-metareplay}
limit=${MAX_CHANGE:-0.05}

[ -d "$model" ] || $command new "$model" --seed 0
for month in "$@"; do
  name=$(basename "$month" .csv)
  if ! $command add-task "$model" "$month" --name "$name" ${LABEL:+--label "$LABEL"} --gate --max-change "$limit" --quiet; then
    echo "$name was refused; the model is as it was before" >&2
    exit 1
  fi
done
$command audit "$model" --max-change "$limit"   # exit code 1 would stop a deployment here
$command tasks "$model"
