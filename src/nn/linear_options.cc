#include "plait/linear.h"

namespace plait {

LinearOptions linear_options(const Settings& settings, const PlanSource& plans) {
  return {.recompute_all_gather = settings.recompute_all_gather,
          .column_backward = settings.column_backward,
          .aligned_packing = settings.aligned_packing,
          .operators = {.wire = settings.wire,
                        .plans = &plans,
                        .threads = settings.threads,
                        .backend = settings.backend}};
}

}  // namespace plait
