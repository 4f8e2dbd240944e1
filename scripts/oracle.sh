# Sourced by the comparisons with transformers, after env.sh: defines find_oracle and run_with_oracle.
# transformers gets an environment of its own, .venv-oracle, made here from requirements/oracle.txt;
# ORACLE_PYTHON=/path/to/python names one that has it already.

make_oracle_env() {
  if cmp -s requirements/oracle.txt .venv-oracle/installed; then
    return
  fi
  local python
  for python in python3.11 python3.12 python3.13 python3; do  # 3.11 first: some indices have torch without CUDA for it only
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      break
    fi
  done
  echo "Making .venv-oracle with $("$python" --version) and requirements/oracle.txt (once; some minutes)"
  "$python" -m venv --clear .venv-oracle
  .venv-oracle/bin/python -m pip install -qq --disable-pip-version-check -r requirements/oracle.txt
  cp requirements/oracle.txt .venv-oracle/installed
}

find_oracle() {  # find_oracle ARGUMENTS...: sets ORACLE_PYTHON; not needed where help is asked for
  export ORACLE_PYTHON=${ORACLE_PYTHON:-}
  case " $* " in
    *" -h "* | *" --help "*) ORACLE_PYTHON=unused ;;
  esac
  if [[ -z "$ORACLE_PYTHON" ]]; then
    make_oracle_env
    ORACLE_PYTHON=$PWD/.venv-oracle/bin/python
  fi
}

run_with_oracle() {  # run_with_oracle MODULE ARGUMENTS...
  make_env main
  find_oracle "$@"
  exec .venv/bin/python -m "$@"
}
