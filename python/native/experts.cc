// The work of experts beside their products: finding where rows go, the activation between two
// products, and the sum of a token's results. plait.torch.experts calls it with tensors' memory.
//
// Torch's own loops end a row, or a thread's part of all rows, with other instructions than they
// began it, so that their bits depend on how many rows there are. Here the bits of a row depend on
// the row alone. Sums and products are f32, and nothing is fused (see CMakeLists.txt).
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/default_floats.h"
#include "base/parallel.h"
#include "native.h"
#include "plait/dtype.h"
#include "plait/error.h"
#include "plait/tensor_view.h"

// Loops over elements, compiled for longer vectors too: without fused operations all give the same
// bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PLAIT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLAIT_CLONES
#endif

namespace plait::python {
namespace {

// Rows of fewer elements are not worth a thread.
constexpr std::int64_t kLeastElements = 1 << 14;
constexpr std::int64_t kMostParts = 64;

// Addresses of tensors whose elements have no Dtype: ids and places are int64.
template <class T>
T* memory_at(std::uintptr_t number) {
  return reinterpret_cast<T*>(number);  // NOLINT(performance-no-int-to-ptr)
}

struct Gate {
  bool interleaved = false;  // gate and up alternate; otherwise the gate is the first half
  float alpha = 1;           // the gate is g * sigmoid(alpha * g)
  // The gate is at most this, and up lies between -limit and limit.
  float limit = std::numeric_limits<float>::infinity();
  float added = 0;  // to up
};

// e^x with an error of some units in the last place; 0 and infinity where f32 ends.
inline float exp_of(float x) {
  constexpr float kShift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to whole numbers
  x = x < -87.0F ? -87.0F : x;           // a NaN stays one
  x = x > 88.8F ? 88.8F : x;
  const float shifted = x * 1.44269504F + kShift;
  const float whole = shifted - kShift;
  const float r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000U);
}

inline float sigmoid_of(float x) { return 1.0F / (1.0F + exp_of(-x)); }

// `step`: 1, or 2 where gate and up alternate; compilers know it where these are called.
inline __attribute__((always_inline)) void gate_steps(const float* __restrict gates,
                                                      const float* __restrict ups,
                                                      std::int64_t step, float* __restrict out,
                                                      std::int64_t n, const Gate& by) {
  const float limit = by.limit;
  for (std::int64_t i = 0; i < n; ++i) {
    float g = gates[i * step];
    float u = ups[i * step];
    g = g > limit ? limit : g;
    u = u > limit ? limit : u;
    u = u < -limit ? -limit : u;
    out[i] = (u + by.added) * (g * sigmoid_of(by.alpha * g));
  }
}

PLAIT_CLONES void gate_row(const float* row, float* out, std::int64_t n, const Gate& by) {
  if (by.interleaved) {
    gate_steps(row, row + 1, 2, out, n, by);
  } else {
    gate_steps(row, row + n, 1, out, n, by);
  }
}

inline __attribute__((always_inline)) void gradient_steps(
    const float* __restrict gates, const float* __restrict ups, const float* __restrict grads,
    std::int64_t step, float* __restrict grad_gates, float* __restrict grad_ups, std::int64_t n,
    const Gate& by) {
  const float limit = by.limit;
  for (std::int64_t i = 0; i < n; ++i) {
    const float g0 = gates[i * step];
    const float u0 = ups[i * step];
    const float g = g0 > limit ? limit : g0;
    float u = u0 > limit ? limit : u0;
    u = u < -limit ? -limit : u;
    const float s = sigmoid_of(by.alpha * g);
    const float of_gate = (grads[i] * (u + by.added)) * (s * (1.0F + (by.alpha * g) * (1.0F - s)));
    const float of_up = grads[i] * (g * s);
    grad_gates[i * step] = g0 > limit ? 0.0F : of_gate;
    grad_ups[i * step] = u0 > limit || u0 < -limit ? 0.0F : of_up;
  }
}

PLAIT_CLONES void gate_gradient_row(const float* row, const float* grads, float* out,
                                    std::int64_t n, const Gate& by) {
  if (by.interleaved) {
    gradient_steps(row, row + 1, grads, 2, out, out + 1, n, by);
  } else {
    gradient_steps(row, row + n, grads, 1, out, out + n, n, by);
  }
}

PLAIT_CLONES void add_row(const float* __restrict row, float weight, float* __restrict sum,
                          std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) sum[i] = sum[i] + row[i] * weight;
}

PLAIT_CLONES void scale_row(const float* __restrict row, float weight, float* __restrict out,
                            std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = row[i] * weight;
}

