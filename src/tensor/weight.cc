#include "plait/weight.h"

namespace plait {

std::string_view name(WeightLayout layout) {
  return layout == WeightLayout::out_in ? "out_in" : "in_out";
}

}  // namespace plait
