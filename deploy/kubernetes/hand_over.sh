#!/bin/sh
# Runs a program as a container's first process; when it ends, also by SIGTERM, ends the coordinator of this pod, which
# hands its groups over: other pods go on with them at once. ENTRYPOINT ["hand_over.sh"], or with Spark's own image
# ENTRYPOINT ["hand_over.sh", "/opt/entrypoint.sh"]. SHAREGROUP_RUNTIME_DIR names this pod's own folder.
program='' told=''
trap 'told=1; [ -z "$program" ] || kill -TERM "$program" 2>/dev/null' TERM INT
"$@" &
program=$!
[ -z "$told" ] || kill -TERM "$program"
wait "$program"
status=$?
while kill -0 "$program" 2>/dev/null; do # a signal ended the wait, not the program
    wait "$program"
    status=$?
done
for file in "$SHAREGROUP_RUNTIME_DIR"/endpoint-*.json; do
    pid=$(sed -n 's/.*"pid": *\([0-9][0-9]*\).*/\1/p' "$file" 2>/dev/null)
    [ -n "$pid" ] && kill -TERM "$pid" 2>/dev/null || continue
    while grep -qs '^State:[^Z]*$' "/proc/$pid/status"; do sleep 0.1; done
done
exit "$status"
