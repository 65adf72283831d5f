// The working memory of all layers of one communicator. They run one after another and share it:
// rows and sums are as large as the largest layer needs, and products are kept while there is room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plait/buffer.h"
#include "plait/communicator.h"
#include "plait/gemm.h"

namespace plait::nn {

// Memory for a shape, whose rows may have gaps between them, in a buffer that grows if it has to.
TensorView room_in(Buffer& buffer, const TensorView& shape);

class Workspace {
 public:
  static Workspace& of(Communicator& comm);

  // Undefined contents, until they are asked for again. A shape is a view without data.
  TensorView gathered(const TensorView& shape);
  TensorView partial(Dtype dtype, std::int64_t rows, std::int64_t cols);
  TensorView summed(Dtype dtype, std::int64_t rows, std::int64_t cols);

  // Ready for the next product of its kind.
  Gemm& gemm(const GemmDesc& desc, const GemmOptions& options);

  // A communicator of the same ranks for a collective that runs during an operator: two calls of
  // one communicator would wait for each other. Collective, the first time.
  Communicator& beside(Communicator& comm);

  std::size_t bytes() const;
  std::size_t mailbox_bytes() const;  // of beside()

 private:
  struct KeptProduct {
    GemmDesc desc;
    GemmOptions options;
    Gemm gemm;
  };

  // The one that was used for longest ago goes first.
  static constexpr std::size_t kProducts = 32;
  static constexpr std::size_t kProductBytes = std::size_t{1} << 30;
  std::size_t product_bytes() const;

  Buffer gathered_;
  Buffer partial_;
  Buffer summed_;
  std::vector<KeptProduct> products_;  // the last used at the end
  std::optional<Communicator> beside_;
};

}  // namespace plait::nn
