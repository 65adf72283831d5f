// The loops over a row of logits, compiled once for each instruction set that makes them faster.
//
// All sets give the same bits: they have the same operations, each of them rounded as IEEE 754
// says, and sums that are exact.
#pragma once

#include <cstdint>
#include <span>

#include "base/instruction_set.h"

namespace plait::heads {

// Sums of at most so many exponentials are exact.
inline constexpr std::int64_t kExact = 512;

// A sum of exponentials has so many parts, and a part the numbers of so many binary exponents. The
// first part has the largest numbers.
inline constexpr int kParts = 4;
inline constexpr int kExponents = 16;

// A logit beyond this counts as this. Its row's sum is then the largest logit itself, to which no
// sum of others adds as much as a unit of its last place.
inline constexpr double kMostLogit = 0x1p30;

inline constexpr double kMostInMean = 65536;
inline constexpr double kInMean = 0x1p-24;  // the unit of logits in a mean

struct Extent {
  float largest;
  bool has_nan;
};

// The exponentials exp(x), each rounded to f32 and multiplied by 2^-scale, are added to the part
// that they belong to: from 1 on, from 2^-16 on, and so on. Lower ones are left out.
struct PartSums {
  std::int64_t scale;
  double parts[kParts];
};

// out = round_to_f32(scale · exp(x - shift) + offset), computed in f64
struct Softmax {
  double shift;
  double scale;
  double offset;
};

struct Loops {
  const char* name;
  base::InstructionSet needs;

  Extent (*extent)(const float* x, std::int64_t n);
  void (*add_exponentials)(const float* x, std::int64_t n, PartSums& sums);  // n <= kExact
  double (*sum)(const float* x, std::int64_t n);  // as in CrossEntropyOptions; n <= kExact
  void (*softmax)(const Softmax& how, const float* x, std::int64_t n, float* out);

  // Says whether an element is not below the bound, as NaNs are not.
  bool (*reaches)(const float* x, std::int64_t n, float bound);
};

const Loops& portable_loops();

// Every set that was compiled, best first; the last is usable everywhere.
std::span<const Loops* const> loop_sets();

// The best that this processor can run.
const Loops& loops();

// The binary exponent of exp(x), x at most kMostLogit in size, as the loops round it.
std::int64_t exponent_of(double x);

// ln(x) for finite x above 0, by operations that IEEE 754 defines.
double logarithm(double x);

}  // namespace plait::heads
