#include "heads/checks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fingerprint.h"
#include "base/parallel.h"
#include "plait/packed_weight.h"
#include "quant/scheme.h"
#include "tensor/validate.h"

namespace plait::heads {

void check_operands(const char* name, const ConstTensorView& x, const Weight& weight,
                    const VocabularyOptions& options) {
  PLAIT_CHECK(x.device == kCpu, name, ": x is on ", plait::name(x.device),
              "; it computes on the CPU alone");
  PLAIT_CHECK(x.cols == weight.k(), name, ": x has ", x.cols,
              " columns, but the weight has k=", weight.k());
  tensor::validate_on_cpu(x, base::sentence(name, ": x"));
  const std::string the_weight = base::sentence(name, ": the weight");
  if (weight.is_packed()) {
    PLAIT_CHECK(weight.packed().bytes() > 0 || weight.n() == 0 || weight.k() == 0, the_weight,
                " has been moved to another PackedWeight");
  } else {
    tensor::validate_on_cpu(weight.view().view, the_weight);
    quant::check_layout(weight.layout(), the_weight);
  }
  PLAIT_CHECK(options.vocab_size >= -1, name, ": vocab_size is ", options.vocab_size);
  PLAIT_CHECK(options.first_id >= -1, name, ": first_id is ", options.first_id);
  PLAIT_CHECK(options.logits != Dtype::s8, name, ": logits can't be s8");
  base::check_threads(options.threads, name);
}

void check_size(const char* name, const char* what, std::size_t size, std::int64_t wanted) {
  PLAIT_CHECK(size == static_cast<std::size_t>(wanted), name, ": ", what, " has ", size,
              " elements, not ", wanted);
}

void check_options(const char* name, const CrossEntropyOptions& options) {
  PLAIT_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, name,
              ": label_smoothing is ", options.label_smoothing, "; it must be from 0 to 1");
  PLAIT_CHECK(options.z_loss - options.z_loss == 0, name, ": z_loss is ", options.z_loss);
}

void check_targets(const char* name, std::span<const std::int64_t> targets, std::int64_t vocabulary,
                   std::int64_t ignored) {
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const std::int64_t target = targets[row];
    PLAIT_CHECK(target == ignored || (target >= 0 && target < vocabulary), name, ": the target ",
                target, " of row ", row, " is no id of a vocabulary of ", vocabulary);
  }
}

std::int64_t own_columns(std::int64_t share, std::int64_t first, std::int64_t vocab_size) {
  return vocab_size < 0 ? share : std::clamp<std::int64_t>(vocab_size - first, 0, share);
}

std::int64_t fingerprint_of(const CrossEntropyOptions& options) {
  const std::array<std::int64_t, 4> values = {static_cast<std::int64_t>(options.vocabulary.logits),
                                              std::bit_cast<std::int32_t>(options.label_smoothing),
                                              std::bit_cast<std::int32_t>(options.z_loss),
                                              options.ignored_target};
  return std::bit_cast<std::int64_t>(base::fingerprint(values));
}

std::int64_t fingerprint_of(std::span<const std::int64_t> targets) {
  return std::bit_cast<std::int64_t>(base::fingerprint(targets));
}

std::int64_t fingerprint_of(std::span<const float> numbers) {
  std::vector<std::int64_t> bits;
  bits.reserve(numbers.size());
  for (const float number : numbers) bits.push_back(std::bit_cast<std::int32_t>(number));
  return fingerprint_of(bits);
}

}  // namespace plait::heads
