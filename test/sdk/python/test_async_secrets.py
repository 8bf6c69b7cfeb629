"""The SDK's AsyncSecret class."""
import secrets
import unittest

from e2b import AsyncSecret
from e2b.exceptions import SecretNotFoundException

CANARY = "sk-canary-" + secrets.token_hex(8)


class AsyncSecretTest(unittest.IsolatedAsyncioTestCase):
    async def test_life(self):
        name = f"py-{secrets.token_hex(6)}-async"
        made = await AsyncSecret.create(name, CANARY)
        self.assertNotIn(CANARY, repr(made))
        self.assertEqual((made.name, made.version, made.metadata), (name, 1, {}))
        self.assertEqual((await AsyncSecret.update(name, CANARY, metadata={"a": "b"})).version, 2)
        self.assertEqual((await AsyncSecret.get_info(made.secret_id)).metadata, {"a": "b"})
        found = []
        pages = AsyncSecret.list(limit=1)
        while pages.has_next:
            found += [s.name for s in await pages.next_items()]
        self.assertIn(name, found)
        self.assertTrue(await AsyncSecret.destroy(name))
        self.assertFalse(await AsyncSecret.destroy(name))
        with self.assertRaises(SecretNotFoundException):
            await AsyncSecret.get_info(name)


if __name__ == "__main__":
    unittest.main()
