"""numpy arrays and torch tensors: what is sent of them, and how results are written into them."""

import unittest

import numpy as np

from tierfold import _tensors
from tierfold.state import _from_limbs, _to_limbs, average_state_dict

try:
    import torch
except ImportError:
    torch = None


def one(value):
    (tensor,) = _tensors.normalize({"embed": value})
    return tensor


class NumpyArrays(unittest.TestCase):
    def test_names(self):
        array = np.zeros(2, np.float32)
        names = [
            [t.name for t in _tensors.normalize(x)] for x in (array, [array] * 2, {"a": array})
        ]
        self.assertEqual(names, [["tensor 0"], ["tensor 0", "tensor 1"], ["a"]])
        self.assertEqual(_tensors.normalize([]), [])

    def test_f32_in_place_without_a_copy(self):
        array = np.arange(6, dtype=np.float32).reshape(2, 3)
        tensor = one(array)
        self.assertTrue(np.shares_memory(tensor.values(), array))
        self.assertEqual(tensor.shape, (2, 3))
        tensor.store(np.ones(6, np.float32))
        self.assertTrue((array == 1).all())

    def test_other_floats_and_layouts_through_a_copy(self):
        whole = np.arange(12, dtype=np.float32).reshape(3, 4)
        for array in (
            whole[:, 1:3],
            whole.T,
            np.asfortranarray(whole),
            whole.astype(">f4"),
            whole.astype(np.float64),
            whole.astype(np.float16),
            whole[::-1],
        ):
            tensor = one(array)
            wanted = np.array(array, dtype=np.float32).reshape(-1)
            np.testing.assert_array_equal(tensor.values(), wanted)
            tensor.store(wanted * 2)
            np.testing.assert_array_equal(array, (wanted * 2).reshape(array.shape))

    def test_scalars_and_nothing(self):
        scalar = np.array(2, dtype=np.float32)
        tensor = one(scalar)
        self.assertEqual((tensor.shape, list(tensor.values())), ((), [2]))
        tensor.store(np.array([5], np.float32))
        self.assertEqual(scalar, 5)
        empty = one(np.zeros((0, 3), np.float64))
        self.assertEqual((empty.shape, empty.values().size), ((0, 3), 0))
        empty.store(np.zeros(0, np.float32))

    def test_what_cannot_be_sent_is_named(self):
        fixed = np.zeros(2, np.float32)
        fixed.flags.writeable = False
        rows = [
            (np.zeros(2, np.int64), TypeError, "dtype int64, expected floats"),
            (np.zeros(2, bool), TypeError, "dtype bool"),
            (np.zeros(2, complex), TypeError, "dtype complex128"),
            (fixed, ValueError, "the array is read-only"),
            ([1.0], TypeError, "expected a numpy array or a torch tensor, got list"),
            (np.float32(1), TypeError, "expected a numpy array or a torch tensor, got float32"),
        ]
        for value, error, text in rows:
            with self.subTest(text), self.assertRaises(error) as caught:
                one(value)
            self.assertIn(f"sending embed: {text}", str(caught.exception))
        for value in (3, "weights", None):
            with self.assertRaises(TypeError):
                _tensors.normalize(value)


class Integers(unittest.TestCase):
    def test_all_of_64_bits_survive_as_floats(self):
        for dtype in ("i1", "i8", "u1", "u4", "u8", ">i4"):
            info = np.iinfo(dtype)
            values = np.array([info.min, info.min + 1, 0, 1, info.max - 1, info.max], dtype)
            limbs = _to_limbs(values)
            self.assertEqual((limbs.dtype, limbs.shape), (np.float32, (3, 6)))
            np.testing.assert_array_equal(_from_limbs(limbs, values.dtype), values)
        scalar = np.array(-7)
        self.assertEqual(_from_limbs(_to_limbs(scalar), scalar.dtype), -7)

    def test_what_cannot_be_averaged_is_named(self):
        rows = [
            ({"z": np.zeros(1, complex)}, {}, TypeError, "averaging z: complex numbers"),
            (
                {"n": np.array(1)},
                {"integers": lambda _: "mean"},
                ValueError,
                "averaging n: policy 'mean'",
            ),
            ({}, {"steps": -1}, ValueError, "-1 steps"),
        ]
        for state, options, error, text in rows:
            with self.subTest(text), self.assertRaises(error) as caught:
                average_state_dict(None, state, **{"steps": 1, **options})
            self.assertIn(text, str(caught.exception))


@unittest.skipIf(torch is None, "torch is not installed")
class TorchTensors(unittest.TestCase):
    def test_f32_in_place_without_a_copy(self):
        for value in (torch.arange(6.0).reshape(2, 3), torch.nn.Parameter(torch.zeros(2, 3))):
            tensor = one(value)
            self.assertEqual(tensor.shape, (2, 3))
            self.assertEqual(tensor.values().ctypes.data, value.data_ptr())
            tensor.store(np.ones(6, np.float32))
            self.assertTrue(bool((value == 1).all()))

    def test_other_floats_and_layouts_through_a_copy(self):
        whole = torch.arange(12.0).reshape(3, 4)
        parameter = torch.nn.Parameter(whole.clone().t())
        for value in (
            whole[:, 1:3],
            whole.t(),
            parameter,
            whole.double(),
            whole.half(),
            whole.bfloat16(),
        ):
            tensor = one(value)
            wanted = value.detach().float().contiguous().numpy().reshape(-1).copy()
            np.testing.assert_array_equal(tensor.values(), wanted)
            tensor.store(wanted * 2)
            got = value.detach().float().contiguous().numpy().reshape(-1)
            np.testing.assert_array_equal(got, wanted * 2)

    def test_what_cannot_be_sent_is_named(self):
        for value in (
            torch.zeros(2, dtype=torch.int64),
            torch.zeros(2, dtype=torch.complex64),
            torch.zeros(2).to_sparse(),
        ):
            with self.assertRaises(TypeError) as caught:
                one(value)
            self.assertIn("sending embed: ", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
