#!/usr/bin/env bash
# Send one prompt to `zot rpc` and stream the answer. Needs jq.
#
# prompt.sh PROMPT [FLAGS FOR ZOT...]        ZOT_BIN: the command, default zot
# Exit code: 0 answered, 1 failed, 2 wrong usage.
set -u

if [ $# -lt 1 ]; then
  echo "usage: prompt.sh PROMPT [FLAGS FOR ZOT...]" >&2
  exit 2
fi
message=$1
shift

commands() {
  # The token goes through the environment: other users can see arguments.
  if [ -n "${ZOTCORE_RPC_TOKEN:-}" ]; then
    jq -nc '{id: "0", type: "hello", token: env.ZOTCORE_RPC_TOKEN}'
  fi
  printf '%s' "$message" | jq -Rsc '{id: "1", type: "prompt", message: .}'
} # the input ends here: zot finishes the prompt, then exits

# Each frame as three columns: what it is, its text, the arguments of a tool call.
columns='[
  if .type == "response" and (.success | not) then "refused"
  elif .type == "assistant_message" and any(.content[]; .type == "text") then "line_end"
  else .type end,
  if .type == "turn_end" then .stop else .delta // .name // .message // .error // "" end,
  (.args | tojson)
] | @tsv'

follow() {
  local failed=0 type text args
  while IFS=$'\t' read -r type text args; do
    case $type in
      text_delta) printf '%b' "$text" ;; # %b undoes the escapes of @tsv
      tool_call) printf '[%s] %b\n' "$text" "$args" >&2 ;;
      refused) printf 'error: %b\n' "$text" >&2; return 1 ;;
      error) printf 'error: %b\n' "$text" >&2; failed=1 ;;
      turn_start) failed=0 ;; # an error that the run got over
      turn_end) case $text in error | aborted) failed=1 ;; esac ;;
      line_end) echo ;;
      done) return $failed ;;
    esac
  done
  echo "error: zot ended before it was done" >&2
  return 1
}

commands | "${ZOT_BIN:-zot}" rpc "$@" | jq -r --unbuffered "$columns" | follow
