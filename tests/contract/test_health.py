"""grpc.health.v1: the server, each service and each model, as the health protocol says."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2 as pb

from tests.contract.stubs import Stubs, error_of

SERVING = pb.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "name",
    [
        "",
        "formerd.v1.EmbeddingService",
        "formerd.v1.GenerationService",
        "formerd.v1.ModelService",
        "formerd.v1/tiny-encoder",
        "formerd.v1/tiny-decoder",
    ],
)
async def test_everything_that_is_ready_serves(name: str, stubs: Stubs) -> None:
    request = pb.HealthCheckRequest(service=name)
    assert (await stubs.health.Check(request)).status == SERVING
    watch = stubs.health.Watch(request)
    assert (await watch.read()).status == SERVING
    watch.cancel()


async def test_check_does_not_find_what_there_is_not(stubs: Stubs) -> None:
    error = await error_of(stubs.health.Check(pb.HealthCheckRequest(service="formerd.v1/other")))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_watch_says_that_a_service_is_unknown(stubs: Stubs) -> None:
    watch = stubs.health.Watch(pb.HealthCheckRequest(service="other"))
    assert (await watch.read()).status == pb.HealthCheckResponse.SERVICE_UNKNOWN
    watch.cancel()
