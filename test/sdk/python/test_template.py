"""E2B's Python SDK builds templates, unmodified, against a real daemon."""
import os
import pathlib
import tempfile
import unittest

from e2b import Sandbox, Template

IMAGE = os.environ.get("IMAGE")


def run(template, command):
    """Runs a command in a new sandbox of a template."""
    sandbox = Sandbox.create(template, timeout=120)
    try:
        return sandbox.commands.run(command).stdout.strip()
    finally:
        sandbox.kill()


@unittest.skipIf(IMAGE is None, "no image: TestBuilds runs this file")
class Build(unittest.TestCase):
    """Builds from an image and from a template."""

    def test_image_files_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "data.txt").write_text("data")
            template = (
                Template(file_context_path=folder)
                .from_image(IMAGE)
                .copy("data.txt", "copied/")
                .set_envs({"GREETING": "hello"})
                .run_cmd("echo $GREETING $(id -un) > ~/out")
            )
            logs = []
            info = Template.build(template, "python-whole", cpu_count=1, memory_mb=512, on_build_logs=logs.append)
            self.assertEqual(run("python-whole", "cat ~/out ~/copied/data.txt"), "hello user\ndata")
            self.assertTrue(logs)
            again = Template.build(template, "python-whole", cpu_count=1, memory_mb=512)
            self.assertEqual(info.template_id, again.template_id)

    def test_failure_names_the_step(self):
        template = Template().from_image(IMAGE).run_cmd("true").run_cmd("exit 7")
        with self.assertRaisesRegex(Exception, "exit status 7"):
            Template.build(template, "python-broken", cpu_count=1, memory_mb=512)

    def test_a_tag_alone(self):
        """A name that has only a tag, and the result of a build by the build's ID. Harbor uses both."""
        def build(text):
            return Template.build(Template().from_image(IMAGE).run_cmd(f"echo {text} > ~/out"),
                                  "python-tagged:v1", cpu_count=1, memory_mb=512)

        info = build("first")
        self.assertEqual(run(f"python-tagged:{info.build_id}", "cat ~/out"), "first")
        self.assertEqual(run(f"{info.template_id}:{info.build_id}", "cat ~/out"), "first")
        self.assertEqual([(t.tag, t.build_id) for t in Template.get_tags("python-tagged")], [("v1", info.build_id)])
        self.assertTrue(Template.exists("python-tagged"))
        self.assertFalse(Template.exists("python-tagged-not"))
        with self.assertRaisesRegex(Exception, "404"):
            Sandbox.create("python-tagged", timeout=60)
        second = build("second")
        self.assertEqual(second.template_id, info.template_id)
        self.assertEqual(run(f"python-tagged:{second.build_id}", "cat ~/out"), "second")
        Template.remove_tags("python-tagged", "v1")
        with self.assertRaisesRegex(Exception, "404"):
            Template.get_tags("python-tagged")

    def test_template_of_a_template(self):
        Template.build(Template().from_image(IMAGE).run_cmd("echo below > ~/below"), "python-below", cpu_count=1, memory_mb=512)
        Template.build(Template().from_template("python-below").run_cmd("echo above > ~/above"), "python-above", cpu_count=1, memory_mb=512)
        self.assertEqual(run("python-above", "cat ~/below ~/above"), "below\nabove")
