"""The wire's formats against the golden vectors, and against damage."""

import random
import unittest

from tierfold import WireError, _frame, _wire
from tierfold._limits import MAX_REFUSAL_BYTES, TAG_BYTES

from .vectors import SALT, bad, content, f64, good

CEILING = 1024**3

# The index's reason, as a code and as words that the error must contain.
REASONS = {
    "MAC": ("mac", "MAC"),
    "magic": ("magic", "magic 0x"),
    "truncated": ("truncated", "truncated"),
    "tensor count above 65536": ("tensor-count", "is above 65536"),
    "unknown round kind": ("kind", "unknown round kind"),
    "weight not finite and non-negative": ("weight", "is not finite and non-negative"),
    "frame ceiling, before any such allocation": ("ceiling", "above the frame ceiling of"),
}


def encode(header, frame, salt):
    """A frame anew, from its header and the data of ``frame``."""
    layout = _frame.layout_frame([tensor.shape for tensor in header.tensors])
    parts = [_frame.encode_start(header.kind, header.weight, len(layout))]
    for tensor in layout:
        parts.append(_frame.encode_tensor_header(tensor))
        parts.append(frame[tensor.at : tensor.at + tensor.nbytes])
    signed = b"".join(parts)
    return signed + _wire.tag64(salt, signed)


class FrameVectors(unittest.TestCase):
    def test_decode_and_encode_back(self):
        vectors = good("round_frame")
        self.assertEqual(len(vectors), 17)
        for vector in vectors:
            with self.subTest(vector["file"]):
                frame, salt = content(vector["file"]), bytes.fromhex(vector["salt"])
                header = _frame.decode_frame(frame, salt, CEILING)
                self.assertEqual(header.kind, vector["kind"])
                self.assertEqual(header.weight, f64(vector["weight_f64le"]))
                self.assertEqual(header.length, vector["bytes"])
                shapes = [tuple(tensor["shape"]) for tensor in vector["tensors"]]
                self.assertEqual([tensor.shape for tensor in header.tensors], shapes)
                for tensor, wanted in zip(header.tensors, vector["tensors"]):
                    self.assertEqual(tensor.dtype, _frame.DTYPE_F32)
                    data = frame[tensor.at : tensor.at + tensor.nbytes]
                    self.assertEqual(data.hex(), wanted.get("f32le", data.hex()))
                self.assertEqual(encode(header, frame, salt), frame)

    def test_bad_ones_are_refused_with_the_reason_of_the_index(self):
        vectors = [vector for vector in bad("round_frame") if "at the fold" not in vector["error"]]
        self.assertEqual(len(vectors), 10)
        for vector in vectors:
            with self.subTest(vector["file"]):
                code, words = REASONS[vector["error"]]
                with self.assertRaises(WireError) as caught:
                    salt = bytes.fromhex(vector["salt"])
                    _frame.decode_frame(content(vector["file"]), salt, CEILING)
                self.assertEqual(caught.exception.code, code)
                self.assertIn(words, str(caught.exception))

    def test_what_the_fold_refuses_does_not_fit_an_answer(self):
        for vector, code in zip(
            [vector for vector in bad("round_frame") if "at the fold" in vector["error"]],
            ["shape", "dtype"],
        ):
            with self.subTest(vector["file"]):
                salt = bytes.fromhex(vector["salt"])
                header = _frame.decode_frame(content(vector["file"]), salt, CEILING)
                wanted = _frame.layout_frame([header.tensors[0].shape])
                with self.assertRaises(WireError) as caught:
                    _frame.check_answer(header, header.kind, wanted, ["embed"], "reading it")
                self.assertEqual(caught.exception.code, code)
                self.assertIn("embed", str(caught.exception))


