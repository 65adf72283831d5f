#include "comm/mpi/plugin/lobby.h"

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/mpi/plugin/exchange.h"
#include "comm/mpi/plugin/leftovers.h"
#include "comm/mpi/plugin/session.h"

namespace plait::comm::mpi {

struct Letter {
  enum class Kind { hello, answer, withdrawal };
  Kind kind;
  int number;                    // of its sender's try
  int answered = 0;              // answer: the number of the try that it answers
  int first_tag = 0;             // hello
  bool is_interruption = false;  // withdrawal: the caller has ended the try, and not its deadline
  int card_bytes = 0;
  std::array<char, 2048> card = {};

  int bytes() const { return static_cast<int>(offsetof(Letter, card)) + card_bytes; }
};

namespace {

constexpr Nanoseconds kBetweenLooks = 10 * base::kMillisecond;

// A try that has just begun may hear first of an interruption before it, and then that the process
// is here again.
constexpr Nanoseconds kUntilHeard = base::kSecond;

// How long a withdrawal may take to leave.
constexpr Nanoseconds kSending = 200 * base::kMillisecond;

class LetterUnderWay final : public Leftover {
 public:
  LetterUnderWay(const Letter& letter, int process, MPI_Comm comm) : letter_(letter) {
    const auto held = hold_mpi();
    check_mpi(MPI_Isend(&letter_, letter_.bytes(), MPI_BYTE, process, kLobbyTag, comm, &request_),
              "MPI_Isend");
  }

  bool settled() override {
    const auto held = hold_mpi();
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

 private:
  Letter letter_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

Lobby::Lobby(const Processes& processes)
    : processes_(processes),
      me_(processes.rank),
      peers_(processes.count),
      arriving_(std::make_unique<Letter>()) {
  expect_letter();
}

Lobby::~Lobby() = default;

void Lobby::close() noexcept {
  const auto held = hold_mpi();
  if (receiving_ == MPI_REQUEST_NULL) return;
  MPI_Cancel(&receiving_);
  MPI_Wait(&receiving_, MPI_STATUS_IGNORE);
}

std::unique_ptr<Transport> Lobby::connect(const WaitPolicy& policy, Nanoseconds deadline,
                                          const std::function<void()>& watch) {
  settle_leftovers();
  try {
    begin(reserve_tags(kGroupTags));
    wait_for_all(policy, deadline, watch);
    is_connecting_ = false;
    return make_group(policy);
  } catch (...) {
    withdraw();
    throw;
  }
}

void Lobby::withdraw() {
  is_connecting_ = false;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    send({.kind = Letter::Kind::withdrawal, .number = number_, .is_interruption = was_interrupted_},
         peer);
  }
  // MPI moves what is sent only while it is called, and the caller may be done with it.
  const Nanoseconds deadline = base::now() + kSending;
  while (was_interrupted_ && settle_leftovers() > 0 && base::now() < deadline) ::usleep(20);
}

void Lobby::begin(int first_tag) {
  ++number_;
  is_connecting_ = true;
  began_at_ = base::now();
  was_interrupted_ = false;
  peers_[me_] = {
      .number = number_, .has_answered = true, .first_tag = first_tag, .card = Neighbours::card()};
  const std::string& card = peers_[me_].card;
  Letter hello = {.kind = Letter::Kind::hello,
                  .number = number_,
                  .first_tag = first_tag,
                  .card_bytes = static_cast<int>(card.size())};
  PLAIT_CHECK(card.size() <= hello.card.size(), "connect: this process's description of ",
              card.size(), " bytes does not fit the ", hello.card.size(), " of a message");
  std::memcpy(hello.card.data(), card.data(), card.size());
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer == me_) continue;
    peers_[peer].has_answered = false;
    send(hello, peer);
    if (peers_[peer].number != 0) answer(peer);
  }
}

void Lobby::wait_for_all(const WaitPolicy& policy, Nanoseconds deadline,
                         const std::function<void()>& watch) {
  Nanoseconds look_at = 0;
  for (int turn = 0;; ++turn) {
    read_letters();
    const std::vector<int> missing = find_missing();
    if (missing.empty()) return;
    const Nanoseconds now = base::now();
    if (now >= look_at) {
      ask(policy);
      if (watch) watch();
      settle_leftovers();
      refuse_for_dead(missing);
      refuse_for_interrupted();
      look_at = now + kBetweenLooks;
    }
    if (now >= deadline)
      refuse_for_missing(me_, static_cast<int>(peers_.size()), missing, policy.timeout);
    if (turn > 100) ::usleep(100);
  }
}

void Lobby::ask(const WaitPolicy& policy) {
  if (!policy.interrupted) return;
  was_interrupted_ = true;  // where it throws
  policy.interrupted();
  was_interrupted_ = false;
}

// Each interruption ends one try of this process, its next one where it is in none.
void Lobby::refuse_for_interrupted() {
  if (base::now() - began_at_ < kUntilHeard) return;
  int first = Error::kNobody;
  for (int peer = static_cast<int>(peers_.size()) - 1; peer >= 0; --peer) {
    if (std::exchange(peers_[peer].was_interrupted, false)) first = peer;
  }
  if (first == Error::kNobody) return;
  throw Error(Code::peer_lost,
              base::sentence("rank ", me_, " waits to meet the others; rank ", first,
                             " was interrupted while it was connecting"),
              first);
}

std::vector<int> Lobby::find_missing() const {
  std::vector<int> missing;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (!peers_[peer].has_answered) missing.push_back(peer);
  }
  return missing;
}

