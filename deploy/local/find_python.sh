#!/bin/sh
# Prints the first Python that can make our virtual environment: 3.11 or newer, with venv and pip in it.
# Arguments are tried first:  find_python.sh [PYTHON]
set -u
if [ $# -gt 0 ]; then candidates="$1"; else candidates="python3 python3.13 python3.12 python3.11"; fi
for python in $candidates; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        command -v "$python"
        exit 0
    fi
done
cat >&2 <<MESSAGE
setup: no Python 3.11 or newer with venv and pip among: $candidates
    Debian, Ubuntu   apt-get install python3 python3-venv
    Fedora           dnf install python3
    macOS            brew install python@3.13
Or name one:  make PYTHON=/path/to/python3.12 setup
MESSAGE
exit 1
