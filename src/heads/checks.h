// The checks of a call, before anything is written.
#pragma once

#include <cstdint>
#include <span>

#include "plait/vocabulary.h"

namespace plait::heads {

// A product's operands, for a call with this name.
void check_operands(const char* name, const ConstTensorView& x, const Weight& weight,
                    const VocabularyOptions& options);

void check_size(const char* name, const char* what, std::size_t size, std::int64_t wanted);

void check_options(const char* name, const CrossEntropyOptions& options);

// Each is an id below `vocabulary`, or is ignored.
void check_targets(const char* name, std::span<const std::int64_t> targets, std::int64_t vocabulary,
                   std::int64_t ignored);

// The columns of this rank that are no padding.
std::int64_t own_columns(std::int64_t share, std::int64_t first, std::int64_t vocab_size);

// Options, targets and numbers as one number each, for comparing those of ranks.
std::int64_t fingerprint_of(const CrossEntropyOptions& options);
std::int64_t fingerprint_of(std::span<const std::int64_t> targets);
std::int64_t fingerprint_of(std::span<const float> numbers);

}  // namespace plait::heads
