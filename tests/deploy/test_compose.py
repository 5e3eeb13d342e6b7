"""What docker-compose.yml names exists, and fits the Dockerfile, the code and the provisioning."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import click
import pytest
import yaml

from export.commands.building import command as build_command
from server.command import main
from tests.deploy.dashboard import DASHBOARD, load_dashboard
from tests.deploy.dockerfile import DOCKERFILE, ROOT, load_dockerfile

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
IMAGES = load_dockerfile()
SERVERS = ("server", "server-cuda")
EXPORTS = [name for name in SERVICES if name.startswith("export-")]
OURS = [*SERVERS, *EXPORTS]


@pytest.mark.parametrize("name", OURS)
def test_an_image_of_ours_is_built_from_a_target_that_there_is(name: str) -> None:
    build = SERVICES[name]["build"]
    assert ROOT / build["context"] / build["dockerfile"] == DOCKERFILE
    assert build["target"] in IMAGES.stages
    assert name.startswith(build["target"])
    # Compose would build different targets under one name.
    assert SERVICES[name]["image"] == f"formerd-{build['target']}"


@pytest.mark.parametrize("name", OURS)
def test_a_container_of_ours_can_do_as_little_as_possible(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's, who is not root


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_is_given_what_the_exports_before_it_have_built(name: str) -> None:
    service = SERVICES[name]
    served = directories_of(service["command"])
    assert {SERVICES[export]["command"][1] for export in service["depends_on"]} == served
    conditions = [each["condition"] for each in service["depends_on"].values()]
    assert set(conditions) == {"service_completed_successfully"}
    [volume] = service["volumes"]
    assert volume == "models:/models:ro"
    assert all(PurePosixPath(path).parent == PurePosixPath("/models") for path in served)


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_and_its_exports_are_of_one_profile_and_device(name: str) -> None:
    profile = SERVICES[name].get("profiles")
    for export in SERVICES[name]["depends_on"]:
        assert SERVICES[export].get("profiles") == profile
        assert ("cuda" in SERVICES[export]["command"]) == (profile == ["cuda"])


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_publishes_the_port_that_it_listens_on_to_this_machine_only(name: str) -> None:
    [port] = SERVICES[name]["ports"]
    host, _, container = port.split(":")
    assert host == "127.0.0.1"
    assert int(container) in IMAGES.ports(SERVICES[name]["build"]["target"])


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_has_longer_to_stop_than_it_takes(name: str) -> None:
    [grace] = [option.default for option in main.params if option.name == "grace_seconds"]
    assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) >= float(str(grace)) + 5


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_s_command_is_one(name: str) -> None:
    source, output, *options = SERVICES[name]["command"]
    shell = SERVICES[name]["entrypoint"]
    # $0 is the source, $1 the output, and "$@" the output with all that follows.
    assert shell[:2] == ["sh", "-c"]
    assert shell[2].endswith('exec python -m export build "$$0" --output "$$@"')
    build_command.make_context("build", [source, "--output", output, *options])
    assert "models:/models" in SERVICES[name]["volumes"]


def test_volumes_are_declared_and_files_exist() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (ROOT / source).exists() if source.startswith(".") else source in named()
    assert named() <= {
        volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]
    }


def test_prometheus_reads_the_repository_s_configuration_and_finds_either_server() -> None:
    service = SERVICES["prometheus"]
    directory, mounted, _ = service["volumes"][0].split(":")
    file = next(word for word in service["command"] if "config.file" in word).split("=")[1]
    configuration = yaml.safe_load((ROOT / directory / PurePosixPath(file).name).read_text())
    assert str(PurePosixPath(file).parent) == mounted
    [job] = configuration["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in SERVICES
    assert host in SERVICES["server-cuda"]["networks"]["default"]["aliases"]
    assert int(port) in IMAGES.ports("server")


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    mounts = dict(volume.split(":")[:2] for volume in SERVICES["grafana"]["volumes"])
    provisioning = ROOT / next(path for path, at in mounts.items() if at.endswith("provisioning"))
    [source] = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert SERVICES["prometheus"]["ports"] == ["127.0.0.1:9090:9090"]
    assert {
        panel["datasource"]["uid"] for panel in load_dashboard()["panels"] if "targets" in panel
    } == {source["uid"]}
    [provider] = yaml.safe_load((provisioning / "dashboards/formerd.yml").read_text())["providers"]
    at = provider["options"]["path"]
    assert {ROOT / path for path, mounted in mounts.items() if mounted == at} == {DASHBOARD.parent}
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{at}/{DASHBOARD.name}"


def test_grafana_sizes_its_windows_by_how_often_prometheus_scrapes() -> None:
    source = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    interval = source["datasources"][0]["jsonData"]["timeInterval"]
    assert interval == scraped["global"]["scrape_interval"]


def directories_of(command: list[str]) -> set[str]:
    """What the server would serve, as it reads its command."""
    context: click.Context = main.make_context("server", list(command))
    return {str(path) for path in context.params["directories"]}


def named() -> set[str]:
    return set(COMPOSE["volumes"])
