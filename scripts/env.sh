# Sourced by the other scripts: goes to the repository's root and defines make_env.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# With the compilers for absent GPUs JAX's CUDA plugin is here, which complains of the CUDA libraries that are not.
[[ ! -f .venv/installed-aot ]] || export JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1

find_python() {  # prints the first Python that is new enough
  local python
  for python in "${PYTHON:-python3}" python3.12 python3.13 python3.14; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "jaxserve needs Python 3.12 or newer: install it, or name it as in 'PYTHON=/path/to/python3.12 $0'." >&2
  return 2
}

is_installed() {  # is_installed main|dev|aot: .venv was made here and holds what that lock file says today
  [[ -x .venv/bin/python && "$(cat ".venv/installed-$1" 2>/dev/null)" == "$(fingerprint "$1")" ]]
}

fingerprint() {
  { pwd; cat "requirements/$1.txt" pyproject.toml; } | cksum
}

make_env() {  # make_env main|dev|aot: .venv holds what requirements/$1.txt says; dev is main and more, aot dev and more
  case "$1" in
    main) is_installed main || is_installed dev || is_installed aot ;;
    dev) is_installed dev || is_installed aot ;;
    aot) is_installed aot ;;
  esac && return
  if ! grep -qsF " $PWD/.venv" .venv/pyvenv.cfg || ! .venv/bin/python -m pip --version &>/dev/null; then
    local python
    python=$(find_python)
    echo "Making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || {
      echo "$python cannot make environments: install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2
      return 2
    }
  fi
  echo "Installing requirements/$1.txt into .venv (again only when it changes; a minute or two the first time)"
  rm -f .venv/installed-*
  .venv/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r "requirements/$1.txt"
  .venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
  fingerprint "$1" >".venv/installed-$1"
}

install_browser() {  # Chromium, with Debian's packages
  command -v chromium >/dev/null && return
  echo "Installing Chromium for the tests of the page"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium fonts-liberation >/dev/null
}
