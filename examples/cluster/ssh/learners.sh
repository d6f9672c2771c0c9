#!/bin/sh
# Start a learner on each host, with the first keys of a run, and let it go on without this shell:
#
#     sh learners.sh RUN_DIR tcp://ADDRESS:PORT HOST ...
#
# A host needs a shell, tar and the command `arena` ($ARENA names another one). What it gets is in
# arena-learner/ of its home: run.yaml, one key, again.sh, learner.log and learner.pid.
set -eu
run=$1 endpoint=$2
shift 2
here=$(dirname "$0")
arena=${ARENA:-arena}
number=0
for host; do
  key=keys/remote-$number.key
  # Only its owner may read a key, here and there.
  tar -cf - -C "$run" run.yaml "$key" -C "$(cd "$here/.." && pwd)" again.sh |
    ssh "$host" "umask 077; mkdir -p arena-learner && cd arena-learner || exit
      tar --no-same-owner -xf - || exit
      set -- $arena learner run.yaml --connect $endpoint --keys $key
      nohup sh again.sh \"\$@\" >> learner.log 2>&1 < /dev/null &
      echo \$! > learner.pid"
  echo "$host: $key"
  number=$((number + 1))
done