void Lobby::refuse_for_dead(const std::vector<int>& missing) const {
  for (const int peer : missing) {
    if (neighbours_ == nullptr || !neighbours_->has_ended(peer)) continue;
    throw Error(Code::peer_lost,
                base::sentence("rank ", me_, " waits to meet rank ", peer, " (",
                               neighbours_->describe(peer), "), which has died"),
                peer);
  }
}

std::unique_ptr<Transport> Lobby::make_group(WaitPolicy policy) {
  Members all = {
      .all = &processes_, .processes = {}, .first_tags = {}, .me = me_, .neighbours = nullptr};
  std::vector<std::string> cards;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    all.processes.push_back(peer);
    all.first_tags.push_back(peers_[peer].first_tag);
    cards.push_back(peers_[peer].card);
  }
  if (neighbours_ == nullptr) {
    neighbours_ = std::make_shared<Neighbours>(cards);
    watch_at_the_end(neighbours_);
  }
  all.neighbours = neighbours_.get();
  policy.oversubscribed = neighbours_->crowded();
  return std::make_unique<MpiTransport>(
      std::make_shared<MpiGroup>(std::move(all), neighbours_, policy));
}

void Lobby::expect_letter() {
  const auto held = hold_mpi();
  check_mpi(MPI_Irecv(arriving_.get(), sizeof(Letter), MPI_BYTE, MPI_ANY_SOURCE, kLobbyTag,
                      processes_.carriers.front(), &receiving_),
            "MPI_Irecv");
}

void Lobby::read_letters() {
  for (;;) {
    MPI_Status status;
    {
      const auto held = hold_mpi();
      int there = 0;
      check_mpi(MPI_Test(&receiving_, &there, &status), "MPI_Test");
      if (there == 0) return;
    }
    read(*arriving_, status.MPI_SOURCE);
    expect_letter();
  }
}

void Lobby::read(const Letter& letter, int peer) {
  Peer& from = peers_[peer];
  switch (letter.kind) {
    case Letter::Kind::hello:
      from = {.number = letter.number,
              .has_answered = false,
              .first_tag = letter.first_tag,
              .card = {letter.card.data(), static_cast<std::size_t>(letter.card_bytes)}};
      if (is_connecting_) answer(peer);
      return;
    case Letter::Kind::answer:
      if (letter.answered == number_ && letter.number == from.number) from.has_answered = true;
      return;
    case Letter::Kind::withdrawal:
      if (letter.number == from.number) from.was_interrupted = letter.is_interruption;
      from.number = 0;
      from.has_answered = false;
  }
}

void Lobby::answer(int peer) {
  send({.kind = Letter::Kind::answer, .number = number_, .answered = peers_[peer].number}, peer);
}

void Lobby::send(const Letter& letter, int peer) {
  const bool has_ended = neighbours_ != nullptr && neighbours_->has_ended(peer);
  if (peer != me_ && !has_ended)
    leave_behind(std::make_unique<LetterUnderWay>(letter, peer, processes_.carriers.front()));
}

}  // namespace plait::comm::mpi
