#!/usr/bin/env bash
# Checks the policy files that FILES names: one path or pattern a line.
set -euo pipefail
shopt -s globstar nullglob
IFS=  # a pattern is one word: paths may contain spaces

files=()
while IFS= read -r pattern; do
  [[ -z "$pattern" ]] && continue
  matched=($pattern)  # unquoted, so that the shell expands it
  if [[ ${#matched[@]} -eq 0 ]]; then
    echo "::error title=streamproc::no policy file matches one of the patterns in 'files'"
    exit 2
  fi
  files+=("${matched[@]}")
done <<< "$FILES"
if [[ ${#files[@]} -eq 0 ]]; then
  echo "::error title=streamproc::'files' names no policy file"
  exit 2
fi
streamproc policy check --format github -- "${files[@]}"
