"""Every public method of the SDK's template builder: a case uses it, or says why it is refused."""
import inspect
import json
import os
import pathlib
import tempfile
import time
import unittest

import e2b.template.main as builder
from e2b import Sandbox, Template, wait_for_file, wait_for_timeout

IMAGE = os.environ.get("IMAGE")
SIZE = {"cpu_count": 1, "memory_mb": 512}

# The methods that the cases below use. Each case names its own.
COVERED = set()

# Methods that the SDK itself or another service refuses here, and why.
REFUSED = {
    "add_mcp_server": "the SDK allows it in E2B's own template mcp-gateway only",
    "beta_dev_container_prebuild": "the SDK allows it in E2B's own template devcontainer only",
    "beta_set_dev_container_start": "the SDK allows it in E2B's own template devcontainer only",
    "from_aws_registry": "it needs a token that only AWS gives; the daemon asks AWS for it",
}

# Methods that only name a public image. The SDK makes a from_image of each.
NAMED = {
    "from_debian_image": "debian",
    "from_ubuntu_image": "ubuntu",
    "from_python_image": "python",
    "from_node_image": "node",
    "from_bun_image": "oven/bun",
    "from_fedora_image": "fedora",
    "from_alpine_image": "alpine",
    "from_arch_image": "archlinux",
}

# The package managers are stand-ins that note how they were called: TestDockerfile has real ones.
STAND_IN = '#!/bin/sh\necho "$(id -un) ${0##*/} $*" >> /usr/calls\n'


def method(*names):
    """Notes the methods that a case uses."""
    COVERED.update(names)
    return lambda fn: fn


def run(template, command):
    """Runs a command in a new sandbox of a template."""
    sandbox = Sandbox.create(template, timeout=120)
    try:
        return sandbox.commands.run(command).stdout.strip()
    finally:
        sandbox.kill()


@unittest.skipIf(IMAGE is None, "no image: TestBuilds runs this file")
class Methods(unittest.TestCase):
    """Each method of the builder, and each of Template itself."""

    maxDiff = None

    @method("from_image", "copy", "copy_items", "set_envs", "run_cmd", "make_dir", "make_symlink", "rename", "remove", "apt_install",
            "bun_install", "pip_install", "npm_install", "git_clone", "set_user", "set_workdir", "set_start_cmd", "build")
    def test_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in [("tool", STAND_IN), ("calls", ""), ("data.txt", "data")]:
                pathlib.Path(folder, name).write_text(text)
            tools = [{"src": "tool", "dest": f"/usr/bin/{name}", "user": "root", "mode": 0o755}
                     for name in ("apt-get", "bun", "pip", "npm", "git")]
            template = (
                Template(file_context_path=folder)
                .from_image(IMAGE)
                .copy_items([*tools, {"src": "calls", "dest": "/usr/calls", "user": "root", "mode": 0o666}])
                .copy("data.txt", "work/")
                .set_envs({"WORD": "hello"})
                .set_envs({"SAYS": '"$WORD" ${NONE:-there}'})
                .run_cmd('echo "$SAYS" > ~/said; touch ~/gone')
                .make_dir("/home/user/made")
                .make_symlink("/home/user/said", "/home/user/made/link")
                .rename("/home/user/work/data.txt", "/home/user/moved")
                .remove("/home/user/gone")
                .apt_install(["vim"])
                .bun_install("one")
                .pip_install("two")
                .npm_install(["three"])
                .git_clone("https://example.com/r", "/home/user/r", branch="b", depth=1)
                .set_user("root")
                .set_workdir("/srv/$WORD")
                .run_cmd("id -un > who")
                .set_user("user")
                .set_start_cmd("touch /tmp/up; sleep 1000", wait_for_file("/tmp/up"))
            )
            Template.build(template, "python-methods", **SIZE)
        look = ("cat ~/said; readlink ~/made/link; cat ~/moved; echo; ls ~/gone 2>/dev/null; cat who; pwd; id -un; "
                # On a machine without time to spare the template is not started ahead, and its command comes with the sandbox.
                "for i in $(seq 200); do [ -e /tmp/up ] && break; sleep 0.1; done; ls /tmp/up; cat /usr/calls")
        self.assertEqual(run("python-methods", look).split("\n"), [
            '"hello" there', "/home/user/said", "data", "root", "/srv/hello", "user", "/tmp/up",
            "root apt-get update", "root apt-get install -y vim", "user bun install one", "root pip install two",
            "user npm install three",
            "user git clone https://example.com/r --branch b --single-branch --depth 1 /home/user/r"])

    @method("skip_cache", "set_ready_cmd", "from_gcp_registry")
    def test_cache(self):
        registry = Template().from_gcp_registry(IMAGE, service_account_json={"type": "service_account", "project_id": "x"})
        template = (registry.run_cmd("date +%N > ~/kept; : Python").skip_cache().run_cmd("date +%N > ~/forced")
                    .set_ready_cmd(wait_for_timeout(100)))
        times = []
        for _ in range(2):
            Template.build(template, "python-forced", **SIZE)
            times.append(run("python-forced", "cat ~/kept ~/forced").split("\n"))
        self.assertEqual(times[0][0], times[1][0])
        self.assertNotEqual(times[0][1], times[1][1])

    @method("build_in_background", "get_build_status", "exists", "alias_exists", "assign_tags", "get_tags", "remove_tags",
            "from_base_image", "from_template")
    def test_background_and_tags(self):
        Template.build(Template().from_base_image().set_envs({"OF": "base"}), "python-of-base", **SIZE)
        template = Template().from_template("python-of-base").set_envs({"MORE": "$OF!"})
        info = Template.build_in_background(template, "python-background", **SIZE)
        end = time.monotonic() + 120
        while (status := Template.get_build_status(info)).status.value != "ready":
            self.assertIn(status.status.value, ("building", "waiting"))
            self.assertLess(time.monotonic(), end)
            time.sleep(0.1)
        self.assertEqual(run("python-background", "echo $MORE"), "base!")
        self.assertTrue(Template.exists("python-background"))
        self.assertTrue(Template.alias_exists("python-background"))
        Template.assign_tags("python-background", ["t1"])
        self.assertEqual(sorted(t.tag for t in Template.get_tags(info.template_id)), ["default", "t1"])
        Template.remove_tags("python-background", ["t1"])

    @method("to_json", "to_dockerfile", "from_dockerfile", *NAMED)
    def test_texts(self):
        template = Template().from_dockerfile("FROM example.com/x\nRUN true\n")
        self.assertRegex(Template.to_dockerfile(template), r"^FROM example\.com/x\n")
        self.assertEqual(json.loads(Template.to_json(template))["fromImage"], "example.com/x")
        for name, want in NAMED.items():
            made = json.loads(Template.to_json(getattr(Template(), name)()))
            self.assertEqual(made["fromImage"].split(":")[0], want, name)

    def test_refused(self):
        template = Template().from_image(IMAGE)
        for name in REFUSED:
            if not name.startswith("from"):
                with self.assertRaisesRegex(Exception, "template", msg=name):
                    getattr(template, name)("x")
        aws = Template().from_aws_registry(IMAGE, access_key_id="x", secret_access_key="y", region="z")
        with self.assertRaises(Exception):
            Template.build(aws, "python-of-aws", **SIZE)

    def test_every_method_is_known(self):
        names = {name for cls in (Template, builder.TemplateBuilder, builder.TemplateFinal)
                 for name, value in inspect.getmembers(cls, callable) if not name.startswith("_")}
        self.assertGreater(len(names), 40)
        self.assertEqual(sorted(names - COVERED - set(REFUSED)), [])
