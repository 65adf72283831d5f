#include "comm/mpi/plugin/lobby.h"

#include <numeric>

namespace plait::comm::mpi {

Lobby::Lobby() : transport_(std::make_shared<MpiGroup>(everybody(), nullptr, WaitPolicy{})) {}

std::unique_ptr<Transport> Lobby::connect(const WaitPolicy& policy) {
  transport_.group().raise_if_failed();
  try {
    return meet(policy);
  } catch (const Error& error) {
    transport_.group().fail(
        {.code = error.code(), .culprit = error.culprit(), .sentence = error.what()});
    throw;
  } catch (...) {  // what the caller's hook throws
    transport_.group().note_interruption(nullptr);
    throw;
  }
}

std::unique_ptr<Transport> Lobby::meet(WaitPolicy policy) {
  const Meeting meeting = {.timeout = policy.connect_timeout, .interrupted = policy.interrupted};
  if (neighbours_ == nullptr) {
    neighbours_ =
        std::make_shared<Neighbours>(transport_.all_gather_within(meeting, Neighbours::card()));
  }
  policy.crowded = neighbours_->crowded();
  std::vector<int> all(transport_.group().world());
  std::iota(all.begin(), all.end(), 0);
  return transport_.form(all, {neighbours_, policy, meeting});
}

}  // namespace plait::comm::mpi
