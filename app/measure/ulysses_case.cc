#include "measure/ulysses_case.h"

#include "comm/core/timed_product.h"
#include "comm/session/state.h"
#include "ops/shapes.h"
#include "tensor/fill.h"
#include "ulysses/columns.h"

namespace plait::measure {
namespace {

constexpr std::uint64_t kSeed = 3;

OpSize own_size(const OpSize& whole, const Communicator& comm) {
  return {ops::share_of(whole.m, comm.rank(), comm.world()), whole.n, whole.k};
}

}  // namespace

UlyssesCase::UlyssesCase(const OpSetup& setup, const UlyssesSetup& what, const OpSize& size,
                         const Communicator& comm)
    : setup_(setup),
      product_first_(what.product_first),
      size_(size),
      groups_(what.columns(size, comm.world())),
      rank_(comm.rank()),
      own_columns_(ulysses::count_of(groups_[static_cast<std::size_t>(rank_)])),
      own_(problem_of(setup, own_size(size, comm)), comm) {
  const Dtype dtype = product_first_ ? setup.out : setup.x;
  columns_ = Buffer::for_tensor(dtype, size.m, own_columns_, {.huge_pages = true});
  tensor::fill_random(columns(), kSeed + static_cast<std::uint64_t>(rank_));
}

TensorView UlyssesCase::columns() const {
  return columns_.view(product_first_ ? setup_.out : setup_.x, size_.m, own_columns_);
}

double UlyssesCase::bytes_on_link() const {
  const auto rows = ops::share_of(size_.m, 0, static_cast<int>(groups_.size()));
  return static_cast<double>(rows * ulysses::most_of(groups_)) *
         static_cast<double>(size_of(columns().dtype));
}

void UlyssesCase::Runner::run(std::optional<double> ns_per_flop) {
  const OpSetup& setup = case_.setup_;
  const UlyssesOptions options = {
      .plan = plan_, .threads = setup.threads, .backend = setup.backend};
  const auto call = [&] {
    if (case_.product_first_) {
      matmul_all_to_all(case_.own_.x(), case_.own_.weight(), case_.groups_, case_.columns(), comm_,
                        options);
    } else {
      const TensorView out = case_.own_.out();
      all_to_all_matmul(case_.columns(), case_.own_.weight(), case_.groups_, out, comm_, options);
    }
  };
  if (!ns_per_flop) return call();
  comm::TimedProduct product(*ns_per_flop);
  const comm::ScopedExecutor scoped(comm_.state().group(), product);
  call();
}

}  // namespace plait::measure
