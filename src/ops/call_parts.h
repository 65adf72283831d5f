// The parts of every call of an operator beside its product and its communication.
#pragma once

#include <string_view>

#include "base/check.h"
#include "base/default_floats.h"
#include "comm/session/state.h"
#include "plait/ops.h"

namespace plait::ops {

// In a catch clause: one rank alone may lack memory, when the others have all they need and wait
// for its chunks.
inline void tell_shortage(std::string_view caller, const Error& error, comm::Group& group) {
  if (group.was_interrupted()) throw;  // the error that the caller's hook threw
  if (error.code() != Code::system) return;
  group.fail_and_raise(
      {.code = Code::system,
       .culprit = group.rank(),
       .sentence = base::sentence(caller, ": rank ", group.rank(), ": ", error.what())});
}
inline void tell_shortage(std::string_view caller, const Error& error, Communicator& comm) {
  tell_shortage(caller, error, comm.state().group());
}

// Gives a view of one row the usual stride: the caller's is never used and may be any number.
template <class View>
View counted(View view) {
  if (view.rows <= 1) view.row_stride = view.cols;
  return view;
}

// A mismatch that a poll hook meets is none of the operator's: its words must not be taken for
// such, on whichever rank they are heard.
inline void call_hook(std::string_view caller, const PollHook& poll) try {
  const base::DefaultFloats floats;  // also afterwards, whatever it sets
  poll();
} catch (const Error& error) {
  if (error.code() != Code::mismatch) throw;
  throw Error(error.code(), base::sentence("poll hook of ", caller, ": ", error.what()),
              error.culprit());
}

// Empty if `poll` is. Both arguments outlive it.
inline PollHook hook_of(std::string_view caller, const PollHook& poll) {
  if (!poll) return {};
  return [caller, &poll] { call_hook(caller, poll); };
}

}  // namespace plait::ops
