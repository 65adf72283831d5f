#include "nn/workspace.h"

#include <algorithm>
#include <memory>
#include <typeinfo>

#include "comm/session/state.h"

namespace plait::nn {

Workspace& Workspace::of(Communicator& comm) {
  std::shared_ptr<void>& kept = comm.state().kept(typeid(Workspace));
  if (kept == nullptr) kept = std::make_shared<Workspace>();
  return *static_cast<Workspace*>(kept.get());
}

TensorView Workspace::gathered(const TensorView& shape) { return room_in(gathered_, shape); }

TensorView Workspace::partial(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return room_in(partial_, {.dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols});
}

TensorView Workspace::summed(Dtype dtype, std::int64_t rows, std::int64_t cols) {
  return room_in(summed_, {.dtype = dtype, .rows = rows, .cols = cols, .row_stride = cols});
}

TensorView room_in(Buffer& buffer, const TensorView& shape) {
  TensorView lines = shape;
  lines.cols = shape.row_stride;
  if (lines.bytes() > buffer.bytes()) {
    buffer = Buffer();  // first, so that there are never both
    buffer = Buffer(lines.bytes(), {.huge_pages = true});
  }
  TensorView room = buffer.view(shape.dtype, shape.rows, shape.row_stride);
  room.cols = shape.cols;
  return room;
}

Gemm& Workspace::gemm(const GemmDesc& desc, const GemmOptions& options) {
  const auto found = std::find_if(products_.begin(), products_.end(), [&](const KeptProduct& one) {
    return one.desc == desc && one.options.backend == options.backend &&
           one.options.threads == options.threads;
  });
  if (found != products_.end()) {
    std::rotate(found, found + 1, products_.end());
  } else {
    // The size of products is known once they have run: those before this one have.
    while (products_.size() >= kProducts || (!products_.empty() && product_bytes() > kProductBytes))
      products_.erase(products_.begin());
    products_.push_back({desc, options, select_gemm(desc, options)});
  }
  return products_.back().gemm;
}

Communicator& Workspace::beside(Communicator& comm) {
  // NOLINTNEXTLINE(bugprone-unchecked-optional-access): only a color below 0 has no group
  return beside_ ? *beside_ : beside_.emplace(comm.split(0, comm.rank()).value());
}

std::size_t Workspace::mailbox_bytes() const { return beside_ ? beside_->mailbox_bytes() : 0; }

std::size_t Workspace::product_bytes() const {
  std::size_t bytes = 0;
  for (const KeptProduct& one : products_) bytes += one.gemm.held_bytes();
  return bytes;
}

std::size_t Workspace::bytes() const {
  return gathered_.bytes() + partial_.bytes() + summed_.bytes() + product_bytes();
}

}  // namespace plait::nn