// Sixteen sums side by side, added in pairs.
PLAIT_CLONES float dot_of(const float* __restrict a, const float* __restrict b, std::int64_t n) {
  constexpr std::int64_t kLanes = 16;
  std::array<float, kLanes> sums = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (std::int64_t lane = 0; i + lane < n; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  return sums[0];
}

// A row's elements as f32: the row itself, or a copy in `memory`.
const float* floats_of(const ConstTensorView& x, std::int64_t row, std::vector<float>& memory) {
  const void* from = x.row(row);
  if (x.dtype == Dtype::f32) return static_cast<const float*>(from);
  memory.resize(x.cols);
  convert(from, x.dtype, memory.data(), Dtype::f32, x.cols);
  return memory.data();
}

// The place for a row's f32 elements: the row itself, or `memory`, from which put_row() takes them.
float* room_for(const TensorView& x, std::int64_t row, std::vector<float>& memory) {
  if (x.dtype == Dtype::f32) return static_cast<float*>(x.row(row));
  memory.resize(x.cols);
  return memory.data();
}

void put_row(const TensorView& x, std::int64_t row, const float* from) {
  if (x.dtype != Dtype::f32) convert(from, Dtype::f32, x.row(row), x.dtype, x.cols);
}

// Calls body(first, end) for parts of the rows.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t cols, int threads, Body&& body) {
  const base::DefaultFloats floats;  // of one part, too, which runs on the caller's thread
  const std::int64_t parts = std::min({rows, rows * cols / kLeastElements, kMostParts});
  if (parts <= 1) return body(std::int64_t{0}, rows);
  base::parallel_for(parts, threads, [&](std::int64_t part) {
    body(rows * part / parts, rows * (part + 1) / parts);
  });
}

void check(bool holds, const std::string& words) {
  if (!holds) throw Error(Code::invalid_argument, words);
}

void gate(const ConstTensorView& x, const TensorView& out, const Gate& by, int threads) {
  check(x.cols == 2 * out.cols && x.rows == out.rows && x.dtype == out.dtype,
        "experts: rows of a gate don't fit");
  for_rows(x.rows, x.cols, threads, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> read, written;
    for (std::int64_t row = first; row < end; ++row) {
      const float* from = floats_of(x, row, read);
      float* to = room_for(out, row, written);
      gate_row(from, to, out.cols, by);
      put_row(out, row, to);
    }
  });
}

void gate_gradient(const ConstTensorView& x, const ConstTensorView& grad, const TensorView& out,
                   const Gate& by, int threads) {
  check(x.cols == 2 * grad.cols && x.rows == grad.rows && out.rows == x.rows && out.cols == x.cols,
        "experts: rows of a gate's gradient don't fit");
  for_rows(x.rows, x.cols, threads, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> read, read_grad, written;
    for (std::int64_t row = first; row < end; ++row) {
      const float* from = floats_of(x, row, read);
      float* to = room_for(out, row, written);
      gate_gradient_row(from, floats_of(grad, row, read_grad), to, grad.cols, by);
      put_row(out, row, to);
    }
  });
}

// A token's slots: places[token * slots + j] is the row of y that has the result of slot j, or -1.
struct Slots {
  const std::int64_t* places;
  const float* weights;  // null: 1
  std::int64_t slots;

  std::int64_t place(std::int64_t token, std::int64_t j) const { return places[token * slots + j]; }
  float weight(std::int64_t token, std::int64_t j) const {
    return weights == nullptr ? 1.0F : weights[token * slots + j];
  }
};

// The sum of each token's rows in the order of its slots, in f32, rounded once.
void combine(const ConstTensorView& y, const Slots& by, const TensorView& out, int threads) {
  check(y.cols == out.cols && y.dtype == out.dtype, "experts: rows of a sum don't fit");
  for_rows(out.rows, out.cols * by.slots, threads, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> read;
    std::vector<float> sum(out.cols);
    for (std::int64_t token = first; token < end; ++token) {
      std::fill(sum.begin(), sum.end(), 0.0F);
      for (std::int64_t j = 0; j < by.slots; ++j) {
        const std::int64_t place = by.place(token, j);
        if (place < 0) continue;
        add_row(floats_of(y, place, read), by.weight(token, j), sum.data(), out.cols);
      }
      convert(sum.data(), Dtype::f32, out.row(token), out.dtype, out.cols);
    }
  });
}

// The gradients of combine(): of y's rows, and of the weights if there is room for them.
void combine_gradient(const ConstTensorView& grad, const ConstTensorView& y, const Slots& by,
                      const TensorView& grad_y, float* grad_weights, int threads) {
  check(grad.cols == grad_y.cols && grad.dtype == grad_y.dtype,
        "experts: rows of a sum's gradient don't fit");
  for_rows(grad.rows, grad.cols * by.slots, threads, [&](std::int64_t first, std::int64_t end) {
    std::vector<float> read, read_y, written;
    for (std::int64_t token = first; token < end; ++token) {
      const float* from = floats_of(grad, token, read);
      for (std::int64_t j = 0; j < by.slots; ++j) {
        const std::int64_t place = by.place(token, j);
        if (grad_weights != nullptr) {
          grad_weights[token * by.slots + j] =
              place < 0 ? 0.0F : dot_of(from, floats_of(y, place, read_y), grad.cols);
        }
        if (place < 0) continue;
        float* to = room_for(grad_y, place, written);
        scale_row(from, by.weight(token, j), to, grad.cols);
        put_row(grad_y, place, to);
      }
    }
  });
}

