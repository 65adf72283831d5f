// Slots that UCX has registered, and connections that it makes slowly. The functions of UCX that
// this program defines are called instead of the library's: they note what they are asked, and call
// those.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "comm/milestones.h"
#include "comm/session/state.h"
#include "comm/tcp_case.h"
#include "comm/ucx_case.h"
#include "folder.h"
#include "plait/collectives.h"
#include "plait/mailbox.h"

namespace plait {
namespace {

struct Calls {
  std::atomic<int> mapped = 0;
  std::atomic<int> unmapped = 0;
  std::atomic<int> chunks = 0;  // sent or fetched
  std::atomic<int> chunks_in_registered_memory = 0;
  std::atomic<int> eager_chunks = 0;       // sent without asking the receiver
  std::atomic<int> mapped_at_the_end = 0;  // and not unmapped
  std::atomic<bool> is_out_of_memory = false;
  std::atomic<bool> fails_to_fetch = false;
  std::atomic<base::Nanoseconds> moves_at = 0;  // until then no call moves anything
  std::function<void()> before_connecting = [] {};
};
Calls calls;

template <typename Function>
Function* real(const char* name) {
  void* const library = ::dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(::dlsym(library, name));
}

void note_chunk(std::size_t bytes, const ucp_request_param_t* param) {
  if (bytes == 0) return;
  ++calls.chunks;
  if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_MEMH) != 0) ++calls.chunks_in_registered_memory;
}

}  // namespace
}  // namespace plait

// NOLINTBEGIN(readability-inconsistent-declaration-parameter-name)
extern "C" {

PLAIT_EXPORT ucs_status_t ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t* params,
                                      ucp_mem_h* handle) {
  static auto* const real = plait::real<decltype(ucp_mem_map)>("ucp_mem_map");
  if (plait::calls.is_out_of_memory) return UCS_ERR_NO_MEMORY;
  ++plait::calls.mapped;
  return real(context, params, handle);
}

PLAIT_EXPORT ucs_status_t ucp_mem_unmap(ucp_context_h context, ucp_mem_h handle) {
  static auto* const real = plait::real<decltype(ucp_mem_unmap)>("ucp_mem_unmap");
  ++plait::calls.unmapped;
  return real(context, handle);
}

PLAIT_EXPORT void ucp_cleanup(ucp_context_h context) {
  static auto* const real = plait::real<decltype(ucp_cleanup)>("ucp_cleanup");
  plait::calls.mapped_at_the_end = plait::calls.mapped - plait::calls.unmapped;
  real(context);
}

PLAIT_EXPORT ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h endpoint, unsigned id, const void* header,
                                              std::size_t header_bytes, const void* data,
                                              std::size_t bytes, const ucp_request_param_t* param) {
  static auto* const real = plait::real<decltype(ucp_am_send_nbx)>("ucp_am_send_nbx");
  plait::note_chunk(bytes, param);
  if (bytes > 0 && (param->flags & UCP_AM_SEND_FLAG_EAGER) != 0) ++plait::calls.eager_chunks;
  return real(endpoint, id, header, header_bytes, data, bytes, param);
}

PLAIT_EXPORT ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* message, void* place,
                                                   std::size_t bytes,
                                                   const ucp_request_param_t* param) {
  static auto* const real = plait::real<decltype(ucp_am_recv_data_nbx)>("ucp_am_recv_data_nbx");
  plait::note_chunk(bytes, param);
  if (plait::calls.fails_to_fetch)
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as UCX makes its status pointers
    return reinterpret_cast<ucs_status_ptr_t>(static_cast<std::intptr_t>(UCS_ERR_IO_ERROR));
  return real(worker, message, place, bytes, param);
}

PLAIT_EXPORT ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params,
                                        ucp_ep_h* endpoint) {
  static auto* const real = plait::real<decltype(ucp_ep_create)>("ucp_ep_create");
  plait::calls.before_connecting();
  return real(worker, params, endpoint);
}

PLAIT_EXPORT unsigned ucp_worker_progress(ucp_worker_h worker) {
  static auto* const real = plait::real<decltype(ucp_worker_progress)>("ucp_worker_progress");
  return plait::base::now() < plait::calls.moves_at ? 0 : real(worker);
}

}  // extern "C"
// NOLINTEND(readability-inconsistent-declaration-parameter-name)

namespace plait {
namespace {

class UcxSlots : public TcpCase {
 protected:
  Environment::Variables through_shared_memory() const {
    Environment::Variables variables = plait::through_shared_memory();
    variables.emplace_back("PLAIT_RENDEZVOUS", port_.address());
    return variables;
  }
};

constexpr std::size_t kBytes = std::size_t{1} << 20;
constexpr int kTurns = 6;

// Each rank sends the other a chunk per turn, in two slots, and looks at what it gets.
void exchange(Mailbox& mailbox, int rank) {
  for (int turn = 0; turn < kTurns; ++turn) {
    const int slot = turn % 2;
    std::fill_n(mailbox.outbox(1 - rank, slot), kBytes, std::byte(16 * rank + turn));
    mailbox.post(1 - rank, slot, {}, kBytes);
    mailbox.wait_arrived(1 - rank, slot, {});
    const std::byte* chunk = mailbox.inbox(1 - rank, slot);
    EXPECT_EQ(std::count(chunk, chunk + kBytes, std::byte(16 * (1 - rank) + turn)), kBytes);
    mailbox.release(1 - rank, slot);
  }
}

TEST_F(UcxSlots, EveryChunkLiesInMemoryThatIsRegisteredOnce) {
  const Environment shared(through_shared_memory());
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    EXPECT_EQ(
        comm.state().route_to(1 - rank),
        "ucx: 127.0.0.1 (lo) to 127.0.0.1, large chunks read from registered slots by "
        "cma/memory; no shared memory, because all ranks are on one host, where TCP or UCX is "
        "only used if asked for");
    barrier(comm);
    const int mapped_before = calls.mapped;
    calls.chunks = 0;
    calls.chunks_in_registered_memory = 0;
    auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
    EXPECT_EQ(calls.mapped, mapped_before + 1);
    exchange(*mailbox, rank);
    EXPECT_EQ(calls.chunks, 2 * kTurns);
    EXPECT_EQ(calls.chunks_in_registered_memory, calls.chunks);
    const int unmapped_before = calls.unmapped;
    mailbox.reset();
    barrier(comm);
    EXPECT_EQ(calls.unmapped, unmapped_before + 1);
    {
      const Communicator gone = std::move(comm);
    }
    EXPECT_EQ(calls.unmapped, calls.mapped);
  });
}

