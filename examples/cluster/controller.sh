#!/bin/sh
# Start a run, or go on with it where it stood, for learners of other machines:
#
#     sh controller.sh RUN_DIR CONFIG [KEY=VALUE ...]
#
# It listens on ADDRESS, an IP address of this machine (default: the first one of its name), at PORT
# (default: 5555) and the next one, at which checkpoints are.
set -eu
run=$1
shift
[ ! -e "$run/run.yaml" ] || set -- --resume "$@"
address=${ADDRESS:-$(hostname -i | cut -d ' ' -f 1)}
exec arena launch "$@" "endpoint=tcp://$address:${PORT:-5555}" --run-dir "$run"
