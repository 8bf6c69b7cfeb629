"""A template of a Dockerfile. TestDockerfile names the directory, and looks at the template."""
import os
import pathlib
import unittest

from e2b import Template

CONTEXT = os.environ.get("CONTEXT")


@unittest.skipIf(CONTEXT is None, "no context: TestDockerfile runs this file")
class Dockerfile(unittest.TestCase):
    """Template().from_dockerfile."""

    def test_build(self):
        text = pathlib.Path(CONTEXT, "Dockerfile").read_text()
        template = Template(file_context_path=CONTEXT).from_dockerfile(text)
        Template.build(template, os.environ["NAME"], cpu_count=1, memory_mb=512)
