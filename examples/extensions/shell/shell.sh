#!/usr/bin/env bash
# /branch puts the git branch into the editor; the tool `disk_free` tells the model how full a disk
# is. Needs jq. Frames go to stdout, so everything else must go to stderr.
set -u

emit() { jq -cn "$@"; }

emit '{type: "hello", name: "shell", version: "1.0.0", capabilities: ["commands", "tools"]}'
emit '{type: "register_command", name: "branch", description: "insert the git branch"}'
emit '{type: "register_tool", name: "disk_free", description: "Free space of a file system.",
       schema: {type: "object", properties: {path: {type: "string"}}, required: ["path"]}}'
emit '{type: "ready"}'

cwd=.
while IFS= read -r line; do
    id=$(jq -r '.id // ""' <<<"$line")
    case $(jq -r .type <<<"$line") in
        hello_ack) cwd=$(jq -r .cwd <<<"$line") ;;
        command_invoked)
            branch=$(git -C "$cwd" branch --show-current 2>/dev/null || true)
            emit --arg id "$id" --arg text "${branch:-no branch}" \
                '{type: "command_response", id: $id, action: "insert", insert: $text}'
            ;;
        tool_call)
            failed=false
            text=$(df -h -- "$(jq -r '.args.path' <<<"$line")" 2>&1) || failed=true
            emit --arg id "$id" --arg text "$text" --argjson failed "$failed" \
                '{type: "tool_result", id: $id, content: [{type: "text", text: $text}],
                  is_error: $failed}'
            ;;
        shutdown)
            emit '{type: "shutdown_ack"}'
            exit 0
            ;;
    esac
done
