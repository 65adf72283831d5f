// The weight of a linear layer: k inputs, n outputs, and an explicit layout.
//
//   const plait::WeightView w{.view = view, .layout = WeightLayout::out_in};  // [n, k]: Megatron's
//   plait::matmul_all_reduce(x, w, y, comm);
//
//   const plait::PackedWeight packed(w);            // plait/packed_weight.h
//   plait::matmul_all_reduce(x, packed, y, comm);   // a Weight is made of either
//
// Nothing is ever guessed from shapes: a square weight has a layout too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "plait/export.h"
#include "plait/quant_scheme.h"
#include "plait/tensor_view.h"

namespace plait {

class PackedWeight;

enum class WeightLayout : std::uint8_t {
  out_in,  // [n, k]: a row per output
  in_out,  // [k, n]: a row per input
};

PLAIT_EXPORT std::string_view name(WeightLayout layout);

// A plain weight in memory that the caller owns: f32, bf16 or f16.
struct WeightView {
  ConstTensorView view;
  WeightLayout layout;

  std::int64_t n() const { return layout == WeightLayout::out_in ? view.rows : view.cols; }
  std::int64_t k() const { return layout == WeightLayout::out_in ? view.cols : view.rows; }

  // A view of the same elements with inputs and outputs exchanged, as a gradient's product needs
  // it.
  WeightView turned() const {
    const bool out_in = layout == WeightLayout::out_in;
    return {.view = view, .layout = out_in ? WeightLayout::in_out : WeightLayout::out_in};
  }
};

// The properties of a weight besides its sizes. All ranks of a call have the same kind.
struct WeightKind {
  Dtype dtype = Dtype::bf16;               // ignored if there is a scheme
  std::optional<QuantScheme> scheme = {};  // if quantised, and therefore packed
  bool is_packed = scheme.has_value();

  bool operator==(const WeightKind& other) const {
    return scheme == other.scheme && is_packed == other.is_packed &&
           (scheme.has_value() || dtype == other.dtype);
  }
};

// The name in a PlanKey: "bf16:plain" for a weight that each call packs again; "bf16" and
// "s8:group=128" for packed weights.
PLAIT_EXPORT std::string name(const WeightKind& kind);

// The weight operand of a call: a plain weight or a packed one. It borrows either, and is passed by
// value. The packed weight must not be moved or destroyed while this is used.
class PLAIT_EXPORT Weight {
 public:
  // NOLINTBEGIN(google-explicit-constructor): every call takes either
  Weight(const WeightView& view) : view_(view) {}
  Weight(const PackedWeight& weight) : packed_(&weight) {}
  Weight(const PackedWeight&& temporary) = delete;
  // NOLINTEND(google-explicit-constructor)

  std::int64_t n() const;
  std::int64_t k() const;
  Dtype dtype() const;  // s8 where it is quantised, with 4 bits too
  std::optional<QuantScheme> scheme() const;
  WeightKind kind() const;

  bool is_packed() const { return packed_ != nullptr; }

  // Each is for its own kind; Error{invalid_argument} for the other.
  const WeightView& view() const;
  WeightLayout layout() const { return view().layout; }
  const PackedWeight& packed() const;

 private:
  WeightView view_ = {.view = {}, .layout = WeightLayout::out_in};
  const PackedWeight* packed_ = nullptr;
};

static_assert(std::is_trivially_copyable_v<Weight>);

}  // namespace plait
