#include "measure/exchange_case.h"

#include "comm/core/timed_product.h"
#include "comm/session/state.h"
#include "ops/shapes.h"
#include "plait/columns.h"
#include "tensor/fill.h"
#include "ulysses/columns.h"

namespace plait::measure {
namespace {

constexpr std::uint64_t kSeed = 3;

// The product of a rank. Ulysses has own rows and a whole weight; gathered columns have all rows
// and a weight with own outputs.
OpSize own_size(const ExchangeSetup& what, const OpSize& whole, const Communicator& comm) {
  const auto share = [&](std::int64_t count) {
    return ops::share_of(count, comm.rank(), comm.world());
  };
  if (what.family == Family::columns) return {whole.m, share(whole.n), whole.k};
  return {share(whole.m), whole.n, whole.k};
}

}  // namespace

ExchangeCase::ExchangeCase(const OpSetup& setup, const ExchangeSetup& what, const OpSize& size,
                           const Communicator& comm)
    : setup_(setup),
      is_gather_(what.family == Family::columns),
      product_first_(what.product_first),
      size_(size),
      groups_(what.columns(size, comm.world())),
      rank_(comm.rank()),
      own_columns_(ulysses::count_of(groups_[static_cast<std::size_t>(rank_)])),
      own_(problem_of(setup, own_size(what, size, comm)), comm) {
  const Dtype dtype = product_first_ ? setup.out : setup.x;
  columns_ = Buffer::for_tensor(dtype, size.m, width(), {.huge_pages = true});
  tensor::fill_random(columns(), kSeed + static_cast<std::uint64_t>(rank_));
}

std::int64_t ExchangeCase::width() const {
  if (!is_gather_) return own_columns_;
  return product_first_ ? size_.n : size_.k;
}

TensorView ExchangeCase::columns() const {
  return columns_.view(product_first_ ? setup_.out : setup_.x, size_.m, width());
}

double ExchangeCase::bytes_on_link() const {
  const auto rows =
      is_gather_ ? size_.m : ops::share_of(size_.m, 0, static_cast<int>(groups_.size()));
  return static_cast<double>(rows * ulysses::most_of(groups_)) *
         static_cast<double>(size_of(columns().dtype));
}

void ExchangeCase::Runner::call() {
  const OpSetup& setup = case_.setup_;
  const ConstTensorView x = case_.own_.x();
  const Weight weight = case_.own_.weight();
  const TensorView columns = case_.columns();
  if (case_.is_gather_) {
    const ColumnsOptions options = {
        .threads = setup.threads, .backend = setup.backend, .plan = plan_};
    if (case_.product_first_) return matmul_all_gather_columns(x, weight, columns, comm_, options);
    // This rank's columns are in their place.
    const ColumnRange own = case_.groups_[static_cast<std::size_t>(case_.rank_)].front();
    return all_gather_columns_matmul(columns.column_range(own.first, own.first + own.count), weight,
                                     columns, case_.own_.out(), comm_, options);
  }
  const UlyssesOptions options = {
      .plan = plan_, .threads = setup.threads, .backend = setup.backend};
  if (case_.product_first_)
    return matmul_all_to_all(x, weight, case_.groups_, columns, comm_, options);
  all_to_all_matmul(columns, weight, case_.groups_, case_.own_.out(), comm_, options);
}

void ExchangeCase::Runner::run(std::optional<double> ns_per_flop) {
  if (!ns_per_flop) return call();
  comm::TimedProduct product(*ns_per_flop);
  const comm::ScopedExecutor scoped(comm_.state().group(), product);
  call();
}

}  // namespace plait::measure
