"""The image and the manifest in docs/serving are valid for their tools, and match the server they start."""

import copy
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from jaxserve.cli import serve
from jaxserve.cli.args.dataclass_flags import given
from jaxserve.server.server_config import ServerConfig
from tests.repository.modules import ROOT
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

FOLDER = ROOT / "docs" / "serving"
KUBERNETES = "1.34"
# A custom resource, which Kubernetes itself does not define: the used part of its schema, from charts/operator/crds of
# GoogleCloudPlatform/prometheus-engine (2ffde4e, 2026; `secret` there since 2024).
MONITORING = "monitoring.googleapis.com/v1"
SECRET_KEY = {
    "type": "object",
    "required": ["secret"],
    "additionalProperties": False,
    "properties": {
        "secret": {
            "type": "object",
            "required": ["name", "key"],
            "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "key": {"type": "string"}, "namespace": {"type": "string"}},
        }
    },
}
ENDPOINT = {
    "type": "object",
    "required": ["port"],
    "additionalProperties": False,
    "properties": {
        "port": {"type": ["string", "integer"]},
        "path": {"type": "string", "pattern": "^/"},
        "interval": {"type": "string", "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?$"},
        "authorization": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"type": {"type": "string"}, "credentials": SECRET_KEY},
        },
    },
}
POD_MONITORING = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": MONITORING},
        "kind": {"const": "PodMonitoring"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["selector", "endpoints"],
            "additionalProperties": False,
            "properties": {
                "selector": {"type": "object", "required": ["matchLabels"]},
                "endpoints": {"type": "array", "minItems": 1, "items": ENDPOINT},
            },
        },
    },
}


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """The manifest's objects by kind."""
    found = {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "gke.yaml").read_text())}
    assert len(found) == 6
    return found


def check(manifest: dict[str, Any]) -> None:
    """Raise an error for a field that is unknown or has a wrong type."""
    if manifest["apiVersion"] == MONITORING:
        jsonschema.validate(manifest, POD_MONITORING)
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def pod(manifests: dict[str, Any]) -> dict[str, Any]:
    return manifests["Deployment"]["spec"]["template"]["spec"]


