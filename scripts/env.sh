# Sourced by the other scripts: sets tool paths.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
PYTHON="${PYTHON:-python3}"
export PIP_NO_INPUT=1
