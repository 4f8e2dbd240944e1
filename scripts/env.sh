# Sourced by the other scripts: changes to the repository's root and defines make_env and install_browser.
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The compilers for absent GPUs include JAX's CUDA plugin, which complains of missing CUDA libraries.
[[ ! -f .venv/installed-aot ]] || export JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1

find_python() {  # prints the first Python that is new enough
  local python
  for python in "${PYTHON:-python3}" python3.12 python3.13 python3.14; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
      echo "$python"
      return
    fi
  done
  echo "jaxserve needs Python 3.12 or newer: install it, or set its path: 'PYTHON=/path/to/python3.12 $0'." >&2
  return 2
}

is_installed() {  # is_installed main|dev|aot: .venv was made here from the current version of that lock file
  [[ -x .venv/bin/python && "$(cat ".venv/installed-$1" 2>/dev/null)" == "$(fingerprint "$1")" ]]
}

fingerprint() {  # of the lock file and of .venv's place, also where .venv links to the one of another worktree
  { readlink -f .venv; cat "requirements/$1.txt" pyproject.toml; } | cksum
}

make_env() {  # make_env main|dev|aot: installs requirements/$1.txt into .venv; dev includes main, aot includes dev
  case "$1" in
    main) is_installed main || is_installed dev || is_installed aot ;;
    dev) is_installed dev || is_installed aot ;;
    aot) is_installed aot ;;
  esac && return
  if ! grep -qsF " $(readlink -f .venv)" .venv/pyvenv.cfg || ! .venv/bin/python -m pip --version &>/dev/null; then
    local python
    python=$(find_python)
    echo "Creating .venv with $("$python" --version)"
    "$python" -m venv --clear .venv || {
      echo "$python cannot create environments: install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2
      return 2
    }
  fi
  echo "Installing requirements/$1.txt into .venv (only when it changes; one or two minutes the first time)"
  rm -f .venv/installed-*
  # A lock file is complete (--no-deps), and most modules are never imported (--no-compile): 18 of 50 s.
  local pip=(.venv/bin/python -m pip install -qq --disable-pip-version-check --no-deps)
  local halves status=0
  halves=$(mktemp -d)
  awk -v folder="$halves" '/^[A-Za-z]/ { n++ } { print > (folder "/" n % 2) }' "requirements/$1.txt"
  # pip unpacks 2.8 GB on one core: two processes, each with every second package, take 27 s instead of 37.
  "${pip[@]}" --no-compile --require-hashes -r "$halves/0" &
  "${pip[@]}" --no-compile --require-hashes -r "$halves/1" || status=1
  wait $! || status=1
  rm -r "$halves"
  ((status == 0)) && "${pip[@]}" --no-build-isolation -e . || return 1
  fingerprint "$1" >".venv/installed-$1"
}

install_browser() {  # installs Chromium from Debian's packages where it is missing
  command -v chromium >/dev/null && return
  echo "Installing Chromium for the tests of the web page"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends chromium fonts-liberation >/dev/null
}
