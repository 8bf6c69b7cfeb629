"""The SDK's Secret class."""
import secrets
import unittest

from e2b import Secret
from e2b.exceptions import SecretException, SecretNotFoundException

CANARY = "sk-canary-" + secrets.token_hex(8)


def fresh(name):
    """A name that no other test has."""
    return f"py-{secrets.token_hex(6)}-{name}"


class SecretTest(unittest.TestCase):
    def told(self, answer):
        """Asserts that what was answered does not have the value."""
        self.assertNotIn(CANARY, repr(answer))
        return answer

    def test_life(self):
        name = fresh("Life")
        made = self.told(Secret.create(name, CANARY, metadata={"team": "größe"}))
        self.assertEqual((made.name, made.version, made.metadata), (name.lower(), 1, {"team": "größe"}))
        self.assertRegex(made.secret_id, r"^sec_[a-z0-9]+$")
        for ref in (made.secret_id, name, name.lower()):
            self.assertEqual(self.told(Secret.get_info(ref)).secret_id, made.secret_id)
            self.assertTrue(Secret.exists(ref))
        second = self.told(Secret.update(name, CANARY + "2"))
        self.assertEqual((second.version, second.metadata), (2, {"team": "größe"}))
        third = self.told(Secret.update(made.secret_id, CANARY + "3", metadata={}))
        self.assertEqual((third.version, third.metadata), (3, {}))
        self.assertTrue(Secret.destroy(made.secret_id))
        self.assertFalse(Secret.destroy(made.secret_id))
        self.assertFalse(Secret.exists(name))

    def test_errors(self):
        name = fresh("wrong")
        with self.assertRaises(SecretNotFoundException):
            Secret.get_info(name)
        with self.assertRaises(SecretNotFoundException):
            Secret.update(name, CANARY)
        for bad in ("sec_mine", "a b", "../x", "x" * 129):
            with self.assertRaises(SecretException) as caught:
                Secret.create(bad, CANARY)
            self.told(str(caught.exception))
        with self.assertRaises(SecretException) as caught:
            Secret.create(name, CANARY * 5000)
        self.told(str(caught.exception))
        Secret.create(name, CANARY)
        with self.assertRaises(SecretException) as caught:
            Secret.create(name.upper(), CANARY)
        self.assertIn("already", str(caught.exception))
        Secret.destroy(name)

    def test_pages(self):
        names = [fresh(n) for n in "cabed"]
        for name in names:
            Secret.create(name, CANARY)
        found = []
        pages = Secret.list(limit=2)
        while pages.has_next:
            page = self.told(pages.next_items())
            self.assertLessEqual(len(page), 2)
            found += [s.name for s in page]
        self.assertEqual(found, sorted(found))
        self.assertLessEqual(set(names), set(found))
        for name in names:
            Secret.destroy(name)


if __name__ == "__main__":
    unittest.main()
