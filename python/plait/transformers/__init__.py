"""Hugging Face's tensor parallelism with plait's layers.

    import plait.transformers

    plait.transformers.enable()
    model = AutoModelForCausalLM.from_pretrained(
        name, distributed_config=DistributedConfig(tp_size=2)
    )
    model.generate(**inputs)

`enable()` puts styles under the names of theirs ("colwise", "rowwise", ...) for models that are
loaded from then on. Sharded loading, saving, plans and `generate()` stay as they are. A module or a
call that plait does not serve is left to their code, and one sentence a reason is logged.
"""

from plait import _package

with _package.needs_extra("transformers"):
    from plait.transformers.decode import Part, TokenProfile, profile
    from plait.transformers.service import Report
    from plait.transformers.swap import disable, enable, enabled, report

__all__ = [
    "Part",
    "Report",
    "TokenProfile",
    "disable",
    "enable",
    "enabled",
    "profile",
    "report",
]
