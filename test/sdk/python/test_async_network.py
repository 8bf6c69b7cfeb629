"""What may leave a sandbox, with E2B's asynchronous Python SDK; see test_sync_network.py."""
import json
import unittest

from e2b import ALL_TRAFFIC, AsyncSandbox

from python.lib import TEMPLATE, ending


async def ask(sandbox, url, options=""):
    """A request from inside: what the site tells, or None."""
    out = (await sandbox.commands.run(f"curl -sS --max-time 30 {options} {url} || echo exit $?", timeout=60)).stdout
    return json.loads(out) if out.startswith("{") else None


class Network(unittest.IsolatedAsyncioTestCase):
    async def test_lists_and_update(self):
        sandbox = await AsyncSandbox.create(
            TEMPLATE,
            timeout=120,
            network={
                "allow_out": ["api.example.com"],
                "deny_out": [ALL_TRAFFIC],
                "rules": {"api.example.com": [{"transform": {"headers": {"X-Added": "by the wire"}}}]},
            },
        )
        self.addAsyncCleanup(ending(sandbox))
        told = await ask(sandbox, "https://api.example.com/")
        self.assertEqual(told["headers"]["x-added"][::-1], "by the wire")
        self.assertIsNone(await ask(sandbox, "http://other.example.com/"))
        await sandbox.update_network({"allow_out": ["other.example.com"], "deny_out": [ALL_TRAFFIC]})
        self.assertEqual((await ask(sandbox, "http://other.example.com/"))["host"], "other.example.com")
        self.assertIsNone(await ask(sandbox, "https://api.example.com/", "-k"))
        self.assertEqual((await sandbox.get_info()).network["allow_out"], ["other.example.com"])
