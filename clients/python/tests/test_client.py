"""The client against a relay that a test speaks for: what it sends, and what it makes of answers."""

import os
import struct
import tempfile
import threading
import unittest
from unittest import mock

import numpy as np
import tierfold
from tierfold import TransportError, WireError

from .peer import ACK, Peer, admit, drain, make_frame, note, prefixed, read_exactly, read_frame
from .vectors import SESSION_SALT as SALT


def f32(*values):
    return np.array(values, dtype=np.float32)


def connect(peer, **options):
    return tierfold.connect(peer.address, 1, 3, salt=SALT, join_timeout=30, **options)


class Conversations(unittest.TestCase):
    def fails(self, script, error, *texts, tensors=None, code=None, **options):
        """A round against ``script`` fails with this error, and leaves the tensors as they were."""
        values = f32(1, 2) if tensors is None else tensors
        before = values.copy()
        with Peer(script) as peer, self.assertRaises(error) as caught:
            with connect(peer, **options) as client:
                client.all_reduce({"embed": values}, mass=2)
        for text in texts:
            self.assertIn(text, str(caught.exception))
        if code is not None:
            self.assertEqual(caught.exception.code, code)
        np.testing.assert_array_equal(values, before)

    def test_a_round(self):
        seen = []

        def script(connection):
            seen.append(admit(connection))
            seen.append(read_frame(connection))
            answer = make_frame("model", 5, [((2,), f32(7, 8).tobytes()), ((), f32(9).tobytes())])
            connection.sendall(prefixed(answer))
            seen.append(connection.recv(1))

        with Peer(script) as peer, connect(peer) as client:
            values, scalar = f32(1, -2), np.array(3, dtype=np.float32)
            result = client.all_reduce([values, scalar], mass=2.5)
        (rank, world), (header, frame), end = seen
        self.assertEqual((rank, world, end), (1, 3, b""))
        self.assertEqual((header.kind, header.weight), ("model", 2.5))
        self.assertEqual([t.shape for t in header.tensors], [(2,), ()])
        at = header.tensors[0].at
        self.assertEqual(frame[at : at + 8], f32(2.5, -5).tobytes())
        np.testing.assert_array_equal(values, f32(7, 8))
        self.assertEqual(scalar, np.float32(9))
        self.assertEqual((result.kind, result.mass), ("model", 5))
        self.assertEqual((result.bytes_up, result.bytes_down), (len(frame) + 4, len(frame) + 4))
        self.assertGreater(result.seconds, 0)

    def test_mass_0_sends_zeros_and_keeps_what_is_there(self):
        def script(connection):
            admit(connection)
            header, frame = read_frame(connection)
            self.assertEqual(header.weight, 0)
            self.assertEqual(frame[header.tensors[0].at :][:8], bytes(8))
            connection.sendall(prefixed(make_frame("model", 0, [((2,), f32(7, 8).tobytes())])))

        values = f32(np.inf, np.nan)
        with Peer(script) as peer, connect(peer) as client:
            self.assertEqual(client.all_reduce(values, mass=0).mass, 0)
        np.testing.assert_array_equal(values, f32(np.inf, np.nan))

    def test_a_large_frame_is_what_numpy_makes_of_it(self):
        many = np.random.default_rng(1).standard_normal(700_001).astype(np.float32)
        shapes = [(700_001,), (3,), (0, 4), (131_072,)]
        tensors = [many, f32(1, 2, 3), np.zeros((0, 4), np.float32), many[:131_072].copy()]

        def script(connection):
            admit(connection)
            header, frame = read_frame(connection)
            self.assertEqual([t.shape for t in header.tensors], shapes)
            for got, sent in zip(header.tensors, wanted):
                self.assertEqual(frame[got.at : got.at + got.nbytes], sent)
            connection.sendall(prefixed(frame))

        wanted = [(tensor * np.float32(0.3)).tobytes() for tensor in tensors]
        with Peer(script) as peer, connect(peer) as client:
            client.all_reduce(tensors, mass=0.3)
        self.assertEqual([tensor.tobytes() for tensor in tensors], wanted)

    def test_answers_that_do_not_fit(self):
        good = ((2,), f32(1, 2).tobytes())
        rows = [
            (make_frame("control", 1, [good]), "schema", "it is a control frame, expected model"),
            (make_frame("model", 1, [good, good]), "schema", "it has 2 tensors, expected 1"),
            (make_frame("model", 1, [((1, 2), good[1])]), "schema", "embed has shape [1, 2]"),
            (make_frame("model", 1, [good], bytes(16)), "mac", "MAC does not match"),
            (b"\0" * 30, "magic", "magic 0x0"),
        ]
        for frame, code, text in rows:
            with self.subTest(text):

                def script(connection, frame=frame):
                    admit(connection)
                    read_frame(connection)
                    connection.sendall(prefixed(frame))

                self.fails(script, WireError, text, code=code)

    def test_an_answer_that_is_too_long_is_not_waited_for(self):
        def script(connection):
            admit(connection)
            read_frame(connection)
            connection.sendall(struct.pack("<I", 2**31))
            self.assertEqual(connection.recv(1), b"")

        self.fails(script, WireError, "above the frame ceiling of 67108864", code="ceiling")

    def test_an_answer_cut_at_every_offset(self):
        answer = prefixed(make_frame("model", 1, [((2,), f32(7, 8).tobytes())]))
        for end in range(len(answer)):

            def script(connection, end=end):
                admit(connection)
                read_frame(connection)
                connection.sendall(answer[:end])

            self.fails(script, TransportError, "result of round 0", code="closed")

    def test_an_answer_with_any_bit_flipped(self):
        answer = prefixed(make_frame("model", 1, [((2,), f32(7, 8).tobytes())]))
        for bit in range(0, 8 * len(answer)):
            flipped = bytearray(answer)
            flipped[bit // 8] ^= 1 << bit % 8

            def script(connection, flipped=flipped):
                admit(connection)
                read_frame(connection)
                connection.sendall(flipped)

            self.fails(script, tierfold.TierfoldError)

    def test_a_refusal_instead_of_a_result(self):
        def script(connection):
            admit(connection)
            read_frame(connection)
            connection.sendall(note("tensor 0 holds NaN"))

        text = "refused rank 1 of 3 because: tensor 0 holds NaN"
        self.fails(script, TransportError, text, code="refused")

    def test_a_refusal_of_the_handshake(self):
        rows = [
            (note("rank 1 is connected already"), "because: rank 1 is connected already"),
            (note("a lie", bytes(16)), "not signed with our salt: the salts of the two"),
            (struct.pack("<2I", 0xFFFFFFFF, 9999) + bytes(8), "with an unreadable reason"),
            (struct.pack("<2I", 0xFFFFFFFF, 3), "without a reason"),
        ]
        for data, text in rows:
            with self.subTest(text):

                def script(connection, data=data):
                    read_exactly(connection, 16)
                    connection.sendall(data)

                self.fails(script, TransportError, text, code="refused")

    def test_a_refusal_in_the_middle_of_an_upload_is_heard(self):
        def script(connection):
            admit(connection)
            read_exactly(connection, 100)
            connection.sendall(note("too much"))
            drain(connection)

        values = np.zeros(8_000_000, dtype=np.float32)
        self.fails(script, TransportError, "because: too much", tensors=values, code="refused")

    def test_a_refusal_is_heard_between_many_small_tensors_too(self):
        def script(connection):
            admit(connection)
            read_exactly(connection, 100)
            connection.sendall(note("too many"))
            drain(connection)

        tensors = [np.zeros(40_000, dtype=np.float32)] * 300
        with Peer(script) as peer, self.assertRaises(TransportError) as caught:
            with connect(peer) as client:
                client.all_reduce(tensors, mass=2)
        self.assertIn("because: too many", str(caught.exception))
        self.assertLess(client._link.bytes_out, 300 * 160_000)

    def test_the_reason_of_a_connection_that_broke(self):
        def script(connection):
            admit(connection)
            read_exactly(connection, 100)
            # Closing with unread bytes resets the connection under the client's write.
            connection.sendall(note("enough"))

        values = np.zeros(8_000_000, dtype=np.float32)
        with Peer(script) as peer, connect(peer) as client:
            with mock.patch.object(client._link, "has_input", return_value=False):
                with self.assertRaises(TransportError) as caught:
                    client.all_reduce(values, mass=1)
        self.assertIn("because: enough", str(caught.exception))

    def test_an_answer_that_never_ends_meets_the_deadline(self):
        over = threading.Event()

        def script(connection):
            admit(connection)
            read_frame(connection)
            connection.sendall(struct.pack("<I", 2**20))
            try:
                while not over.wait(0.02):
                    connection.sendall(b"\0")
            except OSError:
                pass  # The client has had enough.

        with Peer(script) as peer, connect(peer, round_timeout=0.4) as client:
            with self.assertRaises(TransportError) as caught:
                client.all_reduce(f32(1), mass=1)
            over.set()
        self.assertEqual(caught.exception.code, "deadline")

    def test_an_answer_before_its_turn(self):
        def script(connection):
            admit(connection)
            read_exactly(connection, 100)
            connection.sendall(bytes(64))
            drain(connection)

        values = np.zeros(8_000_000, dtype=np.float32)
        text = "answered round 0 before rank 1 had sent it"
        self.fails(script, WireError, text, tensors=values, code="message")

    def test_strangers(self):
        rows = [
            (b"", TransportError, "closed the connection at the handshake"),
            (ACK[:5], TransportError, "ended after 5 of 8 bytes"),
            (b"HTTP/1.1", WireError, "magic"),
            (struct.pack("<2I", 0xF10D17C1, 3), WireError, "protocol version 3, expected 2"),
        ]
        for data, error, text in rows:
            with self.subTest(text):

                def script(connection, data=data):
                    read_exactly(connection, 16)
                    connection.sendall(data)

                self.fails(script, error, text)

    def test_deadlines(self):
        over = threading.Event()

        def silent(connection):
            over.wait(60)

        def admits_only(connection):
            admit(connection)
            over.wait(60)

        with Peer(silent) as peer:
            with self.assertRaises(TransportError) as caught:
                tierfold.connect(peer.address, 0, 1, salt=SALT, join_timeout=0.2)
            over.set()
        self.assertEqual(caught.exception.code, "deadline")
        self.assertIn("rank 0 waits to be let in", str(caught.exception))
        over.clear()
        with Peer(admits_only) as peer:
            with connect(peer, round_timeout=0.2) as client:
                with self.assertRaises(TransportError) as caught:
                    client.all_reduce(f32(1), mass=1)
                over.set()
                # What has failed once stays failed.
                with self.assertRaises(TransportError):
                    client.all_reduce(f32(1), mass=1)
        self.assertEqual(caught.exception.code, "deadline")
        self.assertIn("round 0 of rank 1", str(caught.exception))

    def test_nobody_there(self):
        with self.assertRaises(TransportError) as caught:
            tierfold.connect("127.0.0.1:9", 0, 1, salt=SALT, join_timeout=0.3)
        self.assertEqual(caught.exception.code, "unreachable")
        self.assertIn("the relay of rank 0 at 127.0.0.1:9", str(caught.exception))

    def test_an_interrupt_ends_the_client(self):
        def script(connection):
            admit(connection)
            read_exactly(connection, 4)
            self.assertLess(len(read_exactly(connection, 2**20)), 2**20)

        values = np.zeros(2**20, dtype=np.float32)
        with Peer(script) as peer:
            client = connect(peer)
            with mock.patch.object(client._link, "has_input", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    client.all_reduce(values, mass=1)
            with self.assertRaisesRegex(TransportError, "interrupted in mid-round"):
                client.all_reduce(values, mass=1)

    def test_a_broadcast_of_nobody_leaves_tensors_and_client_alone(self):
        def script(connection):
            admit(connection)
            for weight in (0, 1):
                read_frame(connection)
                answer = make_frame("control", weight, [((1,), f32(4).tobytes())])
                connection.sendall(prefixed(answer))

        values = f32(3)
        with Peer(script) as peer, connect(peer) as client:
            with self.assertRaises(WireError) as caught:
                client.broadcast(values, root=2)
            self.assertEqual(caught.exception.code, "membership")
            self.assertEqual(values[0], 3)
            client.broadcast(values, root=2)
        self.assertEqual(values[0], 4)

    def test_restoring(self):
        def script(connection):
            admit(connection)
            for weight in (0, 12):
                header, frame = read_frame(connection)
                self.assertEqual((header.kind, header.weight), ("control", 0))
                self.assertEqual(frame[header.tensors[0].at :][:4], bytes(4))
                answer = make_frame("control", weight, [((1,), f32(4).tobytes())])
                connection.sendall(prefixed(answer))

        values = f32(3)
        with Peer(script) as peer, connect(peer) as client:
            self.assertEqual(client.restore_consensus(values), 0)
            self.assertEqual(values[0], 3)
            self.assertEqual(client.restore_consensus(values), 12)
        self.assertEqual(values[0], 4)


class Arguments(unittest.TestCase):
    def test_what_cannot_be(self):
        good = {"relay": "127.0.0.1:9", "rank": 1, "world_size": 3, "salt": SALT}
        rows = [
            ({"relay": ""}, "nobody names the relay of this host"),
            ({"relay": "localhost"}, "expected HOST:PORT"),
            ({"relay": "::1:7"}, "IPv6 address in brackets"),
            ({"relay": "a:0"}, "expected HOST:PORT"),
            ({"relay": "a:65536"}, "expected HOST:PORT"),
            ({"rank": 3}, "the rank is 3 by its options, not below the world size of 3"),
            ({"rank": -1}, "the rank is -1"),
            ({"world_size": 0}, "the world size is 0"),
            ({"salt": b"short"}, "the salt has 5 bytes, expected 16"),
            ({"salt": "ab"}, "expected the session salt as 32 hex digits, got 2 characters"),
            ({"salt": bytes(range(16))}, "the salt: the session salt could be guessed"),
            ({"join_timeout": 0}, "join_timeout 0"),
            ({"round_timeout": float("nan")}, "round_timeout nan"),
            ({"salt_file": "x"}, "both a salt and a salt file"),
        ]
        for change, text in rows:
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                tierfold.connect(**{**good, **change})
            self.assertIn(text, str(caught.exception))

    def test_where_the_salt_comes_from(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "salt")
            with open(path, "w") as file:
                file.write(f"{SALT.hex()}\n")
            find = tierfold._options.find_salt
            rows = [
                ({}, (SALT, None)),
                ({}, (SALT.hex().upper(), None)),
                ({}, (None, path)),
                ({"TIERFOLD_SALT": f" {SALT.hex()} "}, (None, None)),
                ({"TIERFOLD_SALT_FILE": path}, (None, None)),
                ({"TIERFOLD_SALT": "00" * 16}, (None, path)),
            ]
            for env, given in rows:
                with mock.patch.dict(os.environ, env, clear=True):
                    self.assertEqual(find(*given), SALT)
            wrong = [
                ({}, "the session salt is missing"),
                ({"TIERFOLD_SALT": "00" * 15}, "TIERFOLD_SALT: expected"),
                ({"TIERFOLD_SALT_FILE": path + "x"}, "cannot be read"),
                ({"TIERFOLD_SALT_FILE": path, "TIERFOLD_SALT": "aa" * 16}, "are both set"),
                ({"TIERFOLD_SALT_FILE": __file__}, "expected 32 hex digits, got a larger file"),
            ]
            for env, text in wrong:
                with mock.patch.dict(os.environ, env, clear=True):
                    with self.assertRaises(ValueError) as caught:
                        find(None, None)
                self.assertIn(text, str(caught.exception))
                self.assertNotIn("aaaa", str(caught.exception))

    def test_salts_that_could_be_guessed(self):
        weakness = tierfold._salt.salt_weakness
        rows = [
            (bytes(16), "count or repeat"),
            (bytes(range(0, 160, 10)), "count or repeat"),
            (bytes.fromhex("0917f3a2") * 4, "repeats itself after 4 bytes"),
            (bytes.fromhex("09f3aa17c409f3c417aa0909aaf3c417"), "no more than 5 different bytes"),
            (b"correct-horse-42", "text"),
            (b"correct!horse.xy", "text"),
        ]
        for salt, text in rows:
            self.assertIn(text, weakness(salt) or "nothing")
        self.assertIsNone(weakness(SALT))

    def test_masses(self):
        rows = [(0, 1, 0), (-1, 0, 0), (4, 1, 4), (4, 0.5, 2), (4, 0, 1), (0, 0, 0)]
        for steps, gamma, mass in rows:
            self.assertEqual(tierfold.gamma_mass(steps, gamma), mass)
        self.assertEqual([tierfold.mover_mass(n) for n in (0, 1, 9)], [0, 1, 1])
        with self.assertRaises(ValueError):
            tierfold.gamma_mass(float("nan"))
        with self.assertRaises(ValueError):
            tierfold.gamma_mass(1, float("inf"))


if __name__ == "__main__":
    unittest.main()
