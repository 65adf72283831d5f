"""plait.Error: one class, whichever module raises it."""

import pickle

import numpy as np
import pytest

import plait


def test_what_cpp_throws_has_code_and_operator() -> None:
    with plait.Communicator.connect() as comm:
        with pytest.raises(plait.Error) as caught:
            plait.all_reduce(np.zeros(3), comm)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.code is plait.Code.invalid_argument
    assert caught.value.operator == "all_reduce"
    assert caught.value.culprit is None
    assert "float64" in str(caught.value)


def test_a_sentence_about_no_operator_names_none() -> None:
    with pytest.raises(plait.Error, match="nonsense") as caught:
        plait.parse_link("nonsense")
    assert caught.value.operator is None


def test_the_rank_to_blame_is_named() -> None:
    culprits = []

    def body(comm: plait.Communicator) -> None:
        if comm.rank == 1:
            return  # leaves, while the others expect it
        with pytest.raises(plait.Error) as caught:
            plait.barrier(comm)
        culprits.append((caught.value.code, caught.value.culprit))

    plait.run_in_threads(3, body)
    assert culprits == [(plait.Code.peer_lost, 1)] * 2


@pytest.mark.parametrize("sentence", ["barrier: no rank 1", "connect: timed out", "a timeout: 1 s"])
def test_a_timeout_has_the_word(sentence: str) -> None:
    """Programs look for it. A sentence that is raised again gets it once."""
    once = str(plait.Error(plait.Code.timeout, sentence))
    assert once.startswith(sentence)
    assert str(plait.Error(plait.Code.timeout, once)) == once
    assert "timeout" in once or "timed out" in once
    assert str(plait.Error(plait.Code.peer_lost, sentence)) == sentence


def test_a_wrong_call_stays_a_type_error() -> None:
    with plait.Communicator.connect() as comm, pytest.raises(TypeError):
        plait.all_reduce(comm=comm)  # type: ignore[call-arg]


def test_is_pickled_whole() -> None:
    error = plait.Error(plait.Code.mismatch, "broadcast: no", culprit=2, operator="broadcast")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, str(copy), copy.culprit, copy.operator) == (
        plait.Code.mismatch,
        "broadcast: no",
        2,
        "broadcast",
    )
