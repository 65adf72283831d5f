// Communicators of MPI for tests, and the group that plait makes of one.
#pragma once

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <vector>

#include "plait/collectives.h"

namespace plait {

// A communicator for the time of a test. Freeing it is collective, so each test that makes one does
// so on all its processes.
class SplitComm {
 public:
  // A negative color: this process is in none.
  SplitComm(int color, int key) {
    MPI_Comm_split(MPI_COMM_WORLD, color < 0 ? MPI_UNDEFINED : color, key, &comm_);
  }
  SplitComm(const SplitComm&) = delete;
  SplitComm& operator=(const SplitComm&) = delete;
  ~SplitComm() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

inline int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

inline int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

inline int my_rank() { return rank_in(MPI_COMM_WORLD); }

// All of `of`, in its order.
inline void expect_group_of(Communicator& comm, MPI_Comm of) {
  EXPECT_EQ(comm.rank(), rank_in(of));
  EXPECT_EQ(comm.world(), size_of(of));
  std::vector<int> theirs(comm.world());
  const int mine = my_rank();
  MPI_Allgather(&mine, 1, MPI_INT, theirs.data(), 1, MPI_INT, of);
  std::vector<std::int8_t> got(comm.world());
  const auto byte = static_cast<std::int8_t>(mine);
  all_gather({&byte, 1, Dtype::s8}, {got.data(), got.size(), Dtype::s8}, comm);
  EXPECT_EQ(std::vector<int>(got.begin(), got.end()), theirs);
  for (int round = 0; round < 10; ++round) {
    std::vector<float> ones(10'000, 1.0F);
    all_reduce({ones.data(), ones.size()}, comm);
    ASSERT_EQ(ones.front(), static_cast<float>(comm.world()));
    ASSERT_EQ(ones.back(), static_cast<float>(comm.world()));
  }
}

}  // namespace plait
