// Loops over elements that are compiled for longer vectors too; the processor alone chooses, not
// PLAIT_ISA. The bits are the same if a file is compiled with -ffp-contract=off, and its sums have
// an order of their own.
#pragma once

// Sanitizers don't run before the choice between the clones is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLAIT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLAIT_CLONES
#endif
