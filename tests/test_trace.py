"""Traces: what is accepted, what is refused and how it is named."""

import contextlib

import numpy as np
import pytest

from kdtree import KdtrError, Trace, TraceError, kdtr

LP = np.log(np.float32([0.5, 0.25, 0.125]))


def good():
    """Return arrays of 2 sequences, 4 anchors, L = 2, K = 3."""
    return {
        "prompt": np.zeros((2, 5), np.int16),
        "continuation": np.arange(12).reshape(2, 6),
        "topk_ids": np.tile(np.uint8([3, 1, 2]), (2, 4, 2, 1)),
        "topk_log_probs": np.tile(LP, (2, 4, 2, 1)),
    }


def changed(name, place, value):
    arrays = good()
    arrays[name] = arrays[name].astype(np.int64 if arrays[name].dtype.kind != "f" else arrays[name].dtype)
    arrays[name][place] = value
    return arrays


def test_a_good_trace_is_taken_with_any_integer_type():
    trace = Trace.from_arrays(**good())
    assert (trace.draft_len, trace.K, trace.vocab_size) == (2, 3, None)
    assert trace.anchor_count.tolist() == [4, 4]
    assert trace.prompt_len.tolist() == [5, 5]
    assert repr(trace) == "<Trace of 2 sequences x 4 anchors, L = 2, K = 3>"


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        (
            "topk_log_probs",
            (1, 2, 0, 1),
            np.nan,
            "got nan at sequence 1, anchor 2, depth 1, rank 1, no log-prob; needs",
        ),
        (
            "topk_log_probs",
            (1, 2, 1, 0),
            np.inf,
            "got inf at sequence 1, anchor 2, depth 2, rank 0, no log-prob; needs",
        ),
        ("topk_log_probs", (0, 0, 0, 0), 0.5, "needs finite values of 0 or less"),
        (
            "topk_log_probs",
            (0, 3, 1, 2),
            -0.7,
            "got -0.69.* at sequence 0, anchor 3, depth 2, rank 2, .*rows sorted",
        ),
        (
            "topk_log_probs",
            (0, 3, 1, 0),
            -0.1,
            "got a row at sequence 0, anchor 3, depth 2, .*log-softmax",
        ),
        ("topk_ids", (1, 0, 1, 2), 3, "topk_ids: got 3 at sequence 1, anchor 0, depth 2, rank 2, .*distinct tokens"),
        ("topk_ids", (1, 0, 1, 2), -1, "topk_ids: got token -1 at sequence 1, .0, 1, 2."),
        ("topk_ids", (1, 0, 1, 2), 2**31, "topk_ids: got 2147483648, needs values that fit int32"),
        ("continuation", (0, 2), -5, "continuation: got token -5 at sequence 0"),
        ("prompt", (1, 0), -1, "prompt: got token -1 at sequence 1"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(name, place, value, message):
    with pytest.raises(TraceError, match=message):
        Trace.from_arrays(**changed(name, place, value))


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        (
            "topk_log_probs",
            good()["topk_log_probs"].astype(np.float16),
            "topk_log_probs: got dtype float16, needs float32",
        ),
        ("topk_log_probs", np.zeros((2, 4, 2, 2), np.float32), r"topk_log_probs: got shape \(2, 4, 2, 2\), needs"),
        ("topk_ids", np.zeros((2, 4, 2)), "topk_ids: got dtype float64, needs integers"),
        ("topk_ids", np.zeros((2, 4, 2), int), r"topk_ids, prompt: got shapes \(2, 4, 2\)"),
        ("continuation", np.zeros((2, 3), int), "continuation: got shape"),
        ("continuation", np.zeros(6, int), "continuation: got shape"),
        ("prompt", np.zeros((3, 5), int), "prompt: got shape"),
        ("prompt_len", [5, 6], "prompt_len: got 6 at sequence 1, needs 0 to 5"),
        ("prompt_len", [5], "prompt_len: got shape"),
        ("anchor_count", [5, 4], "anchor_count: got 5 at sequence 0, needs 0 to 4"),
        ("anchor_count", [-1, 4], "anchor_count: got -1"),
        ("metadata", {"vocab_size": "3"}, "continuation: got token 3 at sequence 0"),
        ("metadata", {"vocab_size": "many"}, "metadata vocab_size: got 'many'"),
        ("metadata", {"vocab_size": "9" * 5000}, "metadata vocab_size: got '9999"),
        ("metadata", {"vocab_size": 256}, "metadata: got 'vocab_size': 256, needs strings"),
        ("metadata", {1: "x"}, "metadata: got 1: 'x', needs strings"),
        ("prompt", [[1], [2, 3]], "prompt: got nested lists of unequal length"),
    ],
)
def test_a_bad_array_is_refused_by_name(name, array, message):
    with pytest.raises(TraceError, match=message):
        Trace.from_arrays(**{**good(), name: array})


def test_no_depth_or_no_rank_is_refused():
    with pytest.raises(TraceError, match="L = 0, K = 3"):
        Trace.from_arrays(
            **{**good(), "topk_ids": np.zeros((2, 4, 0, 3), int), "topk_log_probs": np.zeros((2, 4, 0, 3), np.float32)}
        )


def test_what_lies_past_the_real_lengths_is_not_looked_at():
    arrays = changed("topk_log_probs", (1, 3), np.nan)
    arrays["continuation"][1, 3:] = -9
    arrays["prompt"][0, 2:] = -9
    trace = Trace.from_arrays(**arrays, anchor_count=[4, 3], prompt_len=[2, 5])
    assert trace.anchor_count.tolist() == [4, 3]