class FrameDamage(unittest.TestCase):
    def test_cut_at_every_offset(self):
        for vector in good("round_frame"):
            frame, salt = content(vector["file"]), bytes.fromhex(vector["salt"])
            header = _frame.decode_frame(frame, salt, CEILING)
            headers_end = header.tensors[-1].at if header.tensors else 0
            # A long frame is cut in its headers, and near its end.
            ends = [end for end in range(len(frame)) if end < 2000 or end > len(frame) - 20]
            for end in ends:
                with self.assertRaises(WireError) as caught:
                    _frame.decode_frame(frame[:end], salt, CEILING)
                # Inside the headers a cut cannot be told from a changed byte: the error says both.
                either = 25 <= end < headers_end
                self.assertEqual(caught.exception.code, "mac" if either else "truncated")
                self.assertIn("truncated", str(caught.exception))

    def test_with_something_behind_it(self):
        for vector in good("round_frame"):
            frame, salt = content(vector["file"]), bytes.fromhex(vector["salt"])
            for more in (b"\0", frame):
                with self.assertRaises(WireError) as caught:
                    _frame.decode_frame(frame + more, salt, CEILING)
                self.assertEqual(caught.exception.code, "trailing")

    def test_every_bit_flipped(self):
        frame = content("round_model_a.bin")
        for bit in range(8 * len(frame)):
            flipped = bytearray(frame)
            flipped[bit // 8] ^= 1 << bit % 8
            with self.assertRaises(WireError, msg=f"bit {bit}"):
                _frame.decode_frame(flipped, SALT, CEILING)

    def test_noise(self):
        noise = random.Random(1)
        start = content("round_model_a.bin")[:17]
        for length in range(400):
            for front in (b"", start):
                with self.assertRaises(WireError):
                    _frame.decode_frame(front + noise.randbytes(length), SALT, CEILING)

    def test_layouts_that_the_format_cannot_say(self):
        for shapes, words in (
            ([(1,)] * 65_537, "65537 tensors"),
            ([(1,) * 256], "tensor 0 has 256 dims"),
            ([(2**32,)], "the dim 4294967296"),
            ([(2**15, 2**15, 4)], "use several rounds"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                _frame.layout_frame(shapes)


class SmallFormats(unittest.TestCase):
    def test_handshake(self):
        (vector,) = good("rank_handshake")
        encoded = _wire.encode_handshake(vector["rank"], vector["world"])
        self.assertEqual(encoded, content(vector["file"]))

    def test_answer(self):
        (vector,) = good("rank_handshake_ack")
        answer = content(vector["file"])
        _wire.decode_ack(answer)
        for end in range(len(answer)):
            with self.assertRaises(WireError) as caught:
                _wire.decode_ack(answer[:end])
            self.assertEqual(caught.exception.code, "truncated")
        for bit in range(8 * len(answer)):
            flipped = bytearray(answer)
            flipped[bit // 8] ^= 1 << bit % 8
            with self.assertRaises(WireError) as caught:
                _wire.decode_ack(flipped)
            self.assertEqual(caught.exception.code, "magic" if bit < 32 else "version")

    def test_length_prefix(self):
        for vector in good("len_framed"):
            framed = content(vector["file"])
            payload = b"" if vector["payload"] is None else content(vector["payload"])
            self.assertEqual(_wire.encode_length(len(payload)) + payload, framed)
            self.assertEqual(_wire.decode_length(framed, CEILING), len(payload))
        for end in range(4):
            with self.assertRaises(WireError):
                _wire.decode_length(b"\0" * end, CEILING)
        with self.assertRaises(WireError) as caught:
            _wire.decode_length(_wire.encode_length(101), 100)
        self.assertEqual(caught.exception.code, "ceiling")

    def test_refusal_note(self):
        text = "the reason: é".encode()
        note = b"\xff\xff\xff\xff" + len(text).to_bytes(4, "little")
        note += _wire.tag64(SALT, text) + text
        self.assertTrue(_wire.is_refusal(note))
        self.assertFalse(_wire.is_refusal(b"\xff\xff\xff"))
        self.assertEqual(_wire.refusal_text_length(note), len(text))
        self.assertEqual(_wire.decode_refusal(note, SALT), text.decode())
        self.assertIsNone(_wire.decode_refusal(note, bytes(16)))
        for end in range(len(note)):
            self.assertIsNone(_wire.decode_refusal(note[:end], SALT))
        for bit in range(8 * len(note)):
            flipped = bytearray(note)
            flipped[bit // 8] ^= 1 << bit % 8
            self.assertIsNone(_wire.decode_refusal(flipped, SALT))
        long = (
            b"\xff\xff\xff\xff" + (MAX_REFUSAL_BYTES + 1).to_bytes(4, "little") + b"\0" * TAG_BYTES
        )
        self.assertIsNone(_wire.refusal_text_length(long))


if __name__ == "__main__":
    unittest.main()
