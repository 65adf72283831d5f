#include "verify/random.h"

#include <algorithm>

namespace plait::verify {

Dtype random_dtype(Random& random) {
  return random.of<Dtype>({Dtype::f32, Dtype::bf16, Dtype::f16});
}

Dtype random_wire(Random& random) {
  return random.of<Dtype>({Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::s8});
}

Numbers random_numbers(Random& random) {
  return random.of<Numbers>(
      {Numbers::usual, Numbers::usual, Numbers::usual, Numbers::wide, Numbers::broken});
}

std::string_view name(Numbers numbers) {
  switch (numbers) {
    case Numbers::usual:
      return "usual";
    case Numbers::wide:
      return "wide";
    case Numbers::broken:
      return "broken";
  }
  return "";
}

std::int64_t random_size(Random& random, std::int64_t most) {
  switch (random.below(10)) {
    case 0:
      return random.one_in(3) ? 0 : 1;
    case 1:
    case 2:
    case 3:
      return random.between(1, 17);
    case 4:
    case 5:
    case 6:
      return random.between(1, std::min<std::int64_t>(most, 130));
    case 7:
      return 64 * random.between(1, std::max<std::int64_t>(1, most / 64));
    default:
      return random.between(1, most);
  }
}

QuantScheme random_scheme(Random& random) {
  const int bits = random.one_in(2) ? 8 : 4;
  const bool offsets = random.one_in(3);
  switch (random.below(3)) {
    case 0:
      return {.bits = bits, .per = QuantPer::tensor, .group = 0, .offsets = offsets};
    case 1:
      return {.bits = bits, .per = QuantPer::channel, .group = 0, .offsets = offsets};
    default:
      return {.bits = bits,
              .per = QuantPer::group,
              .group = random.one_in(2) ? 32 : random.between(1, 140),
              .offsets = offsets};
  }
}

Plan random_plan(Random& random, Operator op) {
  Plan plan;
  const bool fused = has_schedule(op, Schedule::fused) && random.one_in(2);
  plan.schedule = fused ? Schedule::fused : Schedule::pipelined;
  plan.poll = random.of<std::int64_t>({0, 0, 20, 200});
  if (fused) {
    plan.chunk = random.of<std::int64_t>({0, 0, 1, 7, 64, 128, 200});
    return plan;
  }
  plan.parts =
      static_cast<int>(random.of<std::int64_t>({1, 2, 3, 4, 8, 64, random.between(1, 20)}));
  if (is_compute_first(op)) plan.axis = random.of<Axis>({Axis::natural, Axis::rows, Axis::columns});
  if (random.one_in(3)) plan.first = static_cast<int>(random.between(1, 300));
  if (random.one_in(3)) plan.last = static_cast<int>(random.between(1, 300));
  return plan;
}

}  // namespace plait::verify