def test_rows_may_end_in_minus_inf_with_repeated_tokens():
    arrays = changed("topk_log_probs", (0, 0, 0, slice(1, None)), -np.inf)
    arrays["topk_ids"] = arrays["topk_ids"].astype(int)
    arrays["topk_ids"][0, 0, 0] = 3
    Trace.from_arrays(**arrays)


def test_a_trace_survives_kdtr_and_npz(tmp_path):
    trace = Trace.from_arrays(**good(), anchor_count=[4, 2], metadata={"tokens": "bytes", "vocab_size": "258"})
    trace.save(tmp_path / "t.kdtr")
    np.savez(tmp_path / "t.npz", **good(), anchor_count=np.array([4, 2]))
    for path in (tmp_path / "t.kdtr", tmp_path / "t.npz"):
        again = Trace.load(path)
        for name in ("prompt", "continuation", "topk_ids", "topk_log_probs", "prompt_len", "anchor_count"):
            np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    stored = Trace.load(tmp_path / "t.kdtr")
    assert stored.metadata == {"schema": "kdtree.trace/1", "tokens": "bytes", "vocab_size": "258"}
    assert not stored.topk_log_probs.flags.owndata  # mapped, not read


def test_a_loaded_trace_can_be_saved_over_its_own_file(tmp_path):
    path = tmp_path / "t.kdtr"
    Trace.from_arrays(**good()).save(path)
    before, trace = path.read_bytes(), Trace.load(path)
    trace.save(path)
    assert path.read_bytes() == before
    assert trace.topk_ids[0, 0, 0].tolist() == [3, 1, 2]


def test_files_that_are_no_traces_are_refused_by_name(tmp_path):
    (tmp_path / "t.txt").write_text("hello")
    (tmp_path / "t.npz").write_text("hello")
    (tmp_path / "u.kdtr").write_text("hello")
    np.savez(tmp_path / "v.npz", prompt=np.zeros((1, 1), int))
    np.savez(tmp_path / "w.npz", **good(), extra=np.zeros(1))
    np.savez(tmp_path / "x.npz", **{**good(), "prompt": np.array([{}])})
    kdtr.save(tmp_path / "y.kdtr", {**{name: array.astype(np.int32) for name, array in good().items()}})
    for name, error, message in [
        ("t.txt", TraceError, "t.txt: got suffix '.txt', needs .kdtr or .npz"),
        ("t.npz", TraceError, "t.npz: not a readable .npz file"),
        ("u.kdtr", KdtrError, "u.kdtr: "),
        ("v.npz", TraceError, r"v.npz: missing arrays \['continuation', 'topk_ids', 'topk_log_probs'\]"),
        ("w.npz", TraceError, r"w.npz: missing arrays \[\], unknown arrays \['extra'\]"),
        ("x.npz", TraceError, "x.npz: tensor 'prompt'"),
        ("y.kdtr", TraceError, "y.kdtr: topk_log_probs: got dtype int32"),
        ("none.npz", FileNotFoundError, "none.npz"),
        ("none.kdtr", FileNotFoundError, "none.kdtr"),
    ]:
        with pytest.raises(error, match=message):
            Trace.load(tmp_path / name)


@pytest.mark.parametrize("name", Trace.shipped_names())
def test_every_shipped_trace_is_valid(name):
    Trace.shipped(name).validate()


def test_an_unknown_shipped_trace_is_refused():
    with pytest.raises(TraceError, match="name: got 'pilot', needs one of pilot_t05"):
        Trace.shipped("pilot")


def test_tokens_are_shown_as_bytes_only_where_the_metadata_says_so():
    assert Trace.from_arrays(**good()).label(65) == "65"
    shown = Trace.from_arrays(**good(), metadata={"tokens": "bytes"})
    assert (shown.label(65), shown.label(257)) == ("A", "257")


def test_a_damaged_npz_is_a_trace_error_wherever_it_is_damaged(tmp_path):
    path = tmp_path / "t.npz"
    np.savez_compressed(path, **good())
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        with contextlib.suppress(TraceError):  # some bytes do not matter
            Trace.load(path)


def test_a_later_schema_is_refused(tmp_path):
    trace = Trace.from_arrays(**good())
    trace.save(tmp_path / "t.kdtr")
    tensors, metadata = kdtr.load(tmp_path / "t.kdtr")
    kdtr.save(tmp_path / "t.kdtr", tensors, {**metadata, "schema": "kdtree.trace/2"})
    with pytest.raises(TraceError, match="got schema 'kdtree.trace/2', needs 'kdtree.trace/1'"):
        Trace.load(tmp_path / "t.kdtr")


def test_tokens_that_all_fit_a_byte_are_stored_in_one(tmp_path):
    trace = Trace.from_arrays(**{**good(), "prompt": [[256, 1], [2, 3]]})
    trace.save(tmp_path / "t.kdtr")
    stored = {tensor.name: tensor.dtype for tensor in kdtr.inspect(tmp_path / "t.kdtr").tensors}
    assert (stored["prompt"], stored["continuation"], stored["topk_ids"]) == ("i32", "u8", "u8")
    again = Trace.load(tmp_path / "t.kdtr")
    for name in ("prompt", "continuation", "topk_ids", "topk_log_probs"):
        assert getattr(again, name).dtype == getattr(trace, name).dtype
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
