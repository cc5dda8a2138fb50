#!/bin/sh
# Prints the first Python that can create the virtual environment: 3.11 or newer, with venv and pip.
# With an argument, only that one is tried:  find_python.sh [PYTHON]
set -u
if [ $# -gt 0 ]; then candidates="$1"; else candidates="python3 python3.13 python3.12 python3.11"; fi
for python in $candidates; do
    if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        command -v "$python"
        exit 0
    fi
done
cat >&2 <<MESSAGE
setup: found no Python 3.11 or newer with venv and pip; tried: $candidates
    Debian, Ubuntu   apt-get install python3 python3-venv
    Fedora           dnf install python3
    macOS            brew install python@3.13
Or choose one:  make PYTHON=/path/to/python3.12 setup
MESSAGE
exit 1
