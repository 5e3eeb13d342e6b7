"""The manifest for Kubernetes fits the image and the server's flags."""

from __future__ import annotations

from typing import Any

import yaml

from server.command import main
from tests.deploy.dockerfile import ROOT, load_dockerfile

IMAGES = load_dockerfile()
MANIFEST = (ROOT / "deploy/kubernetes/formerd.yaml").read_text()
OBJECTS: dict[str, Any] = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST)}
POD: dict[str, Any] = OBJECTS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]


def test_probes_ask_the_health_service_where_the_server_listens() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert set(ports.values()) == IMAGES.ports("server")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["grpc"]["port"] == ports["grpc"]
    annotations = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == ports["metrics"]


def test_the_service_leads_to_the_container_s_ports() -> None:
    service = OBJECTS["Service"]["spec"]
    assert {port["targetPort"] for port in service["ports"]} <= {
        port["name"] for port in CONTAINER["ports"]
    }
    labels = OBJECTS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()


def test_the_container_is_the_image_s_user_and_can_write_nothing() -> None:
    assert str(POD["securityContext"]["runAsUser"]) == IMAGES.user("server")
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all(mount["readOnly"] for mount in CONTAINER["volumeMounts"])


def test_the_arguments_are_the_server_s_and_lie_in_what_is_mounted() -> None:
    context = main.make_context("server", list(CONTAINER["args"]))
    [mount] = CONTAINER["volumeMounts"]
    assert context.params["directories"]
    assert all(
        str(path).startswith(f"{mount['mountPath']}/") for path in context.params["directories"]
    )


def test_the_pod_has_longer_to_stop_than_the_server_takes() -> None:
    [grace] = [option.default for option in main.params if option.name == "grace_seconds"]
    assert POD["terminationGracePeriodSeconds"] >= float(str(grace)) + 5