def container(manifests: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod(manifests)["containers"]
    return found


def test_every_object_fits_its_schema(manifests):
    for manifest in manifests.values():
        check(manifest)


def rename(credentials: dict[str, Any], name: str) -> None:
    """Give the secret the name that it had before its release."""
    credentials[name] = credentials.pop("secret")


PLANTED = [
    ("Deployment", lambda d: d["spec"]["template"]["spec"].update(terminationGracePeriod=150)),
    ("Deployment", lambda d: d["spec"]["template"]["spec"]["containers"][0]["ports"][0].update(containerPort="http")),
    ("Service", lambda d: d["spec"].update(selectors={})),
    ("PodMonitoring", lambda d: d["spec"]["endpoints"][0].update(intervall="15s")),
    ("PodMonitoring", lambda d: rename(d["spec"]["endpoints"][0]["authorization"]["credentials"], "kubernetesSecret")),
    ("Role", lambda d: d.update(rule=[])),
]


@pytest.mark.parametrize(("kind", "spoil"), PLANTED, ids=range(len(PLANTED)))
def test_a_planted_error_is_noticed(manifests, kind, spoil):
    spoilt = copy.deepcopy(manifests[kind])
    spoil(spoilt)
    with pytest.raises((kubernetes_validate.ValidationError, jsonschema.ValidationError)):
        check(spoilt)


def entry_point() -> list[str]:
    """The arguments after `jaxserve serve` with which the image starts."""
    (line,) = [line for line in dockerfile().splitlines() if line.startswith("ENTRYPOINT ")]
    words = json.loads(line.removeprefix("ENTRYPOINT "))
    assert words[:2] == ["jaxserve", "serve"]
    return words[2:]


def dockerfile() -> str:
    return (FOLDER / "Dockerfile").read_text()


def test_the_pod_starts_a_server_that_drains_in_time(manifests):
    """The verb knows its options, and the grace period leaves enough time to drain."""
    asked = serve._parser().parse_args([*entry_point(), *container(manifests)["args"]])
    config = ServerConfig(**given(asked, ServerConfig))
    assert (config.host, config.is_exposed) == ("0.0.0.0", True)
    leaves_s = container(manifests)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(manifests)["terminationGracePeriodSeconds"] > leaves_s + config.shutdown_timeout
    (port,) = container(manifests)["ports"]
    assert (port["name"], port["containerPort"]) == ("http", config.port)


def test_its_chips_are_those_of_the_topology(manifests):
    topology = pod(manifests)["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = math.prod(map(int, topology.split("x")))
    asked = serve._parser().parse_args(container(manifests)["args"])
    resources = container(manifests)["resources"]
    assert asked.tensor_parallel_size == chips
    assert resources["requests"]["google.com/tpu"] == resources["limits"]["google.com/tpu"] == str(chips)


def test_the_key_comes_from_a_secret_and_goes_where_it_is_read(manifests, monkeypatch):
    variables = {each["name"]: each for each in container(manifests)["env"]}
    monkeypatch.setenv("JAXSERVE_API_KEY", "k")
    assert serve._from_environment() == {"api_key": "k"}
    wanted = variables["JAXSERVE_API_KEY"]["valueFrom"]["secretKeyRef"]
    (endpoint,) = manifests["PodMonitoring"]["spec"]["endpoints"]
    assert endpoint["authorization"]["credentials"]["secret"] == wanted
    assert manifests["Role"]["rules"][0]["resourceNames"] == [wanted["name"]]


def test_all_objects_select_the_same_pods_and_port(manifests):
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        manifests["Deployment"]["spec"]["selector"]["matchLabels"],
        manifests["Service"]["spec"]["selector"],
        manifests["PodMonitoring"]["spec"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * 3
    probes = [container(manifests)[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert probes == [{"path": "/health", "port": "http"}] * 3
    assert manifests["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    assert manifests["RoleBinding"]["roleRef"]["name"] == manifests["Role"]["metadata"]["name"]
    assert pod(manifests)["serviceAccountName"] == manifests["ServiceAccount"]["metadata"]["name"]


def test_nothing_runs_as_root(manifests):
    security = pod(manifests)["securityContext"]
    assert security["runAsNonRoot"]
    assert f"USER {security['runAsUser']}\n" in dockerfile()
    assert container(manifests)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def hadolint(text: str) -> str:
    program = Path(sys.executable).with_name("hadolint")
    return subprocess.run([program, "-"], input=text, capture_output=True, text=True).stdout


def test_hadolint_finds_nothing_in_the_dockerfile():
    assert hadolint(dockerfile()) == ""
    assert "DL3002" in hadolint(dockerfile() + "USER root\n")


def test_the_health_check_takes_another_address():
    """Its command runs as in docker: with the image's environment, and with another one."""
    (default,) = re.findall(r"^ENV HEALTH_URL=(\S+)$", dockerfile(), re.M)
    config = ServerConfig()
    assert default == f"http://127.0.0.1:{config.port}/health"
    (command,) = re.findall(r"^HEALTHCHECK .*\\\n  CMD (.*)$", dockerfile(), re.M)
    with running(fake_llm()) as server:
        for url, code in ((f"{server.url}/health", 0), (f"{server.url}/nothing", 1)):
            words = [sys.executable, *json.loads(command)[1:]]
            done = subprocess.run(words, env={"HEALTH_URL": url}, capture_output=True, check=False)
            assert done.returncode == code


def test_the_locks_that_the_dockerfile_names_are_there():
    named = re.search(r"LOCK is a file of requirements/.*?: (\w+) .*, (\w+) or (\w+)$", dockerfile(), re.M | re.S)
    assert named
    assert all((ROOT / "requirements" / f"{lock}.txt").exists() for lock in named.groups())


def test_the_image_has_everything_that_a_wheel_is_built_from():
    """.dockerignore excludes everything except the packages and the files that their metadata is read from."""
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {
        "jaxserve",
        "checkpoints",
        "pallas_kernels",
        "requirements",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    } == kept
