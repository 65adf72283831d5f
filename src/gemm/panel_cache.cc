#include "gemm/panel_cache.h"

#include "base/check.h"

namespace plait {

PanelCache::PanelCache() : state_(std::make_unique<State>()) {}
PanelCache::PanelCache(PanelCache&&) noexcept = default;
PanelCache& PanelCache::operator=(PanelCache&&) noexcept = default;
PanelCache::~PanelCache() = default;

void PanelCache::forget() { state().forget(); }

std::size_t PanelCache::held_bytes() const { return state_ == nullptr ? 0 : state_->held_bytes(); }

PanelCache::State& PanelCache::state() const {
  PLAIT_CHECK(state_ != nullptr, "matmul: panel_cache has been moved to another PanelCache");
  return *state_;
}

bool PanelCache::State::has_all(Range panels) const {
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    if (!has(panel)) return false;
  }
  return true;
}

void PanelCache::State::forget() {
  memory_ = {};
  packed_.clear();
}

void PanelCache::State::check(const WeightView& weight, std::int64_t k) const {
  if (packed_.empty()) return;
  const ConstTensorView& kept = weight_.view;
  const ConstTensorView& view = weight.view;
  const bool is_same = kept.data == view.data && kept.dtype == view.dtype &&
                       kept.rows == view.rows && kept.cols == view.cols &&
                       kept.row_stride == view.row_stride && weight_.layout == weight.layout;
  PLAIT_CHECK(is_same && k_ == k, "matmul: panel_cache holds panels of the ", name(kept.dtype),
              " weight at ", kept.data, ", but the weight is the ", name(view.dtype), " one at ",
              view.data, "; forget() is for the next");
}

void PanelCache::State::prepare(const WeightView& weight, std::int64_t k) {
  if (!packed_.empty()) return;
  const std::int64_t panels = gemm::panels_of(weight.n());
  const gemm::Storage storage = gemm::storage_of(weight.view.dtype);
  weight_ = weight;
  k_ = k;
  memory_ = gemm::PanelMemory(static_cast<std::size_t>(panels) * gemm::panel_bytes(storage, k));
  packed_.assign(static_cast<std::size_t>(panels), 0);
}

}  // namespace plait
