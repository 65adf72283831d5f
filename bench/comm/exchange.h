// Chunks between ranks 0 and 1. Each is stamped with its number, so that the receiver can check
// that it gets what was sent. Chunks are written from a buffer of the sender and read into a buffer
// of the receiver.
//
//   MailboxExchange exchange(comm, bytes);
//   there_and_back(exchange, comm.rank());   // one round trip
//   one_way(exchange, comm.rank());          // one chunk from rank 0 to rank 1
//   swap_chunks(exchange, comm.rank());      // one chunk each way, at once
//   exchange.verify();                       // compares the whole of the last chunk
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plait/communicator.h"
#include "ranks.h"

namespace plait::bench {

// The buffers of one of the two ranks, and their content.
class StampedBuffers {
 public:
  StampedBuffers(std::size_t bytes, int rank);

  std::size_t bytes() const { return outgoing_.size(); }
  void load(std::byte* chunk);          // stamps the next chunk and writes it
  void unload(const std::byte* chunk);  // reads it and checks its stamp
  void verify() const;

 private:
  std::vector<std::byte> outgoing_;
  std::vector<std::byte> incoming_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  int rank_;
};

// Exchanges through a mailbox: 4 slots in turn, each with space for two chunks.
class MailboxExchange {
 public:
  static constexpr int kSlots = 4;

  MailboxExchange(Communicator& comm, std::size_t bytes);
  void send();
  void receive();
  void verify() const { buffers_.verify(); }

 private:
  StampedBuffers buffers_;
  std::unique_ptr<Mailbox> mailbox_;
  int peer_;
  std::uint32_t sent_ = 0;
  std::uint32_t received_ = 0;
};

// The minimum: a number next to the bytes, in memory that both ranks see, with as many chunks under
// way as above. It has no tags, no checks, no deadline and no failure detection, so it is the
// limit.
class BareExchange {
 public:
  BareExchange(BenchRank& self, std::size_t bytes);  // collective
  void send();
  void receive();
  void verify() const { buffers_.verify(); }

  static constexpr int kChunks = 2 * MailboxExchange::kSlots;

 private:
  // Two cache lines, because processors fetch lines in pairs: a small chunk arrives with its
  // number.
  struct alignas(128) Number {
    std::atomic<std::uint64_t> value;
    std::array<std::byte, 56> padding;
  };
  struct Way {
    Number* released;
    std::array<Number*, kChunks> chunks;
  };

  std::size_t chunk_bytes() const;
  std::size_t way_bytes() const;
  Way way(std::byte* common, int from) const;
  static std::byte* payload(Number* chunk) { return reinterpret_cast<std::byte*>(chunk) + 64; }

  StampedBuffers buffers_;
  Way out_;
  Way in_;
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
};

// Runs the pattern several times and compares every byte, outside of the measurement.
template <class Exchange, class Pattern>
void prove(Exchange& exchange, Pattern pattern, int rank) {
  for (int i = 0; i < 2 * BareExchange::kChunks; ++i) {
    pattern(exchange, rank);
    exchange.verify();
  }
}

template <class Exchange>
void there_and_back(Exchange& exchange, int rank) {
  if (rank == 0) exchange.send();
  if (rank <= 1) exchange.receive();
  if (rank == 1) exchange.send();
}

template <class Exchange>
void one_way(Exchange& exchange, int rank) {
  if (rank == 0) exchange.send();
  if (rank == 1) exchange.receive();
}

// Both send to each other at once, which is the least that an all-reduce of two ranks must do.
template <class Exchange>
void swap_chunks(Exchange& exchange, int rank) {
  if (rank <= 1) exchange.send();
  if (rank <= 1) exchange.receive();
}

}  // namespace plait::bench
