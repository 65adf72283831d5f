// Why the driver can't be used.
#pragma once

#include <string>

#include "base/check.h"

namespace plait::overlap {

// Versions as CUDA counts them: 13000 is 13.0, and a driver of 0 is none. Empty: it can be used.
inline std::string refusal_of_driver(int driver, int needed) {
  const auto version = [](int number) {
    return base::sentence(number / 1000, '.', number % 1000 / 10);
  };
  if (driver == 0) return "there is no driver for NVIDIA GPUs here";
  if (driver >= needed) return {};
  return base::sentence("the driver is for CUDA ", version(driver), ", and plait needs one for ",
                        version(needed), " or later");
}

}  // namespace plait::overlap
