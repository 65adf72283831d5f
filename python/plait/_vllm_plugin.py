"""The entry point of vLLM, which loads its plugin here."""

import logging


def enable() -> None:
    """Let vLLM make plait's layers in the place of its own, in each of its processes.

    An exception would end the process: it logs instead. It may be called again.
    """
    try:
        import plait.vllm

        plait.vllm.enable()
    except Exception:
        logging.getLogger("plait.vllm").warning("vLLM's layers are left as they are", exc_info=True)
