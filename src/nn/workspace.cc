#include "nn/workspace.h"

#include <algorithm>
#include <memory>
#include <typeinfo>

#include "comm/state.h"

namespace plait::nn {

Workspace& Workspace::of(Communicator& comm) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(Workspace));
  if (kept == nullptr) kept = std::make_shared<Workspace>();
  return *static_cast<Workspace*>(kept.get());
}

TensorView Workspace::gathered(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return room_in(gathered_, dtype, rows, cols);
}

TensorView Workspace::partial(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return room_in(partial_, dtype, rows, cols);
}

TensorView Workspace::summed(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return room_in(summed_, dtype, rows, cols);
}

TensorView Workspace::room_in(Buffer& buffer, Dtype dtype, std::int64_t rows, std::int64_t cols) {
  const TensorView shape = {.dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols};
  if (shape.bytes() > buffer.bytes()) {
    buffer = Buffer();  // first, so that there are never both
    buffer = Buffer(shape.bytes(), {.huge_pages = true});
  }
  return buffer.view(dtype, rows, cols);
}

Gemm& Workspace::gemm(const GemmDesc& desc, const GemmOptions& options) {
  const auto found = std::find_if(products_.begin(), products_.end(), [&](const Product& one) {
    return one.desc == desc && one.options.backend == options.backend &&
           one.options.threads == options.threads;
  });
  if (found != products_.end()) {
    std::rotate(found, found + 1, products_.end());
  } else {
    products_.push_back({desc, options, select_gemm(desc, options)});
    if (products_.size() > kProducts) products_.erase(products_.begin());
  }
  return products_.back().gemm;
}

Communicator& Workspace::beside(Communicator& comm) {
  if (!beside_) beside_ = comm.split(0, comm.rank());
  return *beside_;
}

std::size_t Workspace::bytes() const {
  std::size_t bytes = gathered_.bytes() + partial_.bytes() + summed_.bytes();
  for (const Product& one : products_) bytes += one.gemm.held_bytes();
  return bytes;
}

}  // namespace plait::nn
