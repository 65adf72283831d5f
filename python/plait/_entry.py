"""The entry point of torch, which loads its backend "plait" here."""

import logging


def torch_backend() -> None:
    """Register the backend, so that `init_process_group("plait")` needs no import of plait.

    torch 2.13 calls it at the end of `import torch`, where an exception would break torch itself:
    it logs instead. It may be called again.
    """
    try:
        import torch.distributed

        if not torch.distributed.is_available():
            return
        if not hasattr(torch.distributed.Backend, "PLAIT"):
            torch.distributed.Backend.register_backend("plait", _create, devices=["cpu"])
    except Exception:
        logging.getLogger("plait").warning(
            "the backend 'plait' of torch.distributed could not be registered", exc_info=True
        )


def _create(*arguments: object) -> object:
    # Imported when the first group is made: `import torch` stays as fast as it was.
    from plait.torch.backend import PlaitProcessGroup

    return PlaitProcessGroup(*arguments)  # type: ignore[arg-type]
