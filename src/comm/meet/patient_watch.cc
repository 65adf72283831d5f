#include "comm/meet/patient_watch.h"

#include "plait/error.h"

namespace plait::comm::shm {

void PatientWatch::poll(int peer) {
  try {
    shm::poll(watch_, peer);
  } catch (const Error&) {
    if (interruption_.has_come()) throw;
    const base::Nanoseconds now = base::now();
    if (refused_at_ == 0) refused_at_ = now;
    if (now - refused_at_ >= patience_) throw;
  }
}

}  // namespace plait::comm::shm
