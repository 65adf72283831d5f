// Checks one case on one rank: an operator, or a layer forward and backward. The serial plan comes
// first. Its results must be close to sums in f64, and equal what the rank computes alone. The
// results of every other variant must equal them bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "plait/communicator.h"
#include "verify/case.h"
#include "verify/exact.h"
#include "verify/experts_case.h"
#include "verify/heads_case.h"
#include "verify/layer_case.h"
#include "verify/operands.h"
#include "verify/ulysses_case.h"

namespace plait::verify {

struct Findings {
  std::string failure;       // empty: none
  bool as_one = false;       // a sum over ranks' shares was compared with that of one rank
  std::uint64_t digest = 0;  // of the bits of this rank's serial results
};

// The matrices that a call writes.
struct Result {
  const char* name;
  Guarded matrix;
};
using Results = std::vector<Result>;

// Damages the results of a call, for tests that check whether it is noticed. `variant`: 0 is the
// serial one, then those of the case; kOnOneRank is made by one rank that has everything, and
// kInGroups by a grouped product.
using Spoil = std::function<void(std::size_t variant, const Results& results)>;
inline constexpr std::size_t kOnOneRank = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kInGroups = kOnOneRank - 1;

// The calls of a case, in its variants. It refers to the case.
class Subject {
 public:
  template <class Case>
  Subject(const Case& one, Communicator& comm)
      : comm_(comm),
        random_(one.seed * 31 + static_cast<std::uint64_t>(comm.rank())),
        delays_(one.delays),
        modes_(one.modes) {}
  virtual ~Subject() = default;

  // Collective.
  Findings check(const Spoil& spoil);

 protected:
  // A few elements of a result are compared if it has many, or if they are sums of many products.
  struct Samples {
    std::int64_t most;
    std::int64_t products;  // of an element
  };

  virtual std::size_t variants() const = 0;  // besides the serial one

  // Makes the case's calls in a variant.
  virtual std::vector<Results> run(std::size_t variant) = 0;

  // "with the plan \"fused\": ", before a difference
  virtual std::string place_of(std::size_t variant, std::size_t call) const = 0;

  // Returns the first error in the serial results.
  virtual std::string check_serial(const std::vector<Results>& serial) = 0;

  // Keeps only the first failure.
  static void note(std::string& failure, const std::string& found, const std::string& place = {});
  static std::string same(const char* what, const ConstTensorView& got, const char* from,
                          const ConstTensorView& want);

  std::string compare(const Result& result, const Samples& samples,
                      const std::function<Wanted(std::int64_t row, std::int64_t col)>& at);

  // Calls at once, or late, and sometimes in another float mode. Returns whether it is the same
  // afterwards.
  bool call_in_some_mode(const std::function<void()>& call);
  void delay(std::uint64_t most);  // by less than this many microseconds

  void spoil(std::size_t variant, const Results& results) const {
    if (spoil_) spoil_(variant, results);
  }

  Communicator& comm_;
  std::mt19937_64 random_;
  std::string aside_;  // a failure other than in the results
  bool as_one_ = false;

 private:
  std::vector<Results> run_and_spoil(std::size_t variant);

  bool delays_;
  bool modes_;
  Spoil spoil_;
};

std::unique_ptr<Subject> subject_of(const VerifyCase& one, Communicator& comm);
std::unique_ptr<Subject> subject_of(const LayerCase& one, Communicator& comm);
std::unique_ptr<Subject> subject_of(const UlyssesCase& one, Communicator& comm);
std::unique_ptr<Subject> subject_of(const ExpertsCase& one, Communicator& comm);
std::unique_ptr<Subject> subject_of(const HeadsCase& one, Communicator& comm);

// Collective.
template <class Case>
Findings verify_case(const Case& one, Communicator& comm, const Spoil& spoil = {}) {
  return subject_of(one, comm)->check(spoil);
}

}  // namespace plait::verify
