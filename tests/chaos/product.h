// A random operator, with random sizes and plan, whose result is known without a reference: all
// elements of x are the rank's number plus one, and all elements of the weight are one.
#pragma once

#include "chaos/random.h"
#include "ops/shapes.h"
#include "plait/buffer.h"
#include "plait/ops.h"

namespace plait::chaos {

class Product {
 public:
  // Collective. `shared` has the same state on all ranks.
  Product(Communicator& comm, Random& shared);

  Operator op() const { return op_.desc().op; }

  // Collective. Throws std::runtime_error if the result is wrong.
  void run();

 private:
  struct Problem {
    OpDesc desc;
    Plan plan;
  };
  static Problem make_problem(Random& shared);

  Product(Communicator& comm, const Problem& problem);

  std::int64_t count(ops::Rows rows) const;

  // The value in every column of a row of the result.
  float expected(std::int64_t row) const;

  int rank_, world_;
  Problem problem_;
  Buffer x_, weight_, out_;
  Op op_;
};

}  // namespace plait::chaos
