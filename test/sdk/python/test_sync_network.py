"""What may leave a sandbox, with E2B's Python SDK. Outside there are api.example.com,
other.example.com and www.example.net, which tell what they were asked (values of headers
backwards), and a SOCKS5 proxy."""
import base64
import json
import time
import unittest

from e2b import ALL_TRAFFIC, Sandbox, SandboxException

from python.lib import TEMPLATE, carrel, until


def ask(sandbox, url, options=""):
    """A request from inside: what the site tells, or None."""
    out = sandbox.commands.run(f"curl -sS --max-time 30 {options} {url} || echo exit $?", timeout=60).stdout
    return json.loads(out) if out.startswith("{") else None


def header(told, name):
    return told["headers"].get(name, "")[::-1]


class Network(unittest.TestCase):
    def create(self, **options):
        sandbox = Sandbox.create(TEMPLATE, timeout=120, **options)
        self.addCleanup(sandbox.kill)
        return sandbox

    def test_switch(self):
        self.assertEqual(ask(self.create(), "http://www.example.net/x")["path"], "/x")
        closed = self.create(allow_internet_access=False)
        before = time.time()
        self.assertIsNone(ask(closed, "http://www.example.net/x"))
        self.assertLess(time.time() - before, 25)

    def test_lists(self):
        sandbox = self.create(network={"allow_out": ["api.example.com", "*.example.net"], "deny_out": [ALL_TRAFFIC]})
        self.assertEqual(ask(sandbox, "http://api.example.com/one")["path"], "/one")
        self.assertTrue(ask(sandbox, "https://www.example.net/", "-k")["tls"])
        self.assertIsNone(ask(sandbox, "http://other.example.com/"))
        info = sandbox.get_info()
        self.assertEqual(info.network["allow_out"], ["api.example.com", "*.example.net"])
        self.assertEqual(info.network["deny_out"], [ALL_TRAFFIC])

    def test_held_for_a_person(self):
        """A command of the SDK waits inside while a person is asked, and goes on with the answer."""
        sandbox = self.create()
        carrel("PUT", f"/sandboxes/{sandbox.sandbox_id}/network",
               {"policy": {"rules": [{"ask": ["*.example.com"]}], "askSeconds": 300}})
        for host, answer in (("api.example.com", "allow"), ("other.example.com", "deny")):
            command = sandbox.commands.run(
                f"curl -sS --max-time 200 http://{host}/{answer} || echo exit $?", background=True, timeout=300)
            question = until("a question", lambda: carrel(
                "GET", f"/inbox?sandbox={sandbox.sandbox_id}")["questions"])[0]
            self.assertEqual((question["host"], question["port"]), (host, 80))
            carrel("POST", "/inbox/" + question["id"], {"answer": answer})
            result = command.wait()
            if answer == "allow":
                self.assertEqual(json.loads(result.stdout)["path"], "/allow")
            else:
                self.assertIn("said no", result.stdout + result.stderr)

    def test_rules_and_tokens(self):
        sandbox = self.create(
            iam={"tokens": {"vault": {"audience": "https://vault.example.com", "token_type": "JWT-SVID"}}},
            network={
                "allow_out": lambda ctx: list(ctx.rules.keys()),
                "deny_out": lambda ctx: [ctx.all_traffic],
                "rules": {
                    "api.example.com": [
                        {
                            "transform": lambda ctx: {
                                "headers": {"Authorization": f"Bearer {ctx.iam.tokens['vault']}", "X-Added": "by the wire"}
                            }
                        }
                    ]
                },
            },
        )
        told = ask(sandbox, "https://api.example.com/")  # no option: the sandbox trusts the wire
        self.assertEqual(header(told, "x-added"), "by the wire")
        payload = header(told, "authorization").removeprefix("Bearer ").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        self.assertIn("https://vault.example.com", [claims["aud"]] if isinstance(claims["aud"], str) else claims["aud"])
        self.assertTrue(time.time() < claims["exp"] <= time.time() + 3600)

    def test_literal_values_come_back(self):
        headers = {"X-Api-Key": "a-key-in-the-clear", "Authorization": "Bearer in-the-clear-too"}
        sandbox = self.create(
            network={"allow_out": ["api.example.com"], "deny_out": [ALL_TRAFFIC], "rules": {"api.example.com": [{"transform": {"headers": headers}}]}}
        )
        echo = ask(sandbox, "https://api.example.com/")["echo"]
        for name, value in headers.items():
            self.assertEqual(echo[name.lower()], value)

    def test_host_and_port(self):
        rule = [{"transform": {"headers": {"X-Added": "by the wire"}}}]
        host = self.create().get_host(3000)
        sandbox = self.create(
            network={"allow_out": [host, "api.example.com:8443"], "deny_out": [ALL_TRAFFIC], "rules": {host: rule, "api.example.com:8443": rule}}
        )
        self.assertEqual(sandbox.get_info().network["allow_out"], [host, "api.example.com:8443"])
        self.assertEqual(header(ask(sandbox, "https://api.example.com:8443/"), "x-added"), "by the wire")
        self.assertIsNone(ask(sandbox, "https://api.example.com/", "-k"))

    def test_proxy(self):
        sandbox = self.create(
            network={
                "allow_out": ["api.example.com"],
                "deny_out": [ALL_TRAFFIC],
                "egress_proxy": {"address": "proxy.example.com:1080", "username": "user", "password": "password"},
            }
        )
        self.assertIn("api.example.com:80", ask(sandbox, "http://api.example.com/")["proxied"])
        self.assertIsNone(ask(sandbox, "http://other.example.com/"))

    def test_update(self):
        sandbox = self.create(allow_internet_access=False)
        self.assertIsNone(ask(sandbox, "http://api.example.com/"))
        sandbox.update_network({"allow_out": ["api.example.com"], "deny_out": [ALL_TRAFFIC]})
        self.assertEqual(ask(sandbox, "http://api.example.com/")["host"], "api.example.com")
        self.assertIsNone(ask(sandbox, "http://other.example.com/"))
        Sandbox.update_network(sandbox.sandbox_id, {"allow_internet_access": False})
        self.assertIsNone(ask(sandbox, "http://api.example.com/"))

    def test_wrong(self):
        for network in ({"allow_out": ["exa mple.com"]}, {"deny_out": ["api.example.com"]}, {"egress_proxy": {"address": "no port"}}):
            with self.assertRaises(SandboxException, msg=str(network)):
                self.create(network=network)
