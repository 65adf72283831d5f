#include "plait/communicator.h"

#include <algorithm>
#include <exception>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/env.h"
#include "comm/core/interruption.h"
#include "comm/core/living.h"
#include "comm/core/started.h"
#include "comm/emulated/link_clock.h"
#include "comm/mapped/mapped_transport.h"
#include "comm/meet/rendezvous_check.h"
#include "comm/meet/thread_rendezvous.h"
#include "comm/meet/transport_check.h"
#include "comm/session/connect.h"
#include "comm/session/same_transport.h"
#include "comm/session/state.h"
#include "comm/session/transports.h"

namespace plait {
namespace {

using comm::LinkView;

std::optional<Link> wanted_link(const CommunicatorOptions& options) {
  if (!options.link) return comm::link_from_environment();
  comm::check_link(*options.link);
  return options.link;
}

std::optional<LinkView> whole_view(const std::optional<Link>& link, int world) {
  if (!link) return std::nullopt;
  LinkView view = {.clock = std::make_shared<comm::LinkClock>(*link, world),
                   .ranks = std::vector<int>(world)};
  std::iota(view.ranks.begin(), view.ranks.end(), 0);
  return view;
}

comm::Site site_of(const CommunicatorOptions& options, const std::optional<comm::MpiProgram>& mpi) {
  comm::Site site = {.place = options.place ? *options.place : place_from_environment(),
                     .all_gather = options.all_gather,
                     .mpi = mpi ? std::optional(mpi->handle) : std::nullopt,
                     .policy = comm::wait_policy_of(options)};
  const Place& place = site.place;
  PLAIT_CHECK(place.world > 0 && place.rank >= 0 && place.rank < place.world,
              "connect: there is no rank ", place.rank, " in a world of ", place.world);
  PLAIT_CHECK(place.world <= comm::kMostRanks, "connect: a world of ", place.world,
              " ranks; no more than ", comm::kMostRanks, " can meet");
  return site;
}

}  // namespace

namespace comm {

namespace {

// Refuses ranks that have chosen different transports.
std::unique_ptr<Transport> create_alike(const TransportEntry& transport, const Site& site,
                                        const WaitPolicy& connecting) {
  Site here = site;
  here.policy = connecting;
  here.transport = transport.name;
  here.all_gather = with_transport_check(site.all_gather, here.transport, here.place.world);
  std::optional<shm::TransportCheck> on_this_host;
  std::optional<tcp::RendezvousCheck> at_rendezvous;
  if (!here.all_gather && crosses_hosts(transport.name) && here.place.world > 1) {
    on_this_host.emplace(here);
    if (transport.meets == Meets::by_mpi) at_rendezvous.emplace(here);
    here.watch = [&] {
      on_this_host->poll();
      if (at_rendezvous) at_rendezvous->poll();
    };
  }
  return transport.create(here);
}

}  // namespace

WaitPolicy wait_policy_of(const CommunicatorOptions& options) {
  WaitPolicy policy = wait_policy_from_environment();
  PLAIT_CHECK(options.timeout.count() >= 0, "connect: a timeout of ", options.timeout.count(),
              " ns");
  if (options.timeout.count() > 0) {
    policy.timeout = options.timeout.count();
    policy.connect_timeout = policy.timeout;
  }
  // A year is for ever, and a deadline that far from now still fits the clock.
  constexpr Nanoseconds kYear = 365 * 24 * 3600 * base::kSecond;
  policy.timeout = std::min(policy.timeout, kYear);
  policy.connect_timeout = std::min(policy.connect_timeout, kYear);
  policy.interrupted = [ask = Interruption::counted(options.interrupted)] {
    advance_started();
    if (ask) ask();
  };
  policy.advance = [] { return advance_started(); };
  policy.show_wait = [](const Group& group, const Awaited* awaited) {
    Living::here().show_wait(group, awaited);
  };
  return policy;
}

Communicator connect(const CommunicatorOptions& options, const std::optional<MpiProgram>& mpi) {
  const Site site = site_of(options, mpi);
  const auto link = wanted_link(options);
  const std::string wanted =
      options.transport.empty() ? base::env("PLAIT_TRANSPORT").value_or("") : options.transport;
  const TransportEntry& transport = select_transport(wanted, site);
  return Communicator(Communicator::State::connect(
      {.transport_name = transport.name,
       .policy = site.policy,
       .host = site.place.host,
       .began_at = mpi ? std::optional(mpi->began_at) : std::nullopt,
       .link = whole_view(link, site.place.world),
       .trace = options.trace},
      [&](const WaitPolicy& connecting) { return create_alike(transport, site, connecting); }));
}

}  // namespace comm

Communicator Communicator::connect(const CommunicatorOptions& options) {
  return comm::connect(options, std::nullopt);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::State& Communicator::state() const {
  PLAIT_CHECK(state_, "this communicator was moved to another, which has its ranks");
  return *state_;
}

int Communicator::rank() const { return state().group().rank(); }
int Communicator::world() const { return state().group().world(); }
int Communicator::hosts() const { return state().hosts(); }
std::string_view Communicator::transport() const { return state().transport_name(); }
std::optional<Link> Communicator::link() const { return state().link(); }
Trace* Communicator::trace() const { return state().trace(); }
void Communicator::set_trace(Trace* trace) { state().set_trace(trace); }
std::size_t Communicator::mailbox_bytes() const { return state().mailbox_bytes(); }

std::optional<Communicator> Communicator::split(int color, int key) {
  auto part = state().split(color, key);
  if (part == nullptr) return std::nullopt;
  return Communicator(std::move(part));
}

Communicator Communicator::with_link(const std::optional<Link>& link) {
  if (link) comm::check_link(*link);
  PLAIT_CHECK(!link || state().hosts() == 1,
              "with_link: an emulated link needs the ranks on one host, not ", state().hosts());
  return Communicator(state().with_link(whole_view(link, world())));
}

std::unique_ptr<Mailbox> Communicator::make_mailbox(const MailboxDesc& desc) {
  return state().make_mailbox(desc);
}
Mailbox& Communicator::cached_mailbox(const MailboxDesc& desc) {
  return state().cached_mailbox(desc);
}

Survivors Communicator::survivors() {
  State::Regrouped found = state().survivors();
  return {.comm = Communicator(std::move(found.state)),
          .lost = std::move(found.lost),
          .completed_calls = found.completed_calls};
}
std::uint64_t Communicator::completed_calls() const { return state().completed_calls(); }

void Communicator::check_ranks() { state().check_ranks(); }
void Communicator::abort(std::string_view reason) { state().abort(reason); }

class ThreadGroup::Rendezvous : public comm::threads::ThreadRendezvous {
  using comm::threads::ThreadRendezvous::ThreadRendezvous;
};

ThreadGroup::ThreadGroup(int world) {
  PLAIT_CHECK(world > 0, "a group of ", world, " threads; at least one is needed");
  PLAIT_CHECK(world <= comm::kMostRanks, "a group of ", world, " threads; no more than ",
              comm::kMostRanks, " can meet");
  rendezvous_ = std::make_shared<Rendezvous>(world);
}
ThreadGroup::~ThreadGroup() = default;

Communicator ThreadGroup::join(int rank, const CommunicatorOptions& options) const {
  PLAIT_CHECK(options.transport.empty() || options.transport == "threads",
              "join: the ranks of a ThreadGroup meet by the threads transport, not \"",
              options.transport, '"');
  const auto link = wanted_link(options);
  return Communicator(Communicator::State::connect(
      {.transport_name = "threads",
       .policy = comm::wait_policy_of(options),
       .link = whole_view(link, rendezvous_->world()),
       .trace = options.trace},
      [&](const comm::WaitPolicy& connecting) {
        return comm::make_mapped_transport(
            comm::threads::join(rendezvous_, rank, connecting.timeout), connecting);
      }));
}

void run_in_threads(int world, const std::function<void(Communicator&)>& body,
                    const CommunicatorOptions& options) {
  PLAIT_CHECK(body != nullptr, "run_in_threads: there is no function to run");
  const ThreadGroup group(world);
  std::promise<bool> all;  // true if all threads have been started
  const std::shared_future<bool> started = all.get_future().share();
  std::exception_ptr first;
  std::mutex mutex;
  const auto keep = [&](std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    if (first == nullptr) first = std::move(error);
  };
  const auto be_rank = [&](int rank) {
    if (!started.get()) return;  // ranks that begin would wait for those that can't
    try {
      Communicator comm = group.join(rank, options);
      try {
        body(comm);
      } catch (const std::exception& error) {
        // Kept before the others are told, because the errors that they then throw only repeat it.
        keep(std::current_exception());
        comm.abort(error.what());
      } catch (...) {
        keep(std::current_exception());
        comm.abort("it threw something that is no exception");
      }
    } catch (...) {
      keep(std::current_exception());
    }
  };
  {
    std::vector<std::jthread> ranks;
    ranks.reserve(world);
    try {
      for (int rank = 0; rank < world; ++rank) ranks.emplace_back(be_rank, rank);
    } catch (const std::exception& error) {
      keep(std::make_exception_ptr(
          Error(Code::system, base::sentence("run_in_threads: cannot start the thread of rank ",
                                             ranks.size(), " of ", world, ": ", error.what()))));
    }
    all.set_value(first == nullptr);
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace plait
