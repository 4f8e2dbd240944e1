# Sourced after env.sh by the comparisons with transformers, the oracle: defines find_oracle and run_with_oracle.
# transformers has a separate environment, .venv-oracle, created from requirements/oracle.txt;
# ORACLE_PYTHON=/path/to/python selects an existing one.

make_oracle_env() {
  if cmp -s requirements/oracle.txt .venv-oracle/installed; then
    return
  fi
  local python
  for python in python3.11 python3.12 python3.13 python3; do  # 3.11 first: some package indexes have CPU builds of torch for 3.11 only
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      break
    fi
  done
  echo "Creating .venv-oracle with $("$python" --version) and requirements/oracle.txt (once; some minutes)"
  "$python" -m venv --clear .venv-oracle
  .venv-oracle/bin/python -m pip install -qq --disable-pip-version-check -r requirements/oracle.txt
  cp requirements/oracle.txt .venv-oracle/installed
}

find_oracle() {  # find_oracle ARGUMENTS...: sets ORACLE_PYTHON; --help needs no environment
  export ORACLE_PYTHON=${ORACLE_PYTHON:-}
  case " $* " in
    *" -h "* | *" --help "*) ORACLE_PYTHON=unused ;;
  esac
  if [[ -z "$ORACLE_PYTHON" ]]; then
    make_oracle_env
    ORACLE_PYTHON=$PWD/.venv-oracle/bin/python
  fi
}

run_with_oracle() {  # run_with_oracle MODULE ARGUMENTS...: runs a module of this repository with ORACLE_PYTHON set
  make_env main
  find_oracle "$@"
  exec .venv/bin/python -m "$@"
}
