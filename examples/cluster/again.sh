#!/bin/sh
# Run a command, and run it again 5 s after it ends, until its exit code says that this is of no use:
#
#     sh again.sh [--stay] COMMAND ...
#
# 0 (over), 2 (refused), 3 (failed), 5 (storage), 126 and 127 (no such command), and 129, 130 and 143
# (asked to end by a signal) are such codes.
# With any other one a learner was given up, or something crashed. A signal that asks this script to
# end is passed on as SIGTERM; the command finishes what it does, and the exit code is 143. With
# --stay the script stays until then also where nothing is left to do, for a supervisor that would
# start it again.

stay='' told='' child='' code=0
if [ "$1" = --stay ]; then stay=yes && shift; fi

pass_on() {
  told=yes
  [ -z "$child" ] || kill -s TERM "$child" 2>/dev/null
}
trap pass_on TERM INT HUP

pause() {
  seconds=$1
  while [ -z "$told" ] && [ "$seconds" -gt 0 ]; do
    sleep 1
    seconds=$((seconds - 1))
  done
}

while [ -z "$told" ]; do
  # In a session of its own, so that Ctrl-C reaches it once: a second signal ends a learner at once.
  setsid "$@" &
  child=$!
  # One that came before the child had an id. In the first moments the child would not hear it.
  if [ -n "$told" ]; then sleep 1 && pass_on; fi
  # A signal ends `wait`, not the child.
  wait "$child" && code=0 || code=$?
  while kill -0 "$child" 2>/dev/null; do wait "$child" && code=0 || code=$?; done
  child=''
  case $code in 0 | 2 | 3 | 5 | 126 | 127 | 129 | 130 | 143) break ;; esac
  [ -z "$told" ] || break
  echo "again.sh: ended with $code, again in ${AGAIN_S:-5} s" >&2
  pause "${AGAIN_S:-5}"
done
if [ -n "$stay" ] && [ -z "$told" ]; then
  echo "again.sh: ended with $code, waiting to be told to end" >&2
  while [ -z "$told" ]; do pause 60; done
fi
[ -z "$told" ] || exit 143
exit "$code"