// This happens where the user may lock little memory.
TEST_F(UcxSlots, ChunksAreSentWithoutARegistrationToo) {
  const Environment shared(through_shared_memory());
  fork_ranks(2, [&](int rank) {
    calls.is_out_of_memory = true;
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
    exchange(*mailbox, rank);
    EXPECT_EQ(calls.chunks_in_registered_memory, 0);
    mailbox.reset();
    EXPECT_EQ(calls.unmapped, 0);
  });
}

// UCX frees what it knows of a registration with its context.
TEST_F(UcxSlots, RegistrationsEndBeforeUcxWhereAChunkCannotBeFetched) {
  const Environment shared(through_shared_memory());
  fork_ranks(2, [&](int rank) {
    {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
      auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
      calls.fails_to_fetch = true;
      EXPECT_THROW(exchange(*mailbox, rank), Error);
    }
    EXPECT_GT(calls.mapped, 0);
    EXPECT_EQ(calls.mapped_at_the_end, 0);
    EXPECT_EQ(calls.unmapped, calls.mapped);
  });
}

TEST_F(UcxSlots, OverTcpNothingIsRegistered) {
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    const std::string route = comm.state().route_to(1 - rank);
    EXPECT_TRUE(route.starts_with("ucx: 127.0.0.1 (lo) to 127.0.0.1, chunks by tcp/")) << route;
    auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
    exchange(*mailbox, rank);
    EXPECT_EQ(calls.mapped, 0);
  });
}

TEST_F(UcxSlots, OverTcpChunksAreSentEagerlyUnlessTheUserHasSetAThreshold) {
  const test::Folder folder;
  const Environment environment(
      {{"PLAIT_RENDEZVOUS", port_.address()}, {"UCX_CONFIG_DIR", folder / ""}});
  for (const std::string text : {"", "# UCX_RNDV_THRESH=64\n", "UCX_RNDV_THRESH=64\n"}) {
    std::ofstream(folder / "ucx.conf") << text;
    fork_ranks(2, [&](int rank) {
      Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
      auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
      exchange(*mailbox, rank);
      EXPECT_EQ(calls.eager_chunks, text.starts_with("UCX") ? 0 : kTurns) << text;
    });
  }
}

// Ranks are connected by UCX when they have connected, so what is posted goes out at once.
TEST_F(UcxSlots, WhatIsPostedComesThoughTheRankMakesNoOtherCall) {
  Milestones come;
  fork_ranks(2, [&](int rank) {
    calls.moves_at = base::now() + base::kSecond / 2;
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    const auto mailbox = comm.make_mailbox({.slots = 1, .slot_bytes = 8});
    if (rank == 0) {
      mailbox->post(1, 0, {}, 8);
      come.await(0);
      EXPECT_EQ(come.reached(0), 1);
    } else {
      mailbox->wait_arrived(0, 0, {});
      come.reach(0);
    }
  });
}

// UCX prints several lines of its own in this case, about its sockets and the kernel's limits.
TEST_F(UcxSlots, ARankThatDiesWhileTheyConnectIsNamedInOneSentence) {
  for (const bool has_connected : {false, true}) {
    const Helper zero([&] {
      testing::internal::CaptureStdout();
      testing::internal::CaptureStderr();
      const pid_t one = ::fork();
      const auto see_the_end = [&] { ::waitpid(one, nullptr, 0); };
      if (one == 0) {
        calls.before_connecting = [] { ::raise(SIGKILL); };
      } else if (!has_connected) {
        calls.before_connecting = see_the_end;
      }
      expect_error(Code::peer_lost, 1, "rank 1 (pid ",
                   [&] { Communicator::connect(options_of(one == 0 ? 1 : 0, 2, job_, "ucx")); });
      EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
      EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
      see_the_end();
    });
  }
}

// The parent's slots stay registered when a child that it has forked destroys its copies.
TEST_F(UcxSlots, AForkedChildEndsNoRegistration) {
  const Environment shared(through_shared_memory());
  fork_ranks(2, [&](int rank) {
    Communicator comm = Communicator::connect(options_of(rank, 2, job_, "ucx"));
    auto mailbox = comm.make_mailbox({.slots = 2, .slot_bytes = kBytes});
    fork_ranks(1, [&](int) {
      mailbox.reset();
      {
        const Communicator gone = std::move(comm);
      }
      EXPECT_EQ(calls.unmapped, 0);
    });
    exchange(*mailbox, rank);
  });
}

}  // namespace
}  // namespace plait
