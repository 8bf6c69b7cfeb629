"""Inspect's own checks of a sandbox provider, on the provider in integrations/inspect.

Root may read and write everything, and only root can make users. So both run all checks that mean
something to them.
"""
import asyncio
import inspect

import pytest
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv
from inspect_carrel import CarrelConfig

checks = {name: check for name, check in vars(self_check).items()
          if name.startswith("test_") and inspect.iscoroutinefunction(check)}
not_as = {"root": {"test_read_file_not_allowed", "test_write_text_file_without_permissions",
                   "test_write_binary_file_without_permissions"},
          "user": set()}


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module", params=["user", "root"])
def box(request, loop):
    provider = registry_find_sandboxenv("carrel")
    config = provider.config_deserialize({"user": request.param})
    assert isinstance(config, CarrelConfig)
    made = loop.run(provider.sample_init("self_check", config, {}))
    yield request.param, made["default"]
    loop.run(provider.sample_cleanup("self_check", config, made, False))


def test_there_are_checks():
    assert len(checks) > 30
    assert not_as["root"] < set(checks)


@pytest.mark.parametrize("name", checks)
def test_check(name, box, loop):
    user, sandbox = box
    if name not in not_as[user]:
        loop.run(checks[name](sandbox))
