#!/usr/bin/env bash
# One task of a launcher: a rank, in Python where its number on this host is odd and PYTHON names one; the
# first on each host also starts the relay. HOST_PORTS holds a port per host, CONTROLLER an address.
here=$(dirname "$0")
local=${LOCAL_RANK:-${OMPI_COMM_WORLD_LOCAL_RANK:-$SLURM_LOCALID}}
read -ra ports <<<"$HOST_PORTS"
export TIERFOLD_RELAY=127.0.0.1:${ports[${SLURM_NODEID:-0}]}

variables="TIERFOLD_*,RANK,WORLD_SIZE,LOCAL_*,GROUP_RANK,MASTER_*,TORCHELASTIC_*,OMPI_*,PMIX_HOSTNAME"
deno=("$DENO" run --quiet --no-prompt --allow-net=127.0.0.1
  "--allow-env=$variables,SLURM_*,SLURMD_NODENAME")

relay=
if [ "$local" = 0 ]; then
  "${deno[@]}" "$here/../../relay.ts" \
    --listen "$TIERFOLD_RELAY" --controller "$CONTROLLER" &
  relay=$!
fi
if [ -n "$PYTHON" ] && [ $((local % 2)) = 1 ]; then
  "$PYTHON" "$here/rank.py"
else
  "${deno[@]}" "$here/rank.ts"
fi
status=$?
if [ -n "$relay" ]; then wait "$relay" || status=$?; fi
exit "$status"
