"""The one way in which plait says that something went wrong."""

from typing import NoReturn

from plait._native import Code


class Error(RuntimeError):
    """One sentence that names the operator, the ranks and the values.

    >>> from plait import Code, Error
    >>> error = Error(Code.peer_lost, "all_reduce: rank 3 was killed", culprit=3)
    >>> error.code.name, error.culprit, str(error)
    ('peer_lost', 3, 'all_reduce: rank 3 was killed')

    `culprit` is the rank that is to blame, and `operator` the call that failed, where they are
    known. A call that does not fit the signature raises TypeError instead. An object that is
    no array where there should be one raises this error.
    """

    def __init__(
        self, code: Code, sentence: str, *, culprit: int | None = None, operator: str | None = None
    ) -> None:
        if code is Code.timeout and "timeout" not in sentence and "timed out" not in sentence:
            sentence += "; the timeout has passed"  # programs look for the word
        super().__init__(sentence)
        self.code = code
        self.culprit = culprit
        self.operator = operator

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are pickled by their arguments, which leave out what is known by keyword.
        return (_restored, (self.code, str(self), self.culprit, self.operator))


def _restored(code: Code, sentence: str, culprit: int | None, operator: str | None) -> Error:
    return Error(code, sentence, culprit=culprit, operator=operator)


def refuse(operator: str, sentence: str) -> NoReturn:
    """Raise Error: an operator was called with something that it can't take."""
    raise Error(Code.invalid_argument, f"{operator}: {sentence}", operator=operator)
