#include "comm/meet/patient_watch.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/core/interruption.h"
#include "plait/error.h"

namespace plait::comm::shm {
namespace {

const Watch kRefusing = [](int peer) { throw Error(Code::mismatch, "another call", peer); };

TEST(PatientWatch, AsksForThePeerThatIsWaitedFor) {
  std::vector<int> asked;
  const Watch watch = [&](int peer) { asked.push_back(peer); };
  PatientWatch(watch, false).poll(3);
  EXPECT_EQ(asked, std::vector<int>{3});
  const Watch none;
  PatientWatch(none, true).poll(3);
}

TEST(PatientWatch, LetsTheCoordinatorRefuseAtOnce) {
  PatientWatch watch(kRefusing, true);
  EXPECT_THROW(watch.poll(1), Error);
}

TEST(PatientWatch, BearsARefusalForAWhile) {
  PatientWatch watch(kRefusing, false);
  const base::Nanoseconds start = base::now();
  watch.poll(1);
  bool has_refused = false;
  while (!has_refused && base::now() - start < 60 * base::kSecond) {
    try {
      watch.poll(1);
    } catch (const Error&) {
      has_refused = true;
    }
  }
  EXPECT_TRUE(has_refused);
  EXPECT_GE(base::now() - start, PatientWatch::kPatience);
}

TEST(PatientWatch, PassesOnWhatTheCallersHookThrows) {
  const auto hook = Interruption::counted([] { throw Error(Code::system, "the caller's own"); });
  const Watch watch = [&](int /*peer*/) { hook(); };
  PatientWatch patient(watch, false);
  EXPECT_THROW(patient.poll(1), Error);
}

}  // namespace
}  // namespace plait::comm::shm
