import argparse
import contextlib
import os
import tempfile

# A core for each rank, and no messages about vLLM's own settings.
os.environ.setdefault(
    "VLLM_CPU_OMP_THREADS_BIND", "|".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
)
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from vllm import LLM, SamplingParams


def learn_to_count(*, experts: bool) -> LlamaForCausalLM | Qwen3MoeForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64}
    if experts:
        some = {"num_experts": 10, "num_experts_per_tok": 3, "moe_intermediate_size": 96}
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**sizes, **heads, **some))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, intermediate_size=704))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(50):
        tokens = (torch.randint(256, (16, 1)) + torch.arange(16)) % 256
        optimizer.zero_grad()
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--graphs", action="store_true", help="compile the model")
    parser.add_argument("--experts", action="store_true", help="a model of experts")
    parser.add_argument("--folder", help="keep the model there")
    options = parser.parse_args()

    kept = contextlib.nullcontext(options.folder)
    with kept if options.folder else tempfile.TemporaryDirectory() as name:
        model = learn_to_count(experts=options.experts)
        model.save_pretrained(name)  # in place of a model that you have
        llm = LLM(
            name,
            tensor_parallel_size=2,
            enable_expert_parallel=options.experts,  # each rank has half of them
            dtype=options.dtype,
            enforce_eager=not options.graphs,
            skip_tokenizer_init=True,
            max_model_len=256,
            kv_cache_memory_bytes=2**26,  # otherwise most of the memory
            worker_extension_cls="plait.vllm.WorkerReport",  # only to print the report below
        )
    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    done = llm.generate({"prompt_token_ids": [5, 6, 7]}, sampling, use_tqdm=False)
    print(list(done[0].outputs[0].token_ids))
    print(llm.collective_rpc("plait_report")[0])


if __name__ == "__main__":  # vLLM starts its workers from this file
    main()
