#include "measure/collective_check.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/session/gather.h"

namespace plait::measure {

std::optional<Code> refusal_of_all(Communicator& comm, base::FunctionRef<void()> check) {
  constexpr std::int32_t kNoRefusal = -1;
  std::optional<Error> refusal;
  try {
    check();
  } catch (const Error& error) {
    refusal = error;
  }
  const std::int32_t mine = refusal ? static_cast<std::int32_t>(refusal->code()) : kNoRefusal;
  const std::vector<std::int32_t> all = comm::gather_values(mine, comm);
  const auto first =
      std::find_if(all.begin(), all.end(), [](std::int32_t one) { return one != kNoRefusal; });
  if (first == all.end()) return std::nullopt;
  if (refusal && first - all.begin() == comm.rank()) throw Error(*refusal);
  return static_cast<Code>(*first);
}

}  // namespace plait::measure