// Sorts slots by the bins of their experts, keeping their order within one: `rows` gets the tokens
// of those that have an expert, and `places` says for every slot where in `rows` it is, or -1.
std::vector<std::int64_t> route(const std::int64_t* ids, std::int64_t tokens, std::int64_t slots,
                                const std::vector<std::int64_t>& bin_of, std::int64_t bins,
                                std::int64_t* rows, std::int64_t* places,
                                const std::string& caller) {
  std::vector<std::int64_t> counts(bins, 0);
  const auto experts = std::ssize(bin_of);
  for (std::int64_t i = 0; i < tokens * slots; ++i) {
    if (ids[i] == -1) continue;
    check(ids[i] >= 0 && ids[i] < experts, caller + ": row " + std::to_string(i / slots) +
                                               " asks for expert " + std::to_string(ids[i]) +
                                               ", and there are " + std::to_string(experts));
    ++counts[bin_of[ids[i]]];
  }
  std::vector<std::int64_t> next(bins, 0);
  for (std::int64_t bin = 1; bin < bins; ++bin) next[bin] = next[bin - 1] + counts[bin - 1];
  for (std::int64_t i = 0; i < tokens * slots; ++i) {
    places[i] = ids[i] == -1 ? -1 : next[bin_of[ids[i]]]++;
    if (places[i] >= 0) rows[places[i]] = i / slots;
  }
  return counts;
}

}  // namespace

void bind_experts(nb::module_& m) {
  nb::class_<Gate>(m, "_Gate")
      .def(
          "__init__",
          [](Gate* self, bool interleaved, float alpha, float limit, float added) {
            new (self) Gate{interleaved, alpha, limit, added};
          },
          nb::kw_only(), nb::arg("interleaved") = false, nb::arg("alpha") = 1.0F,
          nb::arg("limit") = std::numeric_limits<float>::infinity(), nb::arg("added") = 0.0F);
  m.def(
      "_gate",
      [](const TensorView& x, const TensorView& out, const Gate& by, int threads) {
        unlocked([&] { gate(x, out, by, threads); });
      },
      nb::arg("x"), nb::arg("out"), nb::arg("by"), nb::arg("threads"));
  m.def(
      "_gate_gradient",
      [](const TensorView& x, const TensorView& grad, const TensorView& out, const Gate& by,
         int threads) { unlocked([&] { gate_gradient(x, grad, out, by, threads); }); },
      nb::arg("x"), nb::arg("grad"), nb::arg("out"), nb::arg("by"), nb::arg("threads"));
  m.def(
      "_combine",
      [](const TensorView& y, std::uintptr_t places, std::uintptr_t weights, std::int64_t slots,
         const TensorView& out, int threads) {
        const Slots by = {memory_at<const std::int64_t>(places), memory_at<const float>(weights),
                          slots};
        unlocked([&] { combine(y, by, out, threads); });
      },
      nb::arg("y"), nb::arg("places"), nb::arg("weights"), nb::arg("slots"), nb::arg("out"),
      nb::arg("threads"));
  m.def(
      "_combine_gradient",
      [](const TensorView& grad, const TensorView& y, std::uintptr_t places, std::uintptr_t weights,
         std::int64_t slots, const TensorView& grad_y, std::uintptr_t grad_weights, int threads) {
        const Slots by = {memory_at<const std::int64_t>(places), memory_at<const float>(weights),
                          slots};
        unlocked([&] {
          combine_gradient(grad, y, by, grad_y, memory_at<float>(grad_weights), threads);
        });
      },
      nb::arg("grad"), nb::arg("y"), nb::arg("places"), nb::arg("weights"), nb::arg("slots"),
      nb::arg("grad_y"), nb::arg("grad_weights"), nb::arg("threads"));
  m.def(
      "_route",
      [](std::uintptr_t ids, std::int64_t tokens, std::int64_t slots,
         const std::vector<std::int64_t>& bin_of, std::int64_t bins, std::uintptr_t rows,
         std::uintptr_t places, const std::string& caller) {
        return route(memory_at<const std::int64_t>(ids), tokens, slots, bin_of, bins,
                     memory_at<std::int64_t>(rows), memory_at<std::int64_t>(places), caller);
      },
      nb::arg("ids"), nb::arg("tokens"), nb::arg("slots"), nb::arg("bin_of"), nb::arg("bins"),
      nb::arg("rows"), nb::arg("places"), nb::arg("caller"));
}

}  // namespace plait::python
