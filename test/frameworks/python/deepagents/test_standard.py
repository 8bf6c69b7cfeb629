"""LangChain's standard tests of sandboxes, as its integrations run them."""
import pytest
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestStandard(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create(timeout=600) as sandbox:
            yield E2BSandbox(sandbox=sandbox)
