#include "verify/other_sums.h"

#include <algorithm>
#include <cstring>

#include "plait/tensor_view.h"
#include "tensor/in_pairs.h"
#include "verify/operands.h"
#include "verify/random.h"

namespace plait::verify {
namespace {

// Small sums are done as soon as all ranks have started them. The chunks of a large one find room
// only when ranks take earlier ones.
std::int64_t random_count(Random& random) {
  return random.one_in(4) ? random.between(200'000, 400'000) : random.between(1, 20'000);
}

}  // namespace

class OtherSums::Sum {
 public:
  Sum(Communicator& comm, std::uint64_t seed)
      : comm_(comm), seed_(seed), mine_(values_of(comm.rank())), sum_(mine_.size()) {}

  void start() {
    pending_.emplace(
        start_all_reduce({mine_.data(), mine_.size()}, {sum_.data(), sum_.size()}, comm_));
  }
  void progress() {
    if (pending_) pending_->progress();
  }
  void wait() {
    if (pending_) pending_->wait();
  }

  bool is_right() const {
    std::vector<std::vector<float>> parts;
    parts.reserve(static_cast<std::size_t>(comm_.world()));
    for (int rank = 0; rank < comm_.world(); ++rank) parts.push_back(values_of(rank));
    const std::vector<float> want = tensor::added_in_pairs(std::move(parts));
    return std::memcmp(sum_.data(), want.data(), want.size() * sizeof(float)) == 0;
  }

 private:
  std::vector<float> values_of(int rank) const {
    Random random(seed_, 0);
    std::vector<float> values(static_cast<std::size_t>(random_count(random)));
    const auto count = static_cast<std::int64_t>(values.size());
    fill(
        {.data = values.data(), .dtype = Dtype::f32, .rows = 1, .cols = count, .row_stride = count},
        Numbers::wide, seed_ * 64 + static_cast<std::uint64_t>(rank));
    return values;
  }

  Communicator& comm_;
  std::uint64_t seed_;
  std::vector<float> mine_;
  std::vector<float> sum_;
  std::optional<Pending> pending_;
};

OtherSums::OtherSums(Communicator& comm)
    : comms_{comm.split(0, -comm.rank()), comm.split(0, comm.rank() % 2)} {}

OtherSums::~OtherSums() = default;

void OtherSums::make(std::uint64_t seed) {
  sums_.clear();
  for (std::optional<Communicator>& comm : comms_) {
    const std::uint64_t number = seed * comms_.size() + sums_.size();
    if (comm) sums_.push_back(std::make_unique<Sum>(*comm, number));
  }
}

void OtherSums::start(std::mt19937_64& random) {
  std::shuffle(sums_.begin(), sums_.end(), random);
  for (const auto& sum : sums_) sum->start();
}

void OtherSums::progress() {
  for (const auto& sum : sums_) sum->progress();
}

void OtherSums::wait_for_some(std::mt19937_64& random) {
  for (const auto& sum : sums_) {
    if (random() % 3 == 0) sum->wait();
  }
}

void OtherSums::wait_for_all(std::mt19937_64& random) {
  std::shuffle(sums_.begin(), sums_.end(), random);
  for (const auto& sum : sums_) sum->wait();
}

bool OtherSums::are_right() const {
  return std::all_of(sums_.begin(), sums_.end(), [](const auto& sum) { return sum->is_right(); });
}

}  // namespace plait::verify
