#!/bin/sh
# Review the last change in CI: review.sh [FLAGS FOR ZOT...]. Exit code: 0 fine, 1 stop or failed.
# BASE: the commit to compare with (default: HEAD~1). ZOT_BIN: the command (default: zot).
set -eu
base=${BASE:-HEAD~1}
question="Review this change. Name bugs with file and line, worst first, and nothing that is a matter of taste. \
End with a line that says VERDICT: go, or VERDICT: stop if it must not be merged."
review=$(git diff "$base" | "${ZOT_BIN:-zot}" -p --tools read,grep,glob --max-cost 1 --max-seconds 600 "$@" "$question")
printf '%s\n' "$review"
case $(printf '%s\n' "$review" | tail -n 1) in
*"VERDICT: stop"*) exit 1 ;;
esac
