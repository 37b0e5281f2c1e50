"""The same cases as the TypeScript client's."""

import json
import unittest

from tierfold import LaunchError, launch_place

from .vectors import REPOSITORY

CASES = json.loads((REPOSITORY / "tests" / "rank" / "launch_cases.json").read_text())["cases"]


class Launch(unittest.TestCase):
    def test_cases(self):
        self.assertGreater(len(CASES), 20)
        for case in CASES:
            with self.subTest(case["name"]):
                known = case.get("known", {})

                def find(case=case, known=known):
                    return launch_place(known.get("rank"), known.get("worldSize"), case["env"])

                if "error" in case:
                    with self.assertRaises(LaunchError) as caught:
                        find()
                    for text in case["error"]:
                        self.assertIn(text, str(caught.exception))
                    continue
                place = find()
                wanted = case["place"]
                self.assertEqual(place.rank, wanted["rank"])
                self.assertEqual(place.world_size, wanted["worldSize"])
                self.assertEqual(place.local_rank, wanted.get("localRank"))
                self.assertEqual(place.relay, wanted.get("relay"))
                self.assertEqual(place.master, wanted.get("master"))
                for text in case["source"]:
                    self.assertIn(text, place.source)

    def test_the_source_is_logged(self):
        with self.assertLogs("tierfold", "INFO") as logs:
            launch_place(env={"RANK": "1", "WORLD_SIZE": "2"})
        self.assertIn("rank 1 by RANK (torchrun)", logs.output[0])


if __name__ == "__main__":
    unittest.main()
