#include "verify/check.h"

#include <algorithm>
#include <array>
#include <cfenv>
#include <chrono>
#include <span>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/fingerprint.h"
#include "tensor/compare.h"

namespace plait::verify {
namespace {

// The floating-point modes of a rank's thread when it makes a call.
struct FloatMode {
  int rounding = FE_TONEAREST;
  bool flushes = false;  // denormal results become 0, and denormal operands count as 0

  bool operator==(const FloatMode&) const = default;
};

constexpr std::array<FloatMode, 5> kFloatModes = {{{},
                                                   {.flushes = true},
                                                   {.rounding = FE_UPWARD},
                                                   {.rounding = FE_DOWNWARD},
                                                   {.rounding = FE_TOWARDZERO, .flushes = true}}};

class InFloatMode {
 public:
  explicit InFloatMode(const FloatMode& mode) {
    std::fegetenv(&before_);
    std::fesetround(mode.rounding);
    if (mode.flushes) base::set_float_control(base::float_control() | base::kFlushDenormals);
  }
  InFloatMode(const InFloatMode&) = delete;
  InFloatMode& operator=(const InFloatMode&) = delete;
  ~InFloatMode() { std::fesetenv(&before_); }

  // True if the thread is still in this mode.
  static bool holds(const FloatMode& mode) {
    const base::FloatControl flushing = mode.flushes ? base::kFlushDenormals : 0;
    return (base::float_control() & base::kFlushDenormals) == flushing &&
           std::fegetround() == mode.rounding;
  }

 private:
  std::fenv_t before_;
};

constexpr std::int64_t kMostProducts = 400'000;

std::string guards(const Results& results) {
  for (const Result& one : results) {
    if (!one.matrix.is_intact()) return base::sentence("bytes around ", one.name, " were written");
  }
  return {};
}

std::uint64_t digest_of(const std::vector<Results>& calls) {
  std::uint64_t digest = base::fingerprint(std::string_view());
  for (const Results& call : calls) {
    for (const Result& result : call) {
      const ConstTensorView view = result.matrix.view();
      for (std::int64_t row = 0; row < view.rows; ++row)
        digest = base::fingerprint(
            std::span(static_cast<const std::byte*>(view.row(row)), view.row_bytes()), digest);
    }
  }
  return digest;
}

}  // namespace

Findings Subject::check(const Spoil& spoil) {
  spoil_ = spoil;
  const std::vector<Results> serial = run_and_spoil(0);
  std::string failure;
  for (const Results& call : serial) note(failure, guards(call));
  note(failure, check_serial(serial));
  for (std::size_t variant = 1; variant <= variants(); ++variant) {
    const std::vector<Results> calls = run_and_spoil(variant);
    for (std::size_t call = 0; call < calls.size(); ++call) {
      std::string found = guards(calls[call]);
      for (std::size_t i = 0; i < calls[call].size(); ++i) {
        const Result& got = calls[call][i];
        note(found, same(got.name, got.matrix.view(), "serial", serial[call][i].matrix.view()));
      }
      note(failure, found, place_of(variant, call));
    }
  }
  note(failure, aside_);
  return {.failure = failure, .as_one = as_one_, .digest = digest_of(serial)};
}

std::vector<Results> Subject::run_and_spoil(std::size_t variant) {
  std::vector<Results> calls = run(variant);
  for (const Results& call : calls) this->spoil(variant, call);
  return calls;
}

void Subject::note(std::string& failure, const std::string& found, const std::string& place) {
  if (failure.empty() && !found.empty()) failure = place + found;
}

std::string Subject::same(const char* what, const ConstTensorView& got, const char* from,
                          const ConstTensorView& want) {
  const tensor::BitComparison result = tensor::same_bits(got, want);
  return result ? std::string()
                : base::sentence(what, " differs from ", from, ": ", result.describe());
}

std::string Subject::compare(const Result& result, const Samples& samples,
                             const std::function<Wanted(std::int64_t row, std::int64_t col)>& at) {
  const ConstTensorView got = result.matrix.view();
  const std::int64_t elements = got.rows * got.cols;
  const std::int64_t count = std::min(
      elements, std::clamp<std::int64_t>(kMostProducts / samples.products, 1, samples.most));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t one =
        count == elements
            ? i
            : static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(elements));
    const std::int64_t row = one / got.cols;
    const std::int64_t col = one % got.cols;
    const std::string wrong = at(row, col).what_is_wrong_with(element(got, row, col));
    if (!wrong.empty()) return base::sentence(result.name, '[', row, ", ", col, "] ", wrong);
  }
  return {};
}

bool Subject::call_in_some_mode(const std::function<void()>& call) {
  if (delays_) delay(3000);
  const FloatMode mode = modes_ ? kFloatModes[random_() % kFloatModes.size()] : FloatMode{};
  const InFloatMode in_mode(mode);
  call();
  return InFloatMode::holds(mode);
}

void Subject::delay(std::uint64_t most) {
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % most));
}

}  // namespace plait::verify
